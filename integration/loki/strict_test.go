package loki

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	ours "github.com/forebay-log/forebay/loki"
)

// TestStrict is about what Loki refuses or keeps only in part.
func TestStrict(t *testing.T) {
	s := start(t)
	now := time.Now()

	t.Run("values of labels", func(t *testing.T) {
		values := []string{"caf\xe9", "a\ufffdb", "a\x00b", "\x7f", "\u0085", "\u2028", "`'\"\\", "{}, b=\"c\"", "\ufeff", "🙂", "\r\n\t\v\f\a\b", strings.Repeat("é", 1024)}
		for _, w := range []ours.Wire{ours.Protobuf, ours.JSON} {
			r := &records{t: t, s: s.sink(ours.Config{Wire: w, Labels: labels("test", "values", "wire", string(w), "host", "caf\xe9"), LabelAttrs: []string{"x"}})}
			for i, v := range values {
				r.add(now.Add(time.Duration(i)), 0, fmt.Sprint(i), slog.String("x", v))
			}
			if err := r.send(); err != nil {
				t.Fatal(err)
			}
			for _, e := range s.await("", fmt.Sprintf(`{test="values",wire="%s"}`, w), now.Add(-time.Minute), len(values)) {
				var i int
				fmt.Sscanf(e.line, `{"Message":"%d"`, &i)
				want := strings.ReplaceAll(strings.ToValidUTF8(values[i], "?"), "\ufffd", "?")
				if e.labels["x"] != want || e.labels["host"] != "caf?" {
					t.Errorf("%q came as %q, %q", values[i], e.labels["x"], e.labels["host"])
				}
			}
		}
	})

	t.Run("too far behind within a second", func(t *testing.T) {
		for _, n := range []int{10, 40} { // the answer names ten at most
			test := fmt.Sprint("second", n)
			r := &records{t: t, s: s.sink(ours.Config{Labels: labels("test", test)})}
			base := now.Truncate(time.Second).Add(500 * time.Millisecond)
			r.add(base, 0, "newest")
			if err := r.send(); err != nil {
				t.Fatal(err)
			}
			r.Reset()
			for i := range n {
				r.add(base.Add(-time.Hour+time.Duration(i-n/2)*time.Second/time.Duration(n)), 0, fmt.Sprint("e", i))
			}
			e := batch.Inspect(r.send())
			if e.Kind != batch.KindReject || len(e.Records) != n/2 || slices.Max(e.Records) != n/2-1 {
				t.Errorf("%d: %v %v", n, e.Kind, e.Records)
			}
			if by := r.s.Stats().ByReason; int(by[ours.TooFarBehind]) != n/2 {
				t.Errorf("%d: counted %v", n, by)
			}
			s.await("", fmt.Sprintf(`{test="%s"}`, test), now.Add(-2*time.Hour), n/2+1)
		}
	})
}
