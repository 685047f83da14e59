package values

import (
	"errors"
	"log/slog"
	"math"
	"testing"
	"time"
	"unsafe"
)

// attrsJSON writes every kind of value in the same way as the methods of slog.Value do, which it
// calls if the layout of slog.Value is unknown.
func TestRawValues(t *testing.T) {
	if rawText == rawNumber {
		t.Error("this version of log/slog has another layout of Value; adapt rawValue")
	}
	var attrs []slog.Attr
	for _, s := range drawn {
		attrs = append(attrs, slog.String("s", s), slog.Any("s", s))
	}
	for _, n := range []int64{0, 9, -1, 10, 99, 1e4, -12345678, 1e8, math.MinInt64, math.MaxInt64} {
		attrs = append(attrs, slog.Int64("i", n), slog.Uint64("u", uint64(n)), slog.Duration("d", time.Duration(n)),
			slog.Float64("f", float64(n)/3), slog.Any("a", n))
	}
	attrs = append(attrs, slog.Bool("b", true), slog.Bool("b", false), slog.Float64("f", math.NaN()), slog.Float64("f", math.Copysign(0, -1)),
		slog.Time("t", time.Unix(1, 2)), slog.Time("t", time.Time{}), slog.Time("t", time.Unix(1<<40, 0)), slog.Any("id", uuidValuer{}), slog.Any("p", &logValuer{}),
		slog.Any("l", slog.LevelWarn), slog.Any("e", errors.New("text")), slog.Any("o", &struct{ A int }{1}), slog.Any("x", []any{1, slog.KindBool}), slog.Group("g", "a", 1, "b", "two"), slog.Group("g"), slog.Any("n", nil), slog.Attr{},
		slog.Any("k", slog.KindInt64), slog.Any("v", slog.Int64Value(3)), slog.Any("l", logValuer{slog.StringValue("text")}), slog.Any("l", logValuer{slog.IntValue(4)}))
	encode := func(a slog.Attr) string {
		w := Walker{Leaf: Leaf{Style: &Style{Form: FormJSON}, Cache: new(Cache), Form: FormJSON}, In: &outermost}
		return string(w.attrsJSON([]byte("{"), []slog.Attr{a}))
	}
	var raw []string
	for _, a := range attrs {
		raw = append(raw, encode(a))
	}
	defer func(text, number unsafe.Pointer) { rawText, rawNumber = text, number }(rawText, rawNumber)
	rawText = unsafe.Pointer(new(rawValue))
	rawNumber = rawText
	for i, a := range attrs {
		if want := encode(a); raw[i] != want {
			t.Errorf("%v: %s, want %s", a, raw[i], want)
		}
	}
}

// uuidValuer has the kind UUID, whose methods are not called, but slog calls LogValue.
type uuidValuer [16]byte

func (uuidValuer) String() string { return "uuid" }

func (uuidValuer) LogValue() slog.Value { return slog.StringValue("id") }

type logValuer struct{ v slog.Value }

func (l logValuer) LogValue() slog.Value { return l.v }
