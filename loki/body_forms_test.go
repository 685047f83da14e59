package loki

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/values"
)

type groupValuer struct{ attrs []slog.Attr }

func (g groupValuer) LogValue() slog.Value { return slog.GroupValue(g.attrs...) }

type appender []slog.Attr

func (a appender) AppendAttrs(dst []slog.Attr) []slog.Attr { return append(dst, a...) }

// randomAttrs returns attributes of all kinds, with many duplicate keys.
func randomAttrs(rng *rand.Rand, depth int) []slog.Attr {
	attrs := make([]slog.Attr, rng.IntN(6))
	for i := range attrs {
		key := []string{"a", "b", "c", "a_", "_a", "a_chain", "b_stack", "a_verbose", "msg", "level", "", "key \"x\"", "é"}[rng.IntN(13)]
		n := 9
		if depth > 2 {
			n = 6
		}
		switch rng.IntN(n) {
		case 0:
			attrs[i] = slog.Int(key, rng.IntN(100))
		case 1:
			attrs[i] = slog.String(key, []string{"x", "quote \" and \\", "\n"}[rng.IntN(3)])
		case 2:
			attrs[i] = slog.Any(key, fmt.Errorf("outer \"x\": %w", errors.New("inner")))
		case 3:
			attrs[i] = slog.Duration(key, time.Millisecond)
		case 4:
			attrs[i] = slog.Any(key, []any{nil, someUUID, []string{"a", "\""}, time.Unix(1, 2)}[rng.IntN(4)])
		case 5:
			attrs[i] = slog.Float64(key, 1.5)
		case 6:
			attrs[i] = slog.Attr{Key: key, Value: slog.GroupValue(randomAttrs(rng, depth+1)...)}
		case 7:
			attrs[i] = slog.Any(key, groupValuer{randomAttrs(rng, depth+1)})
		case 8:
			attrs[i] = slog.Any(key, appender(randomAttrs(rng, depth+1)))
		}
	}
	return attrs
}

// uniqueKeys decodes a JSON text. It returns an error if an object has a duplicate key.
func uniqueKeys(d *json.Decoder) error {
	tok, err := d.Token()
	if err != nil {
		return err
	}
	switch tok {
	case json.Delim('{'):
		seen := map[any]bool{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return err
			}
			if seen[key] {
				return fmt.Errorf("%v occurs twice", key)
			}
			seen[key] = true
			if err := uniqueKeys(d); err != nil {
				return err
			}
		}
		_, err = d.Token()
	case json.Delim('['):
		for d.More() {
			if err := uniqueKeys(d); err != nil {
				return err
			}
		}
		_, err = d.Token()
	}
	return err
}

// The nested form of a line is the bare form with escapes. A line does not depend on whether its
// keys are known to be unique. The keys of each object are unique.
func TestLineFormsAreEqual(t *testing.T) {
	rng := testkit.Rand(testkit.Seed(t))
	for i := range 5000 {
		levelKey := []string{"", "level"}[rng.IntN(2)]
		v := values.NewValues(values.Style{Duration: values.DurationText, Errors: values.ErrorForm(values.ErrorForms[rng.IntN(5)])})
		b := newBody(keys{message: "msg", details: v.Details(), prefixed: i%2 == 0}, levelKey, &levelNames, v)
		var s encode.Scope = b.root
		for range rng.IntN(4) {
			if rng.IntN(2) == 0 {
				s = s.WithGroup([]string{"a", "g", "", "msg"}[rng.IntN(4)])
			} else {
				s = s.WithAttrs(randomAttrs(rng, 0))
			}
		}
		r := &encode.Record{Message: []string{"hi", "a \"quoted\" message\n"}[rng.IntN(2)], Attrs: randomAttrs(rng, 0)}
		bs := s.(*bodyScope)
		line := string(bs.append(nil, r, bare))
		var back string
		if err := json.Unmarshal([]byte(`"`+string(bs.append(nil, r, nested))+`"`), &back); err != nil || back != line {
			t.Fatalf("%d: %v\n%s\n%s", i, err, line, back)
		}
		if err := uniqueKeys(json.NewDecoder(strings.NewReader(line))); err != nil {
			t.Fatalf("%d: %v\n%s", i, err, line)
		}
		slow := &bodyWalker{values: b.values, scope: bs, cache: &r.Cache}
		members := string(slow.attrs([]byte(","), r.Attrs))
		fast := &bodyWalker{values: b.values, scope: bs, cache: &r.Cache}
		if got := string(fast.object([]byte(","), r.Attrs)); got != members {
			t.Fatalf("%d: got\n%s want\n%s", i, got, members)
		}
	}
}
