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
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/loki"
)

// server returns a Loki that accepts every push.
func server() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	}))
}

// All records go to Loki. Errors also go to standard output.
func ExampleTo() {
	srv := server()
	defer srv.Close()

	log, err := forebay.New(
		loki.To(srv.URL, loki.Label("app", "shop"), forebay.Configure(func(c *loki.Config) { c.LabelAttrs = []string{"region"} })),
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

// New returns the Driver of an output, so that the program can read the Driver's counters.
func ExampleNew() {
	srv := server()
	defer srv.Close()

	driver, err := loki.New(loki.Config{URL: srv.URL, Labels: map[string]string{"app": "shop"}, LabelAttrs: []string{"region"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	log, err := forebay.New(forebay.To(driver, forebay.Buffer(1<<20)))
	if err != nil {
		fmt.Println(err)
		return
	}
	log.Error("no stock", slog.String("region", "eu"))
	fmt.Println(log.Close())
	fmt.Println(driver.Stats().Requests, driver.Stats().Failed)
	// Output:
	// <nil>
	// 1 0
}

// The keys and labels are those that serilog-sinks-grafana-loki writes.
func ExampleConfig_serilog() {
	c := loki.Config{
		URL:          "http://localhost:3100",
		Labels:       map[string]string{"app": "shop"},
		TraceIDKey:   "TraceId",
		SpanIDKey:    "SpanId",
		BatchRecords: 1000,
		Line:         loki.Line{MessageKey: "Message", Errors: "exception", Collisions: "prefix"},
	}
	c.Limits.MaxAge, c.DryRun = -1, os.Stdout
	retry := forebay.Delivery(func(o *deliver.OutputOptions) { o.Deliver.Retry = &deliver.RetryOptions{MaxAge: 10 * time.Minute} })
	log, err := forebay.New(loki.To(c.URL, forebay.Configure(func(to *loki.Config) { *to = c }), retry))
	if err != nil {
		fmt.Println(err)
		return
	}
	r := slog.NewRecord(time.Unix(1, 0), slog.LevelError, "cannot place order", 0)
	r.Add("Exception", fmt.Errorf("no stock: %w", io.EOF), "TraceId", "4bf9", "Message", "a property")
	log.Slog().Handler().Handle(context.Background(), r)
	log.Close()
	// Output:
	// POST http://localhost:3100/loki/api/v1/push {app="shop", level="error"}: 1 entries, 225 bytes
	//   {"time":"1970-01-01T00:00:01Z","line":{"Message":"cannot place order","Exception":{"Type":"*fmt.wrapError","Message":"no stock: EOF","InnerException":{"Type":"*errors.errorString","Message":"EOF"}},"TraceId":"4bf9","_Message":"a property"}}
}

// A dry run prints the requests instead of sending them.
func ExampleConfig_dryRun() {
	log, err := forebay.New(loki.To("http://localhost:3100", loki.Label("app", "shop"), forebay.Configure(func(c *loki.Config) {
		c.DryRun, c.Limits.MaxAge = os.Stdout, -1
	})))
	if err != nil {
		fmt.Println(err)
		return
	}
	log.Slog().Handler().Handle(context.Background(), slog.NewRecord(time.Unix(1, 0), slog.LevelInfo, "hi", 0))
	log.Close()
	// Output:
	// POST http://localhost:3100/loki/api/v1/push {app="shop", level="info"}: 1 entries, 36 bytes
	//   {"time":"1970-01-01T00:00:01Z","line":{"msg":"hi"}}
}
