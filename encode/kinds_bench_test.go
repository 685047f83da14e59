package encode

import (
	"log/slog"
	"testing"
	"time"
)

// BenchmarkKind measures a record with one attribute of each kind. The row "none" has no attribute.
func BenchmarkKind(b *testing.B) {
	ints := []int{1, 22, 333, 4444, 55555}
	for _, c := range []struct {
		name  string
		value slog.Value
	}{
		{"string", slog.StringValue("/api/v1/orders/4711/items")}, {"int", slog.IntValue(15342)}, {"float", slog.Float64Value(0.7312)},
		{"bool", slog.BoolValue(true)}, {"duration", slog.DurationValue(1234567)}, {"time", slog.TimeValue(benchTime.Add(time.Hour))},
		{"error", slog.AnyValue(errBench)}, {"ints", slog.AnyValue(&ints)}, {"appender", slog.AnyValue(&loggedUser{4711, "jane.doe", true})},
		{"struct", slog.AnyValue(&smallUser{4711, "jane.doe", true})}, {"group", slog.GroupValue(slog.Int("id", 4711), slog.String("name", "jane.doe"), slog.Bool("admin", true))},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := JSON(&Options{TimeKey: "-", LevelKey: "-", MessageKey: "-"}).Scope()
			attrs := make([]slog.Attr, 10)
			for i := range attrs {
				attrs[i] = slog.Attr{Key: "key", Value: c.value}
			}
			r := &Record{Time: benchTime, Attrs: attrs}
			dst := make([]byte, 0, 16<<10)
			for b.Loop() {
				dst, _, _ = s.Append(dst[:0], r)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10, "ns/attr")
		})
	}
}
