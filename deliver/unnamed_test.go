package deliver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A destination or handler refuses some records of a batch without telling which (Outcome.Unnamed).
// These are counted as dropped, both for batches from memory and for batches from the spool. No
// dead letters are written. No record of such a batch is used later as an accepted record to test
// the server.
func TestRefusedWithoutNames(t *testing.T) {
	some := func(_ context.Context, b *batch.Batch) batch.Outcome {
		if b.Len() < 3 {
			return batch.Outcome{}
		}
		return batch.Outcome{Unnamed: 2, Refusal: errors.New("no good")}
	}
	down := func(context.Context, *batch.Batch) batch.Outcome {
		return batch.Outcome{Open: batch.All(), Why: errors.New("down")}
	}
	handler := ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome { return some(t.Context(), b) })
	for name, c := range map[string]struct {
		send func(context.Context, *batch.Batch) batch.Outcome
		o    Options
	}{
		"memory":  {some, Options{}},
		"handler": {down, Options{Handler: handler}},
		"spool": {func() func(context.Context, *batch.Batch) batch.Outcome {
			calls := 0
			return func(ctx context.Context, b *batch.Batch) batch.Outcome {
				if calls++; calls < 20 {
					return down(ctx, b)
				}
				return some(ctx, b)
			}
		}(), Options{spill: &testkit.Spill{}}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				events := &testkit.Events{}
				c.o.OnError = events.Add
				c.o.DeadLetter = ErrorHandlerFunc(func(error, *batch.Batch) batch.Outcome { t.Error("a dead letter"); return batch.Outcome{} })
				x := mustNew(t, SendFunc(Traits{}, c.send), &c.o)
				m := &testkit.Model{}
				for range 5 {
					send(t, m, x, m.Batch(10, 32, batch.Meta{}))
				}
				time.Sleep(time.Hour)
				a := x.Account()
				taken := a.Delivered + a.Handled
				if a.Accepted != 50 || a.Dropped[batch.Poison] == 0 || a.Dropped[batch.Poison]%2 != 0 || taken+a.Dropped[batch.Poison] != 50 || a.Check() != nil {
					t.Errorf("%s", a)
				}
				if got := strings.Count(strings.Join(events.Ops(), " "), "poison"); got != 1 {
					t.Errorf("events %v", events.Ops())
				}
				if x.m.poison.References() > 0 {
					t.Error("a record that may have been refused is a reference")
				}
				mustClose(t, x)
			})
		})
	}
}

// If a handler refuses some records without telling which, the rest of the batch is handled, and
// the handler is called again without a delay.
func TestHandlerRefusesWithoutNames(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var last time.Time
		events := &testkit.Events{}
		x := mustNew(t, SendFunc(Traits{}, func(context.Context, *batch.Batch) batch.Outcome {
			return batch.Outcome{Open: batch.All(), Why: errors.New("down")}
		}), &Options{OnError: events.Add, Handler: ErrorHandlerFunc(func(error, *batch.Batch) batch.Outcome {
			last = time.Now()
			return batch.Outcome{Unnamed: 1, Refusal: errors.New("no good")}
		})})
		m := &testkit.Model{}
		for range 40 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		came := time.Now()
		time.Sleep(time.Hour)
		if a := x.Account(); a.Handled != 360 || a.Dropped[batch.Poison] != 40 || last.Sub(came) > time.Minute {
			t.Errorf("after %v: %s", last.Sub(came), a)
		}
		if slices.Contains(events.Ops(), "handler") {
			t.Errorf("events %v", events.Ops())
		}
		mustClose(t, x)
	})
}
