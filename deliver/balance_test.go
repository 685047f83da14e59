package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/race"
	"github.com/forebay-log/forebay/slab"
)

// Each snapshot of the account balances, even during concurrent writes, spilling, handling and
// Close, and while the destination fails, refuses records or accepts only a part of a batch.
func TestEachReadingBalances(t *testing.T) {
	readings := testkit.Rounds(t, race.Fewer(5_000, 25), 1_000_000)
	for _, memory := range []string{"heap", "crash-safe"} {
		for _, behind := range []string{"nothing", "spool", "handler"} {
			for _, inline := range []bool{true, false} {
				t.Run(fmt.Sprint(memory, " ", behind, " inline=", inline), func(t *testing.T) {
					o := &deliver.OutputOptions{
						Slab: slab.Options{SlabBytes: 1024, SlabCount: 8, FlushInterval: time.Millisecond, WhenFull: slab.DropOldest()},
						Deliver: deliver.Options{
							Retry:   &deliver.RetryOptions{Min: 10 * time.Microsecond, Max: 100 * time.Microsecond},
							Breaker: &deliver.BreakerOptions{Failures: 2, OpenMin: 100 * time.Microsecond, OpenMax: time.Millisecond},
						},
						CloseTimeout: 100 * time.Millisecond,
					}
					if memory == "crash-safe" {
						o.CrashDir = t.TempDir()
					}
					switch behind {
					case "spool":
						o.SpoolDir, o.Slab.WhenFull = t.TempDir(), slab.Spill()
					case "handler":
						o.Deliver.Handler = deliver.ErrorHandlerFunc(func(error, *batch.Batch) batch.Outcome { return batch.Outcome{} })
					}
					eachReadingBalances(t, o, inline, readings)
				})
			}
		}
	}
}

func eachReadingBalances(t *testing.T, o *deliver.OutputOptions, inline bool, readings int) {
	var calls atomic.Uint64
	dest := deliver.SendFunc(deliver.Traits{Inline: inline}, func(_ context.Context, b *batch.Batch) batch.Outcome {
		switch n := b.Len(); calls.Add(1) % 11 {
		case 1, 2, 3:
			return batch.FailedOutcome(errors.New("down"))
		case 4:
			return batch.Outcome{Open: batch.From(n / 2), Why: errors.New("busy")}
		case 5:
			return batch.Outcome{Refused: batch.Of(0), Refusal: errors.New("bad")}
		}
		return batch.Outcome{}
	})
	out := mustOutput(t, dest, o)
	ctx, stop := context.WithCancel(t.Context())
	var callers, reader sync.WaitGroup
	for range 3 {
		callers.Go(func() {
			p := make([]byte, 80)
			for ctx.Err() == nil {
				_ = out.WriteRecord(p, batch.Meta{})
			}
		})
	}
	closed := make(chan struct{})
	reader.Go(func() {
		for i, done := 0, false; !done; i++ {
			select {
			case <-closed:
				done = true
			default:
			}
			if a := out.Stats().Account; a.Check() != nil {
				t.Errorf("reading %d: %v: %s", i, a.Check(), a)
				break
			}
			if i == readings {
				stop()
			}
		}
		stop()
	})
	<-ctx.Done()
	_, _ = out.Shutdown(context.Background())
	close(closed)
	callers.Wait()
	reader.Wait()
}
