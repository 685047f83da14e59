package forebay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
)

// failsUntil returns a destination that is down until the time stored in the parameter up, in Unix
// nanoseconds. The parameter probes counts the attempts.
func failsUntil(up *atomic.Int64, probes *atomic.Int64) deliver.Destination {
	return deliver.SendFunc(deliver.Traits{Window: 4}, func(_ context.Context, b *batch.Batch) batch.Outcome {
		if probes.Add(1); time.Now().UnixNano() < up.Load() {
			return batch.FailedOutcome(errors.New("connection refused"))
		}
		return batch.Outcome{}
	})
}

// If the circuit breaker is open, Close sends probes, with or without a spool. It does so during
// the part of the deadline that is not reserved for writing to disk. A destination that recovers
// in time receives all records. The report names the directory of records kept on disk.
func TestCloseProbesAnOpenCircuit(t *testing.T) {
	const records, limit = 1000, 10 * time.Second
	for _, spool := range []bool{false, true} {
		for _, back := range []time.Duration{0, 50 * time.Millisecond, 3 * time.Second, time.Hour} {
			t.Run(fmt.Sprintf("spool=%v/back=%v", spool, back), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					var up, sends atomic.Int64
					up.Store(time.Now().Add(24 * time.Hour).UnixNano())
					opts := []forebay.OutputOption{forebay.OnError(func(batch.Event) {})}
					dir := t.TempDir()
					if spool {
						opts = append(opts, forebay.Spool(dir))
					}
					l, err := forebay.New(forebay.To(failsUntil(&up, &sends), opts...))
					if err != nil {
						t.Fatal(err)
					}
					for range records {
						l.Info("m")
					}
					time.Sleep(20 * time.Second)
					if state := l.Router().Stats().Outputs[0].Delivery.Deliver.Breaker; state != deliver.Open {
						t.Fatalf("the circuit is %v", state)
					}
					begun := time.Now()
					up.Store(begun.Add(back).UnixNano())
					sends.Store(0)
					ctx, cancel := context.WithTimeout(context.Background(), limit)
					defer cancel()
					rep, err := l.Router().Close(ctx)
					took, out := time.Since(begun), rep.Outputs[0]
					if back < limit {
						if err != nil || out.Delivered != records || took > back+time.Second {
							t.Errorf("after %v: %v, %s", took, err, out.Account)
						}
						return
					}
					if n := sends.Load(); n < 10 {
						t.Errorf("%d probes in %v", n, took)
					}
					if took < limit*6/10 || took > limit {
						t.Errorf("Close took %v", took)
					}
					switch {
					case !spool && (err == nil || out.Dropped[batch.Shutdown] != records):
						t.Errorf("lost without an error: %v, %s", err, out.Account)
					case spool && (err != nil || out.Kept() != records || out.KeptIn != dir || !strings.Contains(rep.String(), "1000 records kept in "+dir)):
						t.Errorf("%v, %d kept in %q: %s", err, out.Kept(), out.KeptIn, rep)
					}
				})
			})
		}
	}
}

// If the circuit breaker is open, Flush sends a probe at once and waits for the result. A
// recovered destination receives the waiting records. After a failed probe, Flush returns an
// error.
func TestFlushProbesAnOpenCircuit(t *testing.T) {
	for _, inline := range []bool{false, true} {
		for _, spool := range []bool{false, true} {
			if inline && spool {
				continue
			}
			t.Run(fmt.Sprintf("inline=%v/spool=%v", inline, spool), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					var isDown atomic.Bool
					var sends, got atomic.Int64
					isDown.Store(true)
					dest := deliver.SendFunc(deliver.Traits{Inline: inline}, func(_ context.Context, b *batch.Batch) batch.Outcome {
						sends.Add(1)
						time.Sleep(30 * time.Millisecond)
						if isDown.Load() {
							return batch.FailedOutcome(errors.New("connection refused"))
						}
						got.Add(int64(b.Len()))
						return batch.Outcome{}
					})
					opts := []forebay.OutputOption{forebay.OnError(func(batch.Event) {})}
					if spool {
						opts = append(opts, forebay.Spool(t.TempDir()))
					}
					l, err := forebay.New(forebay.To(dest, opts...))
					if err != nil {
						t.Fatal(err)
					}
					defer l.Close()
					for range 300 {
						l.Info("m")
					}
					stats := func() deliver.Stats { return l.Router().Stats().Outputs[0].Delivery.Deliver }
					for trips := uint64(0); trips < 6; time.Sleep(time.Millisecond) { // after six trips, the next probe is 20 s away or more
						trips = stats().Trips
					}
					time.Sleep(time.Second)
					for range 3 {
						sends.Store(0)
						begun := time.Now()
						ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
						err := l.Router().Flush(ctx)
						cancel()
						if took := time.Since(begun); !errors.Is(err, deliver.ErrOpen) || took > 300*time.Millisecond || sends.Load() != 1 {
							t.Fatalf("down: %v after %v and %d probes", err, took, sends.Load())
						}
					}
					isDown.Store(false)
					begun := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					if err := l.Router().Flush(ctx); err != nil || got.Load() != 300 {
						t.Errorf("up: %v after %v, %d delivered", err, time.Since(begun), got.Load())
					}
				})
			})
		}
	}
}

// Flush does not probe before the end of Retry-After.
func TestFlushObservesRetryAfter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var sends atomic.Int64
		dest := deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome {
			sends.Add(1)
			return batch.FailedOutcome(batch.RetryAfter(errors.New("busy"), time.Minute))
		})
		l, err := forebay.New(forebay.To(dest, forebay.OnError(func(batch.Event) {})))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, _ = l.Router().Close(ctx)
		}()
		l.Info("m")
		time.Sleep(time.Second)
		begun := time.Now()
		if err := l.Router().Flush(t.Context()); !errors.Is(err, deliver.ErrOpen) || time.Since(begun) > 0 || sends.Load() != 1 {
			t.Errorf("%v after %v and %d requests", err, time.Since(begun), sends.Load())
		}
	})
}
