package forebay_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/httpsink"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/loki"
	"github.com/forebay-log/forebay/netsink"
	"github.com/forebay-log/forebay/otlp"
)

// No caller waits for an output whose circuit breaker is open. This applies to every driver and any
// number of waiting records. Records are moved to the spool as long as it accepts them.
func TestCallersDoNotWaitForOpenCircuit(t *testing.T) {
	const nobody = "127.0.0.1:1"
	down := func(context.Context, *batch.Batch) batch.Outcome { return batch.FailedOutcome(errors.New("down")) }
	for name, output := range map[string]func(...forebay.OutputOption) forebay.OutputSpec{
		"send": func(o ...forebay.OutputOption) forebay.OutputSpec {
			return forebay.To(deliver.SendFunc(deliver.Traits{}, down), o...)
		},
		"inline": func(o ...forebay.OutputOption) forebay.OutputSpec {
			return forebay.To(deliver.SendFunc(deliver.Traits{Inline: true}, down), o...)
		},
		"file":   func(o ...forebay.OutputOption) forebay.OutputSpec { return forebay.File("/dev/full", o...) },
		"loki":   func(o ...forebay.OutputOption) forebay.OutputSpec { return loki.To("http://"+nobody, o...) },
		"otlp":   func(o ...forebay.OutputOption) forebay.OutputSpec { return otlp.To("http://"+nobody, o...) },
		"http":   func(o ...forebay.OutputOption) forebay.OutputSpec { return httpsink.To("http://"+nobody, o...) },
		"fluent": func(o ...forebay.OutputOption) forebay.OutputSpec { return fluent.To(nobody, "app", o...) },
		"tcp":    func(o ...forebay.OutputOption) forebay.OutputSpec { return netsink.To("tcp://"+nobody, o...) },
	} {
		for _, spool := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				if _, err := os.Stat("/dev/full"); name == "file" && err != nil {
					t.Skip(err)
				}
				bubble.Test(t, func(t *testing.T) {
					opts := []forebay.OutputOption{forebay.OnError(func(batch.Event) {})}
					if spool {
						opts = append(opts, forebay.Spool(t.TempDir()))
					}
					l, err := forebay.New(output(opts...), forebay.SyncLevel(slog.LevelError))
					if err != nil {
						t.Fatal(err)
					}
					defer func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						l.Router().Close(ctx)
					}()
					stats := func() *deliver.OutputStats { return l.Router().Stats().Outputs[0].Delivery }
					for range 60 {
						l.Info("more than one batch")
						time.Sleep(time.Second)
					}
					for range 20 {
						for stats().Deliver.Breaker != deliver.Open {
							time.Sleep(10 * time.Millisecond)
						}
						begun := time.Now()
						l.Error("last words")
						if took := time.Since(begun); took > 0 {
							t.Fatalf("waited %v: %v", took, stats().Deliver.Breaker)
						}
						// The records are moved to disk before all goroutines wait.
						synctest.Wait()
						if p := l.Router().Stats().Outputs[0].Pending; spool && p.Slab+p.Inflight > 10 { // the records of a probe
							t.Fatalf("not on disk: %v", p)
						}
						time.Sleep(700 * time.Millisecond)
					}
					if err := l.Router().Flush(t.Context()); !errors.Is(err, deliver.ErrOpen) && stats().Deliver.Breaker == deliver.Open {
						t.Errorf("Flush returned %v", err)
					}
				})
			})
		}
	}
}

// If the circuit breaker is open and no record is pending, Flush returns nil. A Flush that is
// waiting when the circuit breaker opens returns at once.
func TestFlushWithOpenCircuitAndNothingPending(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		answer := make(chan batch.Outcome)
		dest := deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome { return <-answer })
		l, err := forebay.New(forebay.To(dest), forebay.OnError(func(batch.Event) {}))
		if err != nil {
			t.Fatal(err)
		}
		for range 10 { // the memory holds some of these records
			l.Info("m")
			time.Sleep(time.Second)
		}
		flushed := make(chan error)
		go func() { flushed <- l.Router().Flush(context.Background()) }()
		synctest.Wait()
		answer <- batch.FailedOutcome(batch.RetryAfter(errors.New("down"), time.Minute))
		begun := time.Now()
		if err := <-flushed; !errors.Is(err, deliver.ErrOpen) || time.Since(begun) > 0 {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		close(answer) // the destination accepts all further records
		if err := l.Router().Flush(context.Background()); !errors.Is(err, deliver.ErrOpen) {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute)
		if err := l.Router().Flush(context.Background()); err != nil {
			t.Error(err)
		}
		l.Close()
	})
}
