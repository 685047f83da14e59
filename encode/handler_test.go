package encode

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/slogtest"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/jsontext"
)

// A testHandler is a minimal slog.Handler that encodes with a Scope.
type testHandler struct {
	scope Scope
	w     io.Writer
}

func (h testHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h testHandler) Handle(_ context.Context, sr slog.Record) error {
	r := Record{Time: sr.Time, Level: sr.Level, Message: sr.Message, PC: sr.PC}
	sr.Attrs(func(a slog.Attr) bool { r.Attrs = append(r.Attrs, a); return true })
	out, _, err := h.scope.Append(nil, &r)
	if err != nil {
		return err
	}
	_, err = h.w.Write(out)
	return err
}

func (h testHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return testHandler{h.scope.WithAttrs(attrs), h.w}
}

func (h testHandler) WithGroup(name string) slog.Handler {
	return testHandler{h.scope.WithGroup(name), h.w}
}

// encodeOne encodes a record without a time and returns the line.
func encodeOne(t testing.TB, e Encoder, attrs ...slog.Attr) string {
	t.Helper()
	return encodeScope(t, e.Scope(), attrs...)
}

func encodeScope(t testing.TB, s Scope, attrs ...slog.Attr) string {
	t.Helper()
	out, _, err := s.Append([]byte("before"), &Record{Message: "m", Attrs: attrs})
	if err != nil {
		t.Fatal(err)
	}
	line, ok := strings.CutPrefix(string(out), "before")
	if !ok {
		t.Fatalf("Append changed what was there before: %q", out)
	}
	if !strings.HasSuffix(line, "\n") {
		t.Fatalf("no newline at the end of %q", line)
	}
	return line
}

// value returns the JSON that e writes for v.
func value(t testing.TB, e Encoder, v any) string {
	t.Helper()
	line := encodeOne(t, e, slog.Any("k", v))
	s, ok := strings.CutPrefix(line, `{"level":"INFO","msg":"m","k":`)
	if !ok || !json.Valid([]byte(line)) {
		t.Fatalf("not the JSON expected: %s", line)
	}
	return strings.TrimSuffix(s, "}\n")
}

func TestSlogtestJSON(t *testing.T) {
	var buf bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		buf.Reset()
		return testHandler{JSON(nil).Scope(), &buf}
	}, func(t *testing.T) map[string]any {
		m := map[string]any{}
		if err := json.Unmarshal(buf.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		return m
	})
}

func TestSlogtestLogfmt(t *testing.T) {
	var buf bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		buf.Reset()
		return testHandler{Logfmt(nil).Scope(), &buf}
	}, func(t *testing.T) map[string]any {
		pairs, err := parseLogfmt(strings.TrimSuffix(buf.String(), "\n"))
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]any{}
		for _, p := range pairs {
			at := m
			parts := strings.Split(p[0], ".")
			for _, name := range parts[:len(parts)-1] {
				if at[name] == nil {
					at[name] = map[string]any{}
				}
				at = at[name].(map[string]any)
			}
			at[parts[len(parts)-1]] = p[1]
		}
		return m
	})
}

// parseLogfmt is a strict parser of logfmt. It requires one space between pairs, keys that need no
// quotes, and quotes around exactly those values that need them.
func parseLogfmt(line string) (pairs [][2]string, err error) {
	for rest := line; rest != ""; {
		k := strings.IndexAny(rest, "= \"\t\n")
		if k <= 0 || rest[k] != '=' {
			return nil, fmt.Errorf("no key at %q", rest)
		}
		key := rest[:k]
		rest = rest[k+1:]
		var value string
		if strings.HasPrefix(rest, `"`) {
			n := jsontext.StringLen(rest)
			if n == 0 {
				return nil, fmt.Errorf("no end of quotes at %q", rest)
			}
			if err := json.Unmarshal([]byte(rest[:n]), &value); err != nil {
				return nil, fmt.Errorf("%s: %w", rest[:n], err)
			}
			rest = rest[n:]
		} else {
			n := strings.IndexByte(rest, ' ')
			if n < 0 {
				n = len(rest)
			}
			value, rest = rest[:n], rest[n:]
			if value == "" || strings.ContainsAny(value, "=\"") {
				return nil, fmt.Errorf("value %q without quotes", value)
			}
		}
		pairs = append(pairs, [2]string{key, value})
		if rest != "" {
			if rest[0] != ' ' || len(rest) == 1 {
				return nil, fmt.Errorf("no pair at %q", rest)
			}
			rest = rest[1:]
		}
	}
	return pairs, nil
}

var unknownMeta batch.Meta
