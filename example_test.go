package forebay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
)

// noTime is an encoder of JSON without times, so that the output is the same in every run.
var noTime = encode.JSON(&encode.Options{TimeKey: "-"})

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Two outputs share an encoder. All records are buffered in memory and written to a file in the
// background, so that the program does not wait for the disk. Errors are also written to standard
// output at once.
func ExampleNewRouter() {
	dir, err := os.MkdirTemp("", "forebay")
	check(err)
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "app.log")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	check(err)
	buffered, err := deliver.NewOutput(deliver.ToWriteCloser(f), nil)
	check(err)

	r, err := forebay.NewRouter(forebay.Route(noTime,
		forebay.Writer(buffered, forebay.CloseWriter()),
		forebay.Writer(os.Stdout, forebay.Direct(), forebay.Level(slog.LevelError))))
	check(err)

	log := slog.New(r)
	log.Info("starting", "port", 8080)
	log.Error("cannot bind", "port", 8080)

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = r.Close(ctx)
	check(err)
	content, err := os.ReadFile(name)
	check(err)
	fmt.Printf("%s:\n%s", filepath.Base(name), content)
	// Output:
	// {"level":"ERROR","msg":"cannot bind","port":8080}
	// app.log:
	// {"level":"INFO","msg":"starting","port":8080}
	// {"level":"ERROR","msg":"cannot bind","port":8080}
}

// NewRouter reports all faults of the options together.
func ExampleNewRouter_faults() {
	_, err := forebay.NewRouter(
		forebay.Route(noTime, forebay.Writer(nil, forebay.Direct())),
		forebay.Route(nil, forebay.Writer(os.Stdout, forebay.Direct(), forebay.BusyTimeout(-1))))
	fmt.Println(err)
	// Output:
	// forebay: cannot make router: route 1, output 1 (forebay.Writer): the writer is nil; give one such as os.Stderr, or leave the output out
	// forebay: cannot make router: route 2: the encoder is nil; give one, or leave it out for the default
	// forebay: cannot make router: route 2, output 1 (forebay.Writer): BusyTimeout -1ns is not positive; the default is 250ms
}

func ExampleRoute() {
	// Each record is written in two formats.
	r, err := forebay.NewRouter(
		forebay.Route(noTime, forebay.Writer(os.Stdout, forebay.Direct())),
		forebay.Route(encode.Logfmt(&encode.Options{TimeKey: "-"}), forebay.Writer(os.Stdout, forebay.Direct())))
	check(err)
	slog.New(r).Info("hello", "n", 1)
	// Output:
	// {"level":"INFO","msg":"hello","n":1}
	// level=INFO msg=hello n=1
}

// A level can change while the program runs.
func ExampleDirect() {
	level := new(slog.LevelVar)
	r, err := forebay.NewRouter(forebay.Route(noTime, forebay.Writer(os.Stdout, forebay.Direct(), forebay.Level(level), forebay.Name("console"))))
	check(err)
	log := r.Logger()
	log.Debug("one")
	level.Set(slog.LevelDebug)
	log.Debug("two")
	// Output:
	// {"level":"DEBUG","msg":"two"}
}

func ExampleCloseWriter() {
	f, err := os.CreateTemp("", "forebay")
	check(err)
	defer os.Remove(f.Name())
	r, err := forebay.NewRouter(forebay.Route(noTime, forebay.Writer(f, forebay.Direct(), forebay.CloseWriter(), forebay.Name("file"))))
	check(err)
	r.Logger().Info("hello")
	rep, err := r.Close(context.Background())
	check(err)
	fmt.Println(rep)
	_, err = f.WriteString("more")
	fmt.Println(errors.Is(err, os.ErrClosed))
	// Output:
	// file: accepted=1 delivered=1
	// true
}

func ExampleLogger() {
	r, err := forebay.NewRouter(forebay.Route(noTime, forebay.Writer(os.Stdout, forebay.Direct())))
	check(err)
	log := r.Logger().With(slog.String("service", "shop"))
	log.Info("order", slog.Int("items", 3), slog.Duration("took", time.Millisecond))
	req := log.WithGroup("request")
	req.Warn("slow", slog.String("path", "/cart"))
	req.Debug("not shown")
	// Output:
	// {"level":"INFO","msg":"order","service":"shop","items":3,"took":1000000}
	// {"level":"WARN","msg":"slow","service":"shop","request":{"path":"/cart"}}
}

func ExampleLogger_Slog() {
	r, err := forebay.NewRouter(forebay.Route(noTime, forebay.Writer(os.Stdout, forebay.Direct())))
	check(err)
	log := r.Logger().With(slog.String("service", "shop"))
	log.Slog().Info("order", "items", 3)
	// Output:
	// {"level":"INFO","msg":"order","service":"shop","items":3}
}

type traceKey struct{}

func ExampleContext() {
	trace := func(ctx context.Context, dst []slog.Attr) []slog.Attr {
		if id, ok := ctx.Value(traceKey{}).(string); ok {
			dst = append(dst, slog.String("trace_id", id))
		}
		return dst
	}
	r, err := forebay.NewRouter(forebay.Context(trace), forebay.Route(noTime, forebay.Writer(os.Stdout, forebay.Direct())))
	check(err)
	ctx := context.WithValue(context.Background(), traceKey{}, "4bf92f35")
	slog.New(r).InfoContext(ctx, "hello", "n", 1)
	r.Logger().WithContext(ctx).Info("hello")
	// Output:
	// {"level":"INFO","msg":"hello","trace_id":"4bf92f35","n":1}
	// {"level":"INFO","msg":"hello","trace_id":"4bf92f35"}
}

// A flaky is a writer whose first write fails.
type flaky struct{ n int }

func (f *flaky) Write(p []byte) (int, error) {
	if f.n++; f.n == 1 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func ExampleOnError() {
	told := make(chan batch.Event, 10)
	r, err := forebay.NewRouter(
		forebay.OnError(func(ev batch.Event) { told <- ev }),
		forebay.Route(noTime, forebay.Writer(&flaky{}, forebay.Direct(), forebay.Name("disk"))))
	check(err)
	log := r.Logger()
	log.Info("one")
	log.Info("two")
	for range 2 {
		ev := <-told
		fmt.Println(ev.Output, ev.Op, ev.Err)
	}
	fmt.Println(r.Stats())
	// Output:
	// disk write disk full
	// disk recovered <nil>
	// disk: accepted=2 delivered=1 dropped=1{failed=1} errors=1
}

func ExampleRouter_Stats() {
	r, err := forebay.NewRouter(forebay.Route(noTime,
		forebay.Writer(io.Discard, forebay.Direct(), forebay.Name("all")),
		forebay.Writer(io.Discard, forebay.Direct(), forebay.Level(slog.LevelError), forebay.Name("errors"))))
	check(err)
	log := r.Logger()
	log.Info("one")
	log.Error("two")
	for _, o := range r.Stats().Outputs {
		fmt.Println(o)
	}
	// Output:
	// all: accepted=2 delivered=2
	// errors: accepted=1 delivered=1
}

func ExampleRouter_Flush() {
	var dst strings.Builder
	buffered, err := deliver.NewOutput(deliver.ToWriter(&dst), nil)
	check(err)
	r, err := forebay.NewRouter(forebay.Route(noTime, forebay.Writer(buffered, forebay.CloseWriter())))
	check(err)
	defer r.Close(context.Background())
	r.Logger().Info("hello")
	check(r.Flush(context.Background()))
	fmt.Print(dst.String())
	// Output:
	// {"level":"INFO","msg":"hello"}
}

// Call Exit instead of os.Exit and log.Fatal, which lose the last records.
func ExampleExit() {
	main := func(buffered io.WriteCloser) {
		r, err := forebay.NewRouter(forebay.CloseOnExit(), forebay.Route(noTime, forebay.Writer(buffered, forebay.Direct(), forebay.CloseWriter())))
		check(err)
		r.Logger().Error("cannot go on")
		forebay.Exit(1)
	}
	_ = main
}

func ExampleCrashOutput() {
	if err := forebay.CrashOutput(filepath.Join(os.TempDir(), "no", "such", "directory", "crash.txt")); err != nil {
		fmt.Println(errors.Is(err, os.ErrNotExist))
	}
	// Output:
	// true
}
