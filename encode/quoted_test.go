package encode

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
)

// A loud is a value whose JSON consists of n letters.
type loud struct{ n int }

func (l loud) MarshalJSON() ([]byte, error) {
	if l.n < 0 {
		panic("no length")
	}
	return []byte(`"` + strings.Repeat("a", l.n) + `"`), nil
}

// Values of every size are written whole, in every format.
func TestValuesOfEverySizeAreWrittenWhole(t *testing.T) {
	for _, e := range []Encoder{JSON(nil), Logfmt(nil), Console(nil)} {
		for _, n := range []int{0, 1, 255, 300, 3000, 5000, 60_000, 64 << 10, 200_000, -1} {
			r := &Record{Message: "m", Attrs: []slog.Attr{slog.Any("v", loud{n}), slog.Any("ints", []int{n, 2})}}
			out, _, err := e.Scope().Append(nil, r)
			if err != nil || n >= 0 && !strings.Contains(string(out), strings.Repeat("a", n)) {
				t.Errorf("%d: %v, %.60s", n, err, out)
			}
		}
	}
}

// Encoding values that logfmt and console write as quoted JSON does not allocate.
func TestQuotedValuesDoNotAllocate(t *testing.T) {
	race.Skip(t)
	for name, e := range map[string]Encoder{"logfmt": Logfmt(nil), "console": Console(nil), "json": JSON(nil)} {
		s := e.Scope()
		r := &Record{Message: "m", Attrs: []slog.Attr{
			slog.Any("ints", &[]int{1, 2, 3}), slog.Any("user", &smallUser{4711, "jane.doe", true}),
		}}
		dst := make([]byte, 0, 4096)
		if n := allocs.PerRun(100, func() { s.Append(dst, r) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// Values that logfmt writes as quoted JSON.
func BenchmarkQuoted(b *testing.B) {
	for _, c := range []struct {
		name  string
		e     Encoder
		value any
	}{
		{"json/map", JSON(nil), map[string]any{"id": 4711, "name": "jane.doe"}},
		{"logfmt/map", Logfmt(nil), map[string]any{"id": 4711, "name": "jane.doe"}},
		{"logfmt/struct", Logfmt(nil), &smallUser{4711, "jane.doe", true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := c.e.Scope()
			r := &Record{Message: "m", Attrs: []slog.Attr{slog.Any("v", c.value)}}
			dst := make([]byte, 0, 4096)
			b.ReportAllocs()
			for b.Loop() {
				s.Append(dst, r)
			}
		})
	}
}
