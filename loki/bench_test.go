package loki

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/forebay-log/forebay/slab"
)

func BenchmarkHandler(b *testing.B) {
	for _, bc := range []struct {
		name  string
		attrs []slog.Attr
	}{
		{"simple", []slog.Attr{slog.Int("UserId", 42), slog.String("Action", "buy"), slog.String("ResourceId", "r-1"), slog.Float64("Elapsed", 1.25), slog.Bool("Ok", true), slog.Any("CorrelationId", someUUID)}},
		{"errors", []slog.Attr{slog.Int("OperationId", 1), slog.Any("err", newCounting("outer", newCounting("inner", nil)))}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			h := handlerFor(b, stored204{}, Config{Labels: map[string]string{"app": "x"}, Slab: &slab.Options{SlabBytes: 256 << 10, SlabCount: 16, WhenFull: slab.Block()}})
			r := slog.NewRecord(time.Now(), slog.LevelInfo, "User 1 performed buy on resource r-1", 0)
			r.AddAttrs(bc.attrs...)
			b.ReportAllocs()
			for b.Loop() {
				h.Handle(context.Background(), r)
			}
			if _, err := h.Close(context.Background()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
