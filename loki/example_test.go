package loki_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/loki"
)

// server is a Loki that takes everything.
func server() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	}))
}

// Everything goes to Loki, errors to standard output, too.
func ExampleTo() {
	srv := server()
	defer srv.Close()

	log, err := forebay.New(
		loki.To(srv.URL, loki.Label("app", "shop"), loki.Configure(func(c *loki.Config) { c.LabelAttrs = []string{"region"} })),
		forebay.Console(os.Stdout, forebay.Level(slog.LevelError), forebay.Encoder(encode.Console(&encode.Options{TimeKey: "-"}))))
	if err != nil {
		fmt.Println(err)
		return
	}
	log.Error("no stock", slog.String("region", "eu"))
	fmt.Println(log.Close())
	// Output:
	// ERROR no stock  region=eu
	// <nil>
}

func ExampleNewHandler() {
	srv := server()
	defer srv.Close()

	h, err := loki.NewHandler(loki.Config{URL: srv.URL, Labels: map[string]string{"app": "shop"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	log := slog.New(h)
	log.Info("order placed", "order", 4711)

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	report, err := h.Close(ctx)
	fmt.Println(report.Account, err)
	// Output: accepted=1 delivered=1 <nil>
}

// A Sink is one of several outputs of a Router.
func ExampleNew() {
	srv := server()
	defer srv.Close()

	sink, err := loki.New(loki.Config{URL: srv.URL, Labels: map[string]string{"app": "shop"}, LabelAttrs: []string{"region"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := forebay.NewRouter(
		forebay.Route(sink.Encoder(), sink.Output(slog.LevelInfo)),
		forebay.Route(encode.Logfmt(&encode.Options{TimeKey: "-"}), forebay.Output(slog.LevelError, os.Stdout)))
	if err != nil {
		fmt.Println(err)
		return
	}
	slog.New(r).Error("no stock", "region", "eu")
	report, _ := r.Close(context.Background())
	fmt.Println(report.Outputs[0].Name, report.Outputs[0].Delivered)
	// Output:
	// level=ERROR msg="no stock" region=eu
	// loki 1
}

func ExampleNewPusher() {
	srv := server()
	defer srv.Close()

	pusher, err := loki.NewPusher(loki.Config{URL: srv.URL, Labels: map[string]string{"app": "shop"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	rec, meta, _ := pusher.Encoder().Scope().Append(nil, &encode.Record{Time: time.Now(), Message: "hi"})
	var b batch.Builder
	b.Append(rec, 0, meta)
	send, closePusher := deliver.Direct(pusher)
	defer closePusher(context.Background())
	outcome := send(context.Background(), b.Batch(pusher.Encoder().Codec()))
	fmt.Println(outcome.Err())
	// Output: <nil>
}

// Lines as serilog-sinks-grafana-loki writes them.
func ExampleConfig_serilog() {
	c := loki.Config{
		URL: "http://localhost:3100", Labels: map[string]string{"app": "shop"},
		MessageKey: "Message", Errors: "exception", Collisions: "prefix",
		TraceIDKey: "TraceId", SpanIDKey: "SpanId",
		BatchRecords: 1000, Retry: &deliver.RetryOptions{MaxAge: 10 * time.Minute},
	}
	c.MaxAge, c.DryRun = -1, os.Stdout
	h, err := loki.NewHandler(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	r := slog.NewRecord(time.Unix(1, 0), slog.LevelError, "cannot place order", 0)
	r.Add("Exception", fmt.Errorf("no stock: %w", io.EOF), "TraceId", "4bf9", "Message", "a property")
	h.Handle(context.Background(), r)
	h.Close(context.Background())
	// Output:
	// POST http://localhost:3100/loki/api/v1/push {app="shop", level="error"}: 1 entries, 225 bytes
	//   {"time":"1970-01-01T00:00:01Z","line":{"Message":"cannot place order","Exception":{"Type":"*fmt.wrapError","Message":"no stock: EOF","InnerException":{"Type":"*errors.errorString","Message":"EOF"}},"TraceId":"4bf9","_Message":"a property"}}
}

// A dry run shows what would be sent.
func ExampleConfig_dryRun() {
	sink, err := loki.New(loki.Config{
		URL: "http://localhost:3100", Labels: map[string]string{"app": "shop"}, MaxAge: -1, DryRun: os.Stdout,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	rec, meta, _ := sink.Encoder().Scope().Append(nil, &encode.Record{Time: time.Unix(1, 0), Message: "hi", Attrs: []slog.Attr{slog.Int("n", 1)}})
	sink.WriteRecord(rec, meta)
	sink.Close()
	// Output:
	// POST http://localhost:3100/loki/api/v1/push {app="shop", level="info"}: 1 entries, 42 bytes
	//   {"time":"1970-01-01T00:00:01Z","line":{"msg":"hi","n":1}}
}
