package fluent_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/fluent"
)

// This is the example of docs/MIGRATING-fluent-logger-go.md.
func Example_migrating() {
	addr, fallback := "127.0.0.1:1", silentLogger() // connections to port 1 are refused
	logger, err := fluent.NewLogger(fluent.Config{
		Servers: []string{addr},
	}, forebay.Delivery(func(o *deliver.OutputOptions) { o.Deliver.Breaker = &deliver.BreakerOptions{Failures: 1} }))
	if err != nil {
		fmt.Println(err)
		return
	}
	transitions, stop := logger.Subscribe()
	defer stop()
	go func() {
		for t := range transitions {
			log.Println(t.From, "to", t.To, t.Err)
		}
	}()
	logger.ErrorHandler = deliver.ErrorHandlerFunc(func(cause error, b *batch.Batch) batch.Outcome {
		log.Println(cause)
		return batch.FailedOutcome(cause)
	})
	logger.ErrorHandler = fluent.FallbackTo(fallback)
	// ErrorHandler may be assigned again until the first Post.
	logger.ErrorHandler = deliver.JSONLines(os.Stdout)

	logger.PostWithTime("app", time.Unix(0, 0), map[string]any{"n": 1})
	logger.Flush(context.Background())
	logger.Close(context.Background())
	fallback.Close(context.Background())
	// Output:
	// {"tag":"app","time":"1970-01-01T00:00:00Z","record":{"n":1}}
}

func silentLogger() *fluent.Logger {
	l, err := fluent.NewLogger(fluent.Config{}, forebay.OnError(func(batch.Event) {}))
	if err != nil {
		panic(err)
	}
	return l
}
