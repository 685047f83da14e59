package loki

import (
	"context"
	"log/slog"
	"net/http"
	"testing"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/httpclient"
)

type traceKey struct{}

// traceOf appends the trace id in ctx to dst, like a function of a tracing library.
func traceOf(ctx context.Context, dst []slog.Attr) []slog.Attr {
	if id, ok := ctx.Value(traceKey{}).(string); ok {
		dst = append(dst, slog.String("TraceId", id), slog.String("SpanId", "s-"+id))
	}
	return dst
}

// Attributes from a context are outside the groups of the logger. Depending on the Config, trace_id
// is written to the line, to the metadata, or not at all.
func TestContextAttributesAreOutsideGroups(t *testing.T) {
	ctx := context.WithValue(t.Context(), traceKey{}, "t1")
	for _, tt := range []struct {
		where, want string
		meta        map[string]string
	}{
		{"body", `{"msg":"m","TraceId":"t1","SpanId":"s-t1","more":1,"g":{"a":1}}`, nil},
		{"metadata", `{"msg":"m","more":1,"g":{"a":1}}`, map[string]string{"TraceId": "t1", "SpanId": "s-t1"}},
		{"none", `{"msg":"m","more":1,"g":{"a":1}}`, nil},
	} {
		p := new(peer)
		h, err := newHandler(Config{
			URL:        "http://loki.test",
			Labels:     map[string]string{"app": "x"},
			TraceIDKey: "TraceId",
			SpanIDKey:  "SpanId",
			TraceID:    tt.where,
			SpanID:     tt.where,
			HTTP:       httpclient.Options{Client: &http.Client{Transport: p}},
		}, forebay.Context(traceOf),
			forebay.Context(func(_ context.Context, dst []slog.Attr) []slog.Attr { return append(dst, slog.Int("more", 1)) }))
		if err != nil {
			t.Fatal(err)
		}
		slog.New(h).WithGroup("g").InfoContext(ctx, "m", "a", 1)
		slog.New(h).Info("without")
		if _, err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
		got := p.requests()[0].streams[0].Entries
		if got[0].Line != tt.want || len(got[0].Meta) != len(tt.meta) || got[0].Meta["SpanId"] != tt.meta["SpanId"] || got[0].Meta["TraceId"] != tt.meta["TraceId"] {
			t.Errorf("%s: got %s %v, want %s %v", tt.where, got[0].Line, got[0].Meta, tt.want, tt.meta)
		}
		if got[1].Line != `{"msg":"without","more":1}` || len(got[1].Meta) != 0 {
			t.Errorf("without a span: %s %v", got[1].Line, got[1].Meta)
		}
	}
}
