package examples

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"go.opentelemetry.io/otel/trace"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/loki"
)

// If the ids are added as in Example_openTelemetry, a Loki output can send them as structured
// metadata, so that Grafana links each line to its trace.
func Example_openTelemetryLoki() {
	driver, err := loki.New(loki.Config{
		URL:     "http://localhost:3100",
		Labels:  map[string]string{"app": "shop"},
		TraceID: "metadata",
		SpanID:  "metadata",
		Wire:    "json",
		HTTP:    httpclient.Options{Client: &http.Client{Transport: showingLoki{}}},
	})
	if err != nil {
		panic(err)
	}
	log, err := forebay.New(forebay.Context(spanIDs), forebay.To(driver))
	if err != nil {
		panic(err)
	}
	defer log.Close()

	ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{0x4b, 0xf9, 0x2f, 15: 1}, SpanID: trace.SpanID{7: 2},
	}))
	log.Slog().InfoContext(ctx, "paid", "cents", 1990)
	// Output: {"msg":"paid","cents":1990} map[span_id:0000000000000002 trace_id:4bf92f00000000000000000000000001]
}

// showingLoki is an HTTP client that prints the pushed entries instead of sending them.
type showingLoki struct{}

func (showingLoki) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	var push struct{ Streams []struct{ Values [][3]any } }
	if err := json.NewDecoder(r.Body).Decode(&push); err != nil {
		return nil, err
	}
	for _, s := range push.Streams {
		for _, v := range s.Values {
			fmt.Println(v[1], v[2])
		}
	}
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
}

// spanIDs appends the trace and span ids of the span in ctx.
func spanIDs(ctx context.Context, dst []slog.Attr) []slog.Attr {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		dst = append(dst, slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
	}
	return dst
}

// The trace and span ids of OpenTelemetry are added, outside of all groups, to each record that is
// logged with a context.
func Example_openTelemetry() {
	log, err := forebay.New(forebay.Context(spanIDs),
		forebay.Writer(os.Stdout, forebay.Encoder(encode.Logfmt(&encode.Options{TimeKey: "-"}))))
	if err != nil {
		panic(err)
	}
	defer log.Close()

	// A tracer returns such a context when it starts a span.
	ctx := trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{0x4b, 0xf9, 0x2f, 15: 1}, SpanID: trace.SpanID{7: 2},
	}))
	log.Slog().WithGroup("order").InfoContext(ctx, "paid", "cents", 1990)
	// Output: level=INFO msg=paid trace_id=4bf92f00000000000000000000000001 span_id=0000000000000002 order.cents=1990
}
