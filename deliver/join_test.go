package deliver

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/internal/testkit"
)

// After an outage, small batches in the spool are combined, up to the limits of the destination.
// Otherwise the backlog would grow, because a request takes twice the interval between two batches.
func TestCatchesUpWithSmallBatches(t *testing.T) {
	for _, limits := range []batch.Limits{{}, {Records: 60}, {Bytes: 1000}} {
		bubble.Test(t, func(t *testing.T) {
			store, err := diskqueue.Open(t.TempDir(), nil)
			if err != nil {
				t.Fatal(err)
			}
			up := time.Now().Add(10 * time.Minute)
			d := newPeer(1, testkit.Rand(1), 2*time.Second)
			most := batch.Limits{}
			d.fault = func(_ int, b *batch.Batch) fault {
				if time.Now().Before(up) {
					return fault{kind: isOpen}
				}
				most.Records, most.Bytes = max(most.Records, b.Len()), max(most.Bytes, b.Bytes())
				return fault{}
			}
			x := mustNew(t, limited{d, limits}, &Options{spill: store})
			m := &testkit.Model{}
			const n = 1200
			for range n {
				send(t, m, x, m.Batch(10, 32, batch.Meta{}))
				time.Sleep(time.Second)
			}
			last := time.Now()
			mustFlush(t, x)
			if late := time.Since(last); late > time.Minute {
				t.Errorf("%v: %v behind", limits, late)
			}
			mustBalance(t, m, x, 10*n)
			if want := limits.Records; want > 0 && most.Records != want {
				t.Errorf("%v: %d records at once", limits, most.Records)
			}
			if want := limits.Bytes; want > 0 && (most.Bytes > want || most.Bytes <= want-320) {
				t.Errorf("%v: %d bytes at once", limits, most.Bytes)
			}
			if !slices.Equal(firstCopies(d.Got()), expect(10*n)) {
				t.Error("out of order")
			}
			d.check(t, 0)
			mustClose(t, x)
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// limited is a destination with its own limits.
type limited struct {
	Destination
	limits batch.Limits
}

func (d limited) Traits() Traits {
	t := d.Destination.Traits()
	t.Limits = d.limits
	return t
}

// Flush waits for all records accepted before the call, even if the spool has combined them with
// later ones in a batch.
func TestFlushWaitsForJoined(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store, err := diskqueue.Open(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		up := time.Now().Add(time.Minute)
		x := mustNew(t, SendFunc(Traits{}, func(ctx context.Context, b *batch.Batch) batch.Outcome {
			if time.Now().Before(up) {
				return batch.Outcome{Open: batch.All(), Why: errors.New("down")}
			}
			time.Sleep(10 * time.Second)
			return batch.Outcome{}
		}), &Options{spill: store, Breaker: &BreakerOptions{OpenMax: 5 * time.Second}}) // the circuit closes long before the Flush
		m := &testkit.Model{}
		for range 100 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
			time.Sleep(time.Second)
		}
		accepted := x.Account().Accepted
		done := make(chan error, 1)
		go func() { done <- x.Flush(t.Context()) }()
		for range 5 {
			synctest.Wait()
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if a := x.Account(); a.Delivered < accepted {
			t.Errorf("%d of %d records were delivered", a.Delivered, accepted)
		}
		mustFlush(t, x)
		mustBalance(t, m, x, 1050)
		mustClose(t, x)
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}
