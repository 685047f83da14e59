package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"regexp"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
)

// down is a destination that is down.
var down = deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome {
	return batch.FailedOutcome(errors.New("connection refused"))
})

// fails are the options of a circuit breaker that opens at the first failure.
var fails = &deliver.BreakerOptions{Failures: 1}

// An Output buffers records in memory and writes them to standard output. Any logger that writes to
// an io.Writer can use it.
func ExampleNewOutput() {
	out, err := deliver.NewOutput(deliver.ToWriter(os.Stdout), nil)
	if err != nil {
		log.Fatal(err)
	}
	logger := log.New(out, "", 0)
	logger.Print("one")
	logger.Print("two")
	if err := out.Close(); err != nil {
		log.Print(err)
	}
	fmt.Println(out.Account())
	// Output:
	// one
	// two
	// accepted=2 delivered=2
}

// While a destination is down, ToOutput passes its records to another output, as JSON lines.
func ExampleToOutput() {
	fallback, err := deliver.NewOutput(deliver.ToWriter(os.Stdout), &deliver.OutputOptions{Codec: encode.JSON(nil).Codec()})
	if err != nil {
		log.Fatal(err)
	}
	form := encode.Logfmt(nil).Codec()
	handler, err := deliver.ToOutput(fallback, form)
	if err != nil {
		log.Fatal(err)
	}
	out, err := deliver.NewOutput(down, &deliver.OutputOptions{
		Codec: form, Deliver: deliver.Options{Handler: handler, Breaker: fails}, OnError: func(batch.Event) {},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(out, "level=INFO msg=hello n=1")
	if err := errors.Join(out.Close(), fallback.Close()); err != nil { // close the fallback last
		log.Print(err)
	}
	fmt.Println(out.Account())
	fmt.Println(fallback.Account())
	// Output:
	// {"level":"INFO","msg":"hello","n":"1"}
	// accepted=1 delivered=0 handled=1
	// accepted=1 delivered=1
}

// An error handler can be a function. This one prints a line and calls another handler. The cause
// contains the number of waiting records.
func ExampleErrorHandlerFunc() {
	file := deliver.JSONLines(os.Stdout)
	out, err := deliver.NewOutput(down, &deliver.OutputOptions{
		Codec: encode.JSON(nil).Codec(),
		Deliver: deliver.Options{Breaker: fails, Handler: deliver.ErrorHandlerFunc(func(cause error, b *batch.Batch) batch.Outcome {
			var p *deliver.PendingError
			if errors.As(cause, &p) {
				fmt.Printf("%d of %d: %v\n", b.Len(), p.Pending, p.Err)
			}
			return file.HandleError(cause, b)
		})},
		OnError: func(batch.Event) {},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(out, `{"msg":"hello"}`)
	if err := out.Close(); err != nil {
		log.Print(err)
	}
	// Output:
	// 1 of 1: circuit breaker is open: connection refused
	// {"msg":"hello"}
}

// A dead letter contains the record and the reason of its refusal.
func ExampleDeadLetters() {
	b := &batch.Batch{Codec: encode.JSON(nil).Codec(), Origin: [16]byte{0xab, 15: 1}} // the origin of the Writer that accepted the record
	b.Append([]byte(`{"msg":"hello"}`), 4711, batch.Meta{})
	times := regexp.MustCompile(`"time":"[^"]*"`)
	w := writerFunc(func(p []byte) (int, error) {
		fmt.Printf("%s", times.ReplaceAll(p, []byte(`"time":"…"`)))
		return len(p), nil
	})
	deliver.DeadLetters(w, "store").HandleError(errors.New("too long"), b)
	// Output:
	// {"time":"…","destination":"store","reason":"too long","id":"ab000000000000000000000000000001:4711","level":"INFO","record":{"msg":"hello"}}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Shutdown stores the records that the destination does not accept on disk. They are delivered
// after the next start.
func ExampleOutput_Shutdown() {
	dir, err := os.MkdirTemp("", "spool")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	o := deliver.OutputOptions{SpoolDir: dir, Deliver: deliver.Options{Breaker: fails}, OnError: func(batch.Event) {}}
	for start, dest := range []deliver.Destination{down, deliver.ToWriter(os.Stdout)} {
		out, err := deliver.NewOutput(dest, &o)
		if err != nil {
			log.Fatal(err)
		}
		if start == 0 {
			fmt.Fprintln(out, "hello")
		} else if err := out.Flush(context.Background()); err != nil {
			log.Print(err)
		}
		report, err := out.Shutdown(context.Background())
		fmt.Println(report.Account, report.Kept(), err)
	}
	// Output:
	// accepted=1 delivered=0 pending=1{slab=0 spill=1 inflight=0} 1 <nil>
	// hello
	// accepted=0 recovered=1 delivered=1 0 <nil>
}
