package deliver

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// slowDisk is a spool whose Append waits until gate is closed.
type slowDisk struct {
	*testkit.Spill
	gate chan struct{}
}

func (s slowDisk) Append(b *batch.Batch) (uint64, error) {
	<-s.gate
	return s.Spill.Append(b)
}

// If an Append returns after Shutdown has reported, the account does not change, because the report
// has already accounted for the records. The same holds if the destination answers during that
// Append.
func TestSpoolAnswersAfterTheReport(t *testing.T) {
	for _, how := range logKinds {
		bubble.Test(t, func(t *testing.T) {
			store := slowDisk{new(testkit.Spill), make(chan struct{})}
			d := newManual(1)
			x := mustNew(t, d, &Options{spill: store})
			full := false
			wake := x.setFull(func() bool { return full })
			m, from := &testkit.Model{}, logFor(x, how)
			send(t, m, from, m.Batch(6, 32, batch.Meta{}))
			d.mustStart(t, 1)
			full = true
			wake()
			synctest.Wait() // the loop is in Append
			d.answer(0, allAccepted)
			r, _ := shutdown(x, time.Second)
			if r.Delivered != 0 || r.Accepted != 6 {
				t.Fatalf("%s, %d back", r.Account, from.unsettled())
			}
			close(store.gate)
			time.Sleep(time.Minute)
			synctest.Wait()
			a := x.Account()
			if err := a.Check(); err != nil || a.Delivered != 0 || a.Dropped != r.Dropped {
				t.Errorf("%v: %s, and then %s", err, r.Account, a)
			}
		})
	}
}

// If the destination accepts records of the spool after Shutdown has reported them as pending, the
// account does not change.
func TestDestinationAnswersAfterTheReport(t *testing.T) {
	for _, how := range logKinds {
		bubble.Test(t, func(t *testing.T) {
			store := slowDisk{new(testkit.Spill), make(chan struct{}, 1)}
			store.gate <- struct{}{} // the first Append does not wait
			d := newManual(2)
			x := mustNew(t, d, &Options{spill: store})
			full := false
			wake := x.setFull(func() bool { return full })
			m, from := &testkit.Model{}, logFor(x, how)
			send(t, m, from, m.Batch(6, 32, batch.Meta{}))
			send(t, m, from, m.Batch(4, 32, batch.Meta{}))
			d.mustStart(t, 1, 7)
			full = true
			wake()
			synctest.Wait() // the first batch is in the spool, and the loop is in Append with the second
			d.answer(0, allAccepted)
			r, _ := shutdown(x, time.Second)
			if r.Pending.Spill != 6 || r.Delivered != 0 {
				t.Fatalf("reported %s", r.Account)
			}
			close(store.gate)
			time.Sleep(time.Minute)
			synctest.Wait()
			if a := x.Account(); a != r.Account {
				t.Errorf("reported %s, and then %s", r.Account, a)
			}
		})
	}
}
