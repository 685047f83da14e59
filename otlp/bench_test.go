package otlp

import (
	"log/slog"
	"testing"
	"time"

	"github.com/forebay-log/forebay/encode"
)

// BenchmarkRequest encodes 10,000 records and builds a request without compression.
func BenchmarkRequest(b *testing.B) {
	x := exporterFor(b, new(peer), nil)
	s := x.Encoder().Scope()
	r := &encode.Record{Time: time.Now(), Message: "User 42 performed purchase on resource res-42", Attrs: []slog.Attr{slog.Int("UserId", 42), slog.String("Action", "purchase"),
		slog.String("ResourceId", "res-42"), slog.Float64("Duration", 54.5), slog.Bool("Success", true)}}
	var recs, body []byte
	b.ReportAllocs()
	for b.Loop() {
		recs = recs[:0]
		for range 10_000 {
			recs, _, _ = s.Append(recs, r)
		}
		body = append(x.appendRequest(body[:0], len(recs)), recs...)
	}
	b.SetBytes(int64(len(body)))
}
