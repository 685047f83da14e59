package forebay_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
)

// Text on the console, and JSON in a file that rotates at 100 MiB.
func ExampleNew() {
	dir, err := os.MkdirTemp("", "forebay")
	check(err)
	defer os.RemoveAll(dir)

	log, err := forebay.New(
		forebay.Console(os.Stdout, forebay.Encoder(encode.Console(&encode.Options{TimeKey: "-"}))),
		forebay.File(dir+"/app.log", forebay.Rotate(100<<20, 7), forebay.Level(slog.LevelWarn)))
	check(err)
	log.Info("listening", slog.Int("port", 8080))
	log.Slog().Warn("disk almost full", "free", "1.5GB")
	check(log.Close())
	b, err := os.ReadFile(dir + "/app.log")
	check(err)
	fmt.Println(bytes.Count(b, []byte("\n")), "line in the file")
	// Output:
	// INFO  listening  port=8080
	// WARN  disk almost full  free=1.5GB
	// 1 line in the file
}

// New reports all errors of the options together, each with a remedy.
func ExampleNew_faults() {
	_, err := forebay.New(
		forebay.File("no/such/directory/app.log"),
		forebay.Console(os.Stderr, forebay.Rotate(100<<20, 7)),
		forebay.Writer(os.Stdout, forebay.WhenFull("spill")))
	fmt.Println(err)
	// Output:
	// forebay: cannot make router: output 1 (forebay.File): file: cannot open "no/such/directory/app.log": its directory does not exist: no such file or directory; create it
	// forebay: cannot make router: output 2 (forebay.Console): forebay.Rotate does not apply to it; leave it out
	// forebay: cannot make router: output 3 (forebay.Writer): WhenFull is "spill", but there is no Spool; add Spool(dir)
}

// JSON lines on standard output, as usual in containers.
func ExampleWriter() {
	log, err := forebay.New(forebay.Writer(os.Stdout, forebay.Encoder(noTime)))
	check(err)
	log.Info("listening", slog.Int("port", 8080))
	check(log.Close())
	// Output:
	// {"level":"INFO","msg":"listening","port":8080}
}

// A custom destination gets memory, retries, a circuit breaker and a spool.
func ExampleTo() {
	dir, err := os.MkdirTemp("", "forebay")
	check(err)
	defer os.RemoveAll(dir)
	dest := deliver.SendFunc(deliver.Traits{}, func(_ context.Context, b *batch.Batch) batch.Outcome {
		for _, rec := range b.All() {
			fmt.Printf("%s", rec.Data)
		}
		return batch.Outcome{} // all records are delivered
	})
	log, err := forebay.New(forebay.To(dest, forebay.Encoder(noTime), forebay.Spool(dir), forebay.WhenFull("spill")))
	check(err)
	log.Info("hello")
	check(log.Close())
	// Output:
	// {"level":"INFO","msg":"hello"}
}

// A package with a destination can define options for it.
func ExampleDriver() {
	type config struct {
		url   string
		token string
	}
	to := func(url string, opts ...forebay.OutputOption) forebay.OutputSpec {
		return forebay.Driver("webhook.To", config{url: url}, func(c *config, s *forebay.Setup) (deliver.Destination, error) {
			if s.Name == "" {
				s.Name = "webhook"
			}
			return deliver.SendFunc(deliver.Traits{}, func(ctx context.Context, b *batch.Batch) batch.Outcome {
				fmt.Println(http.MethodPost, c.url, "with a token of", len(c.token), "bytes,", b.Len(), "record")
				return batch.Outcome{}
			}), nil
		}, opts...)
	}
	token := func(token string) forebay.OutputOption {
		return forebay.DriverOption("webhook.Token", func(c *config) error {
			c.token = token
			return nil
		})
	}

	log, err := forebay.New(to("https://hooks.example", token("secret"), forebay.Level(slog.LevelError)))
	check(err)
	log.Error("cannot bind")
	check(log.Close())
	// Output:
	// POST https://hooks.example with a token of 6 bytes, 1 record
}

// A service that stops on SIGTERM, see docs/EXITS.md.
func Example_stop() {
	main := func() {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		log, err := forebay.New(forebay.File("app.log"))
		if err != nil {
			panic(err)
		}
		defer log.Close()
		defer log.Recover() // runs before Close
		slog.SetDefault(log.Slog())
		<-ctx.Done()
		slog.Info("stopping")
	}
	_ = main
}

// Lines of the standard log get slog.LevelError, so that an output for errors accepts them; see
// docs/EXITS.md.
func Example_standardLogLevel() {
	main := func() {
		log, err := forebay.New(forebay.File("errors.log", forebay.Level(slog.LevelError)))
		if err != nil {
			panic(err)
		}
		defer log.Close()
		slog.SetDefault(log.Slog())
		slog.SetLogLoggerLevel(slog.LevelError)
	}
	_ = main
}

// A new file begins each day, in UTC. Old files are compressed, and the last seven are kept.
func ExampleRotateEvery() {
	dir, err := os.MkdirTemp("", "forebay")
	check(err)
	defer os.RemoveAll(dir)

	log, err := forebay.New(forebay.File(dir+"/app.log",
		forebay.RotateEvery(24*time.Hour, 7), forebay.Compress("gzip"), forebay.Encoder(noTime)))
	check(err)
	log.Info("hello")
	check(log.Close())
	text, err := os.ReadFile(dir + "/app.log")
	check(err)
	fmt.Printf("%s", text)
	// Output: {"level":"INFO","msg":"hello"}
}

func ExampleDurations() {
	log, err := forebay.New(forebay.Durations("text"), forebay.Writer(os.Stdout, forebay.Encoder(noTime)))
	check(err)
	log.Info("request", slog.Duration("took", 1500*time.Millisecond))
	log.Close()
	// Output: {"level":"INFO","msg":"request","took":"1.5s"}
}

// A call that logs an error returns when the record is delivered, or after 250 ms.
func ExampleSyncLevel() {
	log, err := forebay.New(forebay.SyncLevel(slog.LevelError), forebay.Writer(os.Stdout, forebay.Encoder(noTime)))
	check(err)
	log.Error("cannot bind port", slog.Int("port", 8080))
	log.Close()
	// Output: {"level":"ERROR","msg":"cannot bind port","port":8080}
}
