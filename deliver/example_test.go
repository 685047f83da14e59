package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
)

// one returns a batch of one line.
func one(line string) *batch.Batch {
	var b batch.Builder
	b.Append([]byte(line+"\n"), 0, batch.Meta{})
	return b.Batch(encode.RawCodec())
}

// A Retry alone, for a sink that needs nothing else. Several may share a budget, so
// that together they do not keep a destination down.
func ExampleNewRetry() {
	attempts := 0
	destination := batch.SinkFunc(func(context.Context, *batch.Batch) error {
		if attempts++; attempts < 3 {
			return errors.New("connection reset")
		}
		return nil
	})
	r, err := deliver.NewRetry(destination, &deliver.RetryOptions{
		Min:     time.Millisecond,
		Budget:  deliver.NewBudget(0.1, 1), // a retry for ten successes, and one per second
		OnError: func(batch.Event) {},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = r.Send(context.Background(), one("hello"))
	fmt.Println(err, r.Retries(), "retries")
	_ = r.Close(context.Background())
	// Output: <nil> 2 retries
}

// A Fallback alone: what the sink does not take, the handler does.
func ExampleNewFallback() {
	down := batch.SinkFunc(func(context.Context, *batch.Batch) error { return errors.New("connection refused") })
	f, err := deliver.NewFallback(down, deliver.JSONLines(stdout{}), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	b := one("hello")
	fmt.Println(f.Send(context.Background(), b), b.Tally.Handled, "handled")
	// Output:
	// {"raw":"hello"}
	// <nil> 1 handled
}

// What a destination refuses for good is buried in a file, one line for each record.
func ExampleOpenDeadLetterFile() {
	dir, err := os.MkdirTemp("", "letters")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "dead.jsonl")
	letters, err := deliver.OpenDeadLetterFile(name, "loki")
	if err != nil {
		fmt.Println(err)
		return
	}
	refuses := batch.SinkFunc(func(context.Context, *batch.Batch) error { return batch.Permanent(errors.New("too old")) })
	p, err := deliver.NewPoison(refuses, &deliver.PoisonOptions{DeadLetter: letters, OnError: func(batch.Event) {}})
	if err != nil {
		fmt.Println(err)
		return
	}
	b := one("hello")
	fmt.Println(p.Send(context.Background(), b), b.Tally.Dropped)
	_ = letters.Close()
	text, _ := os.ReadFile(name)
	fmt.Print(regexp.MustCompile(`"time":"[^"]*",`).ReplaceAllString(string(text), ""))
	// Output:
	// <nil> poison=1
	// {"destination":"loki","reason":"too old","level":"INFO","record":{"raw":"hello"}}
}

// The failure is logged, and the records go to another destination as JSON lines.
func ExampleToSink() {
	other := batch.SinkFunc(func(_ context.Context, b *batch.Batch) error {
		fmt.Printf("other: %s", b.AppendTo(nil))
		return nil
	})
	second, err := deliver.ToSink(other, &deliver.ToSinkOptions{Transcode: deliver.TranscodeJSON, Form: encode.JSONCodec()})
	if err != nil {
		fmt.Println(err)
		return
	}
	log := slog.NewTextHandler(stdout{}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	h := deliver.FirstOf(deliver.LogTo(log), second)
	fmt.Println(h.HandleError(errors.New("connection refused"), one("hello")))
	// Output:
	// level=ERROR msg="log records were not delivered" error="connection refused" records=1 bytes=6
	// other: {"raw":"hello"}
	// <nil>
}
