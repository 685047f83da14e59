package fluent_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/testkit"
)

// receiver starts a test server that prints the records it receives.
func receiver() (addr string, stop func()) {
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
		for {
			m, err := c.Next()
			if err != nil {
				return
			}
			for _, e := range m.Entries {
				fmt.Printf("%s %s\n", m.Tag, fluent.Codec().AppendJSON(nil, e, batch.Meta{}))
			}
			c.Ack(m.Chunk)
		}
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	f.Serve(l)
	return l.Addr().String(), f.Close
}

// To sends all records to a Forward server under one tag.
func ExampleTo() {
	addr, stop := receiver()
	defer stop()
	log, err := forebay.New(fluent.To(addr, "shop.web", forebay.Configure(func(c *fluent.Config) { c.Window = 8 })))
	if err != nil {
		fmt.Println(err)
		return
	}
	// A program would call log.Warn. A record with a fixed time makes the output the same in each
	// run.
	r := slog.NewRecord(time.Unix(1700000000, 0), slog.LevelWarn, "no stock", 0)
	r.AddAttrs(slog.String("region", "eu"))
	log.Slog().Handler().Handle(context.Background(), r)
	fmt.Println(log.Close())
	// Output:
	// shop.web {"time":"2023-11-14T22:13:20Z","record":{"level":"WARN","msg":"no stock","region":"eu"}}
	// <nil>
}

// These are the lines of docs/MIGRATING-fluent-logger-golang.md.
func ExampleNewLogger() {
	post := func(ctx context.Context, data map[string]string) error {
		logger, err := fluent.NewLogger(fluent.Config{Servers: []string{"logs:24224"}})
		if err != nil {
			return err
		}
		if err := logger.Post("tag", data); err != nil {
			return err
		}
		report, err := logger.Close(ctx) // report.Account accounts for every record
		fmt.Println(report.Account)
		return err
	}
	_ = post
}

func ExampleLogger_Post() {
	addr, stop := receiver()
	defer stop()
	l, err := fluent.NewLogger(fluent.Config{Servers: []string{addr}})
	if err != nil {
		panic(err)
	}
	type order struct {
		ID    string  `fluent:"id"`
		Total float64 `fluent:"total,omitempty"`
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l.PostWithTime("shop.order", at, order{ID: "A-17", Total: 12.5})
	l.PostWithTime("shop.order", at, map[string]string{"note": "by hand"})
	rep, err := l.Close(context.Background())
	fmt.Println(rep.Delivered, err)
	// Output:
	// shop.order {"time":"2026-01-02T03:04:05Z","record":{"id":"A-17","total":12.5}}
	// shop.order {"time":"2026-01-02T03:04:05Z","record":{"note":"by hand"}}
	// 2 <nil>
}

// Records of a server that is down go to standard output as JSON lines.
func ExampleNewLogger_errorHandler() {
	l, err := fluent.NewLogger(fluent.Config{
		Servers: []string{"127.0.0.1:1"},
	}, forebay.OnError(func(batch.Event) {}), forebay.Delivery(func(o *deliver.OutputOptions) { o.Deliver.Handler = deliver.JSONLines(os.Stdout) }))
	if err != nil {
		panic(err)
	}
	l.PostWithTime("app", time.Unix(0, 0), map[string]any{"n": 1})
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	rep, _ := l.Close(ctx)
	fmt.Println(rep.Account)
	// Output:
	// {"tag":"app","time":"1970-01-01T00:00:00Z","record":{"n":1}}
	// accepted=1 delivered=0 handled=1
}

// A Router encodes slog records for a Forward output.
func ExampleNewEncoder() {
	addr, stop := receiver()
	defer stop()
	l, err := fluent.NewLogger(fluent.Config{Servers: []string{addr}})
	if err != nil {
		panic(err)
	}
	enc, err := fluent.NewEncoder(&fluent.EncoderOptions{Tag: "app", TagKey: "tag"})
	if err != nil {
		panic(err)
	}
	router, err := forebay.NewRouter(forebay.Route(enc, forebay.Writer(l.Output)))
	if err != nil {
		panic(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := slog.NewRecord(at, slog.LevelInfo, "hello", 0)
	r.AddAttrs(slog.Int("n", 1), slog.String("tag", "app.greeting"))
	router.Handle(context.Background(), r)
	router.Close(context.Background())
	l.Close(context.Background())
	// Output:
	// app.greeting {"time":"2026-01-02T03:04:05Z","record":{"level":"INFO","msg":"hello","n":1}}
}

// A dry run writes the frames as text instead of sending them. The stream of an event identifies
// its tag, so events of other programs keep their tags.
func ExampleConfig_dryRun() {
	w, err := forebay.Open(fluent.To("", "app", forebay.Configure(func(c *fluent.Config) { c.NoAck, c.DryRun, c.Servers = true, os.Stdout, nil })))
	if err != nil {
		panic(err)
	}
	rec, stream, err := fluent.AppendJSONEvent(nil, "shop.web", time.Unix(0, 0), []byte(`{"n": 1}`))
	if err != nil {
		panic(err)
	}
	w.WriteRecord(rec, batch.Meta{Stream: stream})
	w.Close()
	// Output:
	// frame 1: PackedForward tag="shop.web" size=1 payload=15 bytes, message=34 bytes
	//   {"time":"1970-01-01T00:00:00Z","record":{"n":1}}
}

// New returns the Driver of an output, so that the program can read the Driver's counters.
func ExampleNew() {
	addr, stop := receiver()
	defer stop()
	driver, err := fluent.New(fluent.Config{Servers: []string{addr}, Tag: "app"})
	if err != nil {
		panic(err)
	}
	router, err := forebay.NewRouter(forebay.To(driver))
	if err != nil {
		panic(err)
	}
	r := slog.NewRecord(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), slog.LevelInfo, "started", 0)
	r.AddAttrs(slog.Int("port", 8080))
	router.Handle(context.Background(), r)
	router.Close(context.Background())
	fmt.Println(driver.Stats().Acks)
	// Output:
	// app {"time":"2026-01-02T03:04:05Z","record":{"level":"INFO","msg":"started","port":8080}}
	// 1
}

// Records that could not be sent are stored on disk. The next Logger delivers them before newer
// records.
func ExampleNewLogger_spool() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	c := fluent.Config{Servers: []string{"127.0.0.1:1"}, ReconnectMin: time.Millisecond}
	opts := []forebay.OutputOption{
		forebay.Spool(dir), forebay.OnError(func(batch.Event) {}),
		forebay.Delivery(func(o *deliver.OutputOptions) { o.Spool.MaxBytes, o.CloseTimeout = 1<<20, 200*time.Millisecond }),
	}
	l, err := fluent.NewLogger(c, opts...)
	if err != nil {
		panic(err)
	}
	l.PostWithTime("app", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), map[string]any{"n": 1})
	rep, _ := l.Close(context.Background())
	fmt.Println("in the spool:", rep.Pending.Spill)

	addr, stop := receiver()
	defer stop()
	c.Servers = []string{addr}
	if l, err = fluent.NewLogger(c, opts...); err != nil {
		panic(err)
	}
	rep, _ = l.Close(context.Background())
	fmt.Println("delivered:", rep.Delivered)
	// Output:
	// in the spool: 1
	// app {"time":"2026-01-02T03:04:05Z","record":{"n":1}}
	// delivered: 1
}

// AppendEvent encodes an event without a Logger.
func ExampleAppendEvent() {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	event, err := fluent.AppendEvent(nil, at, map[string]any{"n": 1})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", fluent.Codec().AppendJSON(nil, event, batch.Meta{}))
	// Output: {"time":"2026-01-02T03:04:05Z","record":{"n":1}}
}

// While the first server is down, its records go to the second one.
func ExampleFallbackTo() {
	addr, stop := receiver()
	defer stop()
	second, err := fluent.NewLogger(fluent.Config{Servers: []string{addr}})
	if err != nil {
		panic(err)
	}
	first, err := fluent.NewLogger(fluent.Config{
		Servers: []string{"127.0.0.1:1"},
	}, forebay.OnError(func(batch.Event) {}), forebay.Delivery(func(o *deliver.OutputOptions) { o.Deliver.Handler = fluent.FallbackTo(second) }))
	if err != nil {
		panic(err)
	}
	first.PostWithTime("app", time.Unix(0, 0), map[string]any{"n": 1})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	rep, _ := first.Close(ctx)
	fmt.Println(rep.Account)
	rep, _ = second.Close(ctx)
	fmt.Println(rep.Account)
	// Output:
	// accepted=1 delivered=0 handled=1
	// app {"time":"1970-01-01T00:00:00Z","record":{"n":1}}
	// accepted=1 delivered=1
}

// The error handler is a field of the Logger, as in fluent-logger-go.
func ExampleLogger_errorHandler() {
	logger, err := fluent.NewLogger(fluent.Config{Servers: []string{"127.0.0.1:1"}}, forebay.OnError(func(batch.Event) {}))
	if err != nil {
		panic(err)
	}
	logger.ErrorHandler = deliver.JSONLines(os.Stdout) // before the first Post
	logger.PostWithTime("app", time.Unix(0, 0), map[string]any{"n": 1})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	rep, _ := logger.Close(ctx)
	fmt.Println(rep.Account)
	// Output:
	// {"tag":"app","time":"1970-01-01T00:00:00Z","record":{"n":1}}
	// accepted=1 delivered=0 handled=1
}

// An output can be opened without a Router. It then accepts encoded events. The dictionary of the
// Driver maps their tags to streams.
func ExampleDriver_Traits() {
	addr, stop := receiver()
	defer stop()
	driver, err := fluent.New(fluent.Config{Servers: []string{addr}})
	if err != nil {
		panic(err)
	}
	out, err := forebay.Open(forebay.To(driver))
	if err != nil {
		panic(err)
	}
	for _, tag := range []string{"app.a", "app.b"} {
		stream := driver.Traits().Dictionary.Stream([]byte(tag))
		event, err := fluent.AppendEvent(nil, time.Unix(0, 0), "hello")
		if err != nil {
			panic(err)
		}
		out.WriteRecord(event, batch.Meta{Stream: stream})
	}
	rep, err := out.Shutdown(context.Background())
	fmt.Println(rep.Account, err)
	// Unordered output:
	// app.a {"time":"1970-01-01T00:00:00Z","record":{"msg":"hello"}}
	// app.b {"time":"1970-01-01T00:00:00Z","record":{"msg":"hello"}}
	// accepted=2 delivered=2 <nil>
}

func ExampleAppendAttrsEvent() {
	attrs := []slog.Attr{slog.String("msg", "disk full"), slog.Int("free", 0), slog.Group("host", slog.String("name", "db1"))}
	rec, stream, err := fluent.AppendAttrsEvent(nil, "shop.db", time.Unix(0, 0), attrs)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", fluent.Codec().AppendJSON(nil, rec, batch.Meta{Stream: stream}))
	// Output:
	// {"tag":"shop.db","time":"1970-01-01T00:00:00Z","record":{"msg":"disk full","free":0,"host":{"name":"db1"}}}
}
