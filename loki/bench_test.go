package loki

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/encode"
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
			h := handlerFor(b, stored204{}, Config{Labels: map[string]string{"app": "x"}, Line: Line{Errors: "object"}}, forebay.WhenFull("block"))
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

// BenchmarkEncode measures the encoding of entries without sending them.
func BenchmarkEncode(b *testing.B) {
	simple := []slog.Attr{slog.Int("UserId", 42), slog.String("Action", "purchase"), slog.String("ResourceId", "res-42"), slog.Float64("Duration", 54.5), slog.Bool("Success", true), slog.Any("CorrelationId", someUUID)}
	failed := []slog.Attr{slog.Int("OperationId", 1), slog.String("Service", "billing"), slog.Bool("Retryable", true), slog.Any("Exception", newCounting("operation failed", newCounting("connection refused", nil)))}
	for _, bc := range []struct {
		name  string
		c     Config
		attrs []slog.Attr
	}{
		{"simple/protobuf", Config{}, simple}, {"simple/json", Config{Wire: wireJSON}, simple}, {"exception/protobuf", Config{Line: Line{Errors: "object"}}, failed}, {"exception/json", Config{Wire: wireJSON, Line: Line{Errors: "object"}}, failed},
		{"simple/labels", Config{LabelAttrs: []string{"Action", "Success"}}, simple}, {"simple/metadata", Config{MetadataAll: true}, simple}, {"exception/metadata", Config{MetadataAll: true, Line: Line{Errors: "object"}}, failed}, {"exception/text", Config{}, failed}, {"exception/chain", Config{Line: Line{Errors: "chain"}}, failed},
		{"groups/metadata", Config{MetadataAll: true}, []slog.Attr{slog.Group("a", "b", 1, slog.Group("c", "d", "e"), "f", true)}},
		{"simple/logfmt", Config{Line: Line{Body: bodyLogfmt}}, simple}, {"simple/logfmt metadata", Config{MetadataAll: true, Line: Line{Body: bodyLogfmt}}, simple},
	} {
		b.Run(bc.name, func(b *testing.B) {
			scope := sinkFor(b, stored204{}, bc.c).Encoder().Scope()
			r := &encode.Record{Time: time.Now(), Message: "User 42 performed purchase on resource res-42", Attrs: bc.attrs}
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				dst, _, _ = scope.Append(dst[:0], r)
			}
		})
	}
}
