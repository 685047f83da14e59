package deliver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

// oddCodec reads records that are JSON already; what it does with others is up
// to the record.
type oddCodec struct{}

func (oddCodec) ContentType() string { return "application/x-odd" }

func (oddCodec) AppendJSON(dst, rec []byte, _ batch.Meta) []byte {
	switch s := string(rec); {
	case s == "panic":
		panic("cannot read this")
	case s == "nothing":
		return dst
	case s == "broken":
		return append(dst, `{"a":`...)
	case s == "number":
		return append(dst, `1`...)
	case s == "nan":
		return append(dst, `{"a":NaN}`...)
	case s == "pretty":
		return append(dst, "{\n  \"a\": 1\r\n}"...)
	case s == "shorter":
		return dst[:0]
	default:
		return append(dst, rec...)
	}
}

func (oddCodec) AppendMarker(dst []byte, _ batch.Drops, _ time.Time) []byte { return dst }

func oddBatch(recs ...string) *batch.Batch {
	var build batch.Builder
	for i, r := range recs {
		build.Append([]byte(r), uint64(i+1), batch.Meta{Time: 1_000_000_001, Level: slog.LevelWarn, Stream: uint32(i)})
	}
	return build.Batch(oddCodec{})
}

// One record that nobody can read spoils nothing for the others.
func TestJSONLinesBadRecords(t *testing.T) {
	var out bytes.Buffer
	b := oddBatch(`{"ok":1}`, "panic", "nothing", "broken", "number", "nan", "pretty", "shorter", "\xff\xfe", `{"ok":2}`)
	if err := JSONLines(&out).HandleError(testkit.ErrDown, b); err != nil {
		t.Fatal(err)
	}
	want := `{"ok":1}
{"raw":"panic"}
{"raw":"nothing"}
{"raw":"broken"}
{"raw":"number"}
{"raw":"nan"}
{   "a": 1  }
{"raw":"shorter"}
{"raw_base64":"//4="}
{"ok":2}
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// Without a codec lines come as text.
func TestJSONLinesPlain(t *testing.T) {
	var build batch.Builder
	build.Append([]byte("a \"line\"\n"), 1, batch.Meta{})
	build.Append([]byte("no newline"), 2, batch.Meta{})
	build.Append(nil, 3, batch.Meta{})
	var out bytes.Buffer
	if err := JSONLines(&out).HandleError(nil, build.Batch(nil)); err != nil {
		t.Fatal(err)
	}
	if want := "{\"raw\":\"a \\\"line\\\"\"}\n{\"raw\":\"no newline\"}\n{\"raw\":\"\"}\n"; out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
}

// shortWriter takes n bytes and then fails, until it is mended.
type shortWriter struct {
	bytes.Buffer
	n   int
	err error
}

func (w *shortWriter) Write(p []byte) (int, error) {
	if w.err == nil {
		return w.Buffer.Write(p)
	}
	n := min(w.n, len(p))
	w.n -= n
	w.Buffer.Write(p[:n])
	if n == len(p) {
		return n, nil
	}
	return n, w.err
}

// A writer that fails within a line has taken the lines before it; the torn one
// is ended and written again.
func TestJSONLinesWriterFails(t *testing.T) {
	line := len(`{"raw":"0000000000000000000xxxxxxxxxxxx"}`)
	for _, tt := range []struct{ n, whole int }{{0, 0}, {10, 0}, {line, 1}, {line + 1, 1}, {line + 2, 1}, {3*line + 3, 3}, {4*line + 3, 4}} {
		w := &shortWriter{n: tt.n, err: errors.New("disk full")}
		h := JSONLines(w)
		b := lines(5)
		err := h.HandleError(testkit.ErrDown, b)
		rest := left(5, err)
		if len(rest) != 5-tt.whole {
			t.Errorf("after %d bytes: %v: %d records left, want %d", tt.n, err, len(rest), 5-tt.whole)
		}
		w.err = nil
		if err := h.HandleError(testkit.ErrDown, b.Select(nil, rest)); err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for l := range strings.Lines(w.String()) {
			if json.Valid([]byte(l)) && strings.TrimSpace(l) != "" {
				seen[l]++
			}
		}
		if len(seen) != 5 {
			t.Errorf("after %d bytes: %d different whole lines, want 5:\n%s", tt.n, len(seen), w.String())
		}
		for l, n := range seen {
			if n != 1 {
				t.Errorf("after %d bytes: %d times %s", tt.n, n, l)
			}
		}
	}
}

// Writers that take nothing end in an error; one that says it took more than there
// was has taken all.
func TestJSONLinesOddWriters(t *testing.T) {
	for name, w := range map[string]io.Writer{
		"nothing":  writerFunc(func([]byte) (int, error) { return 0, nil }),
		"negative": writerFunc(func([]byte) (int, error) { return -1, nil }),
	} {
		if err := JSONLines(w).HandleError(nil, lines(1)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	calls := 0
	w := writerFunc(func(p []byte) (int, error) { calls++; return len(p) + 1, nil })
	if err := JSONLines(w).HandleError(nil, lines(1)); err != nil || calls != 1 {
		t.Errorf("too much: %v after %d calls", err, calls)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Large batches are written in pieces of whole lines.
func TestJSONLinesChunks(t *testing.T) {
	var writes, total int
	w := writerFunc(func(p []byte) (int, error) {
		writes++
		total += bytes.Count(p, []byte{'\n'})
		if p[len(p)-1] != '\n' || len(p) > lineChunk+1000 {
			t.Errorf("a write of %d bytes ends in %q", len(p), p[len(p)-1])
		}
		return len(p), nil
	})
	if err := JSONLines(w).HandleError(nil, new(testkit.Model).Batch(2000, 200, batch.Meta{})); err != nil || total != 2000 || writes < 6 {
		t.Errorf("%v, %d lines in %d writes", err, total, writes)
	}
}

func TestDeadLetters(t *testing.T) {
	var out bytes.Buffer
	cause := &batch.SendError{Kind: batch.KindReject, Err: errors.New(`entry "too far" behind`), Status: 400}
	if err := DeadLetters(&out, "loki").HandleError(cause, oddBatch(`{"a":1}`, "panic")); err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	for l := range strings.Lines(out.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(l), &m); err != nil {
			t.Fatalf("%v: %s", err, l)
		}
		if _, err := time.Parse(time.RFC3339Nano, m["time"].(string)); err != nil {
			t.Error(err)
		}
		delete(m, "time")
		got = append(got, m)
	}
	text, _ := json.Marshal(got)
	want := `[{"destination":"loki","level":"WARN","reason":"entry \"too far\" behind","record":{"a":1},"record_time":"1970-01-01T00:00:01.000000001Z","status":400},` +
		`{"destination":"loki","level":"WARN","reason":"entry \"too far\" behind","record":{"raw":"panic"},"record_time":"1970-01-01T00:00:01.000000001Z","status":400,"stream":1}]`
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

func TestDeadLetterFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dead.jsonl")
	if err := os.WriteFile(path, []byte(`{"torn":`), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := OpenDeadLetterFile(path, "tcp")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.HandleError(batch.Permanent(errors.New("no")), lines(1)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := d.HandleError(testkit.ErrDown, lines(1)); err == nil {
		t.Error("no error after Close")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(all) != 3 || all[0] != `{"torn":` || !json.Valid([]byte(all[1])) || !json.Valid([]byte(all[2])) {
		t.Errorf("got %q", all)
	}

	fresh := filepath.Join(t.TempDir(), "dead.jsonl")
	d, err = OpenDeadLetterFile(fresh, "tcp")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if st, err := os.Stat(fresh); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, mode %v", err, st.Mode())
	}
	if _, err := OpenDeadLetterFile(filepath.Join(fresh, "x"), ""); err == nil {
		t.Error("no error for a path that cannot be")
	}
}

// formSink takes one content type only.
type formSink struct {
	testkit.Sink
	form string
	text strings.Builder
}

func (s *formSink) Accepts(form string) bool { return form == s.form }

func (s *formSink) Send(ctx context.Context, b *batch.Batch) error {
	s.text.Write(b.AppendTo(nil))
	return s.Sink.Send(ctx, b)
}

func TestToSink(t *testing.T) {
	plain := &formSink{form: ""}
	plain.Answer(nil)
	if _, err := ToSink(plain, &ToSinkOptions{Codec: oddCodec{}}); err == nil || !strings.Contains(err.Error(), "application/x-odd") {
		t.Errorf("a fallback to another content type: %v", err)
	}
	if _, err := ToSink(nil, nil); err == nil {
		t.Error("no error for a nil fallback")
	}
	h, err := ToSink(plain, &ToSinkOptions{Codec: oddCodec{}, Transcode: TranscodeJSON})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.HandleError(testkit.ErrDown, oddBatch(`{"a":1}`, "panic")); err != nil {
		t.Fatal(err)
	}
	if want := "{\"a\":1}\n{\"raw\":\"panic\"}\n"; plain.text.String() != want {
		t.Errorf("got %q", plain.text.String())
	}

	// What the fallback answers is what the handler answers.
	sink := testkit.NewSink(testkit.First(2))
	if h, err = ToSink(sink, nil); err != nil {
		t.Fatal(err)
	}
	if e := batch.Inspect(h.HandleError(testkit.ErrDown, lines(5))); e.Kind != batch.KindPrefix || e.Acked != 2 {
		t.Errorf("got %+v", e)
	}
}

// Records that the fallback drops are not handled.
func TestToSinkDrops(t *testing.T) {
	p, err := NewPoison(testkit.NewSink(testkit.Poisoned(func(r batch.Record) bool { return r.Ticket == 3 }, 400)), &PoisonOptions{OnError: new(testkit.Events).Add})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []*ToSinkOptions{nil, {Transcode: TranscodeJSON}} {
		h, err := ToSink(p, o)
		if err != nil {
			t.Fatal(err)
		}
		f, _ := mustFallback(t, testkit.NewSink(testkit.Fail(testkit.ErrDown)), h, FallbackOptions{})
		b := lines(5)
		if err := f.Send(t.Context(), b); err != nil || b.Tally.Handled != 4 || b.Tally.Dropped[batch.Poison] != 1 {
			t.Errorf("%v, %+v", err, b.Tally)
		}
	}
}

func TestLogTo(t *testing.T) {
	var out bytes.Buffer
	h := LogTo(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	if err := h.HandleError(testkit.ErrDown, lines(3)); !errors.Is(err, testkit.ErrDown) {
		t.Errorf("got %v: what was only logged stays pending", err)
	}
	if want := "level=ERROR msg=\"log records were not delivered\" error=\"destination is down\" records=3 bytes=96\n"; out.String() != want {
		t.Errorf("got %s", out.String())
	}
	if err := LogTo(slog.DiscardHandler).HandleError(testkit.ErrDown, lines(3)); !errors.Is(err, testkit.ErrDown) {
		t.Errorf("got %v", err)
	}
}

func TestFirstOf(t *testing.T) {
	var out bytes.Buffer
	no := &handlerLog{answer: func(_ int, b *batch.Batch, err error) error { b.Tally.Dropped[batch.Poison] = 1; return err }}
	never := &handlerLog{}
	f, _ := mustFallback(t, testkit.NewSink(testkit.Fail(testkit.ErrDown)), FirstOf(no, LogTo(slog.DiscardHandler), JSONLines(&out), never), FallbackOptions{})
	b := lines(3)
	if err := f.Send(t.Context(), b); err != nil || b.Tally.Handled != 3 || b.Tally.Dropped.Total() != 0 {
		t.Errorf("%v, %+v", err, b.Tally)
	}
	if strings.Count(out.String(), "\n") != 3 || no.calls() != 1 || never.calls() != 0 {
		t.Errorf("wrote %q, calls %d and %d", out.String(), no.calls(), never.calls())
	}
	part := &handlerLog{answer: func(int, *batch.Batch, error) error { return batch.Prefix(1, testkit.ErrDown) }}
	if e := batch.Inspect(FirstOf(part, never).HandleError(nil, lines(3))); e.Kind != batch.KindPrefix || never.calls() != 0 {
		t.Errorf("%+v, %d calls", e, never.calls())
	}
}
