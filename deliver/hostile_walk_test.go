package deliver

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// faulty is a peer whose driver violates the rules of [Session]: sessions end during Open, or
// cleanly with batches in flight; Open fails; a Send returns an error although its batch was or
// will be answered; batches are answered twice.
type faulty struct {
	*peer

	mu  sync.Mutex
	rng *rand.Rand
	p   float64 // probability of a fault per call
}

// fault returns the number of a random fault, or 0 for none.
func (d *faulty) fault() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rng.Float64() >= d.p {
		return 0
	}
	return 1 + d.rng.IntN(5)
}

func (d *faulty) behave() {
	d.mu.Lock()
	d.p = 0
	d.mu.Unlock()
	d.randomFaults(0)
}

func (d *faulty) Open(l Life) (Session, error) {
	how := d.fault()
	switch how {
	case 1:
		l.End(nil)
	case 2:
		l.End(testkit.ErrDown)
	case 3:
		return nil, testkit.ErrDown
	}
	if how != 0 {
		time.Sleep(time.Duration(how) * 10 * time.Millisecond)
	}
	heard := &faultyLife{Life: l}
	s, err := d.peer.Open(heard)
	if err == nil && how == 4 {
		s.Close()
		return nil, testkit.ErrDown
	}
	return &faultySession{Session: s, d: d, l: heard}, err
}

// faultyLife stores the batch that was answered last.
type faultyLife struct {
	Life
	last atomic.Pointer[batch.Batch]
}

func (l *faultyLife) Answer(b *batch.Batch, o batch.Outcome) {
	l.Life.Answer(b, o)
	l.last.Store(b)
}

type faultySession struct {
	Session
	d *faulty
	l *faultyLife
}

func (s *faultySession) Send(b *batch.Batch) error {
	if err := s.Session.Send(b); err != nil {
		return err
	}
	switch s.d.fault() {
	case 1:
		s.l.End(nil)
	case 2:
		return errors.New("this was the last one")
	case 3:
		last := s.l.last.Load() // nil before the first answer
		s.l.Life.Answer(last, allAccepted)
		s.l.Life.Answer(last, noneAccepted(testkit.ErrDown))
	case 4:
		s.l.Answer(new(batch.Batch), noneAccepted(testkit.ErrDown))
	case 5:
		s.l.End(testkit.ErrDown)
		s.l.End(nil)
	}
	return nil
}

// After a faulty driver stops making faults, all records are settled within an hour. The first
// copies of all records have arrived in order, except those suspected of ending sessions.
func TestFaultyDriver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for seed := range testkit.Walks(t, 80) {
			rng := testkit.Rand(seed)
			window, per := 1+rng.IntN(6), 1+rng.IntN(12)
			d := &faulty{peer: newPeer(window, rng, time.Second), rng: testkit.Rand(rng.Uint64()), p: rng.Float64() * 0.2}
			d.randomFaults(rng.Float64() * 0.1)
			o := &Options{Retry: &RetryOptions{Min: time.Millisecond, Max: time.Second, BudgetRatio: 1, BudgetPerSecond: 1e3}}
			if rng.IntN(2) == 0 {
				o.spill = &testkit.Spill{}
			}
			x := mustNew(t, d, o)
			stop := func() {}
			if o.spill != nil {
				stop = fullAtRandom(t, x, rng)
			}
			m := &testkit.Model{}
			for range 40 {
				send(t, m, x, m.Batch(per, 32, batch.Meta{}))
				if rng.IntN(4) == 0 {
					time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
				}
			}
			d.behave()
			stop()
			time.Sleep(time.Hour)
			synctest.Wait()
			if a := x.Account(); a.Delivered != m.Accepted() || a.Pending.Total() != 0 {
				t.Fatalf("seed %d: not all is settled after an hour: %s", seed, a)
			}
			suspect := func(k uint64) bool { return slices.Contains(d.alone, k) }
			if first := firstCopies(d.Got()); len(first) != 40*per || !slices.IsSorted(slices.DeleteFunc(first, suspect)) {
				t.Fatalf("seed %d: %d first copies, out of order: %v", seed, len(first), first)
			}
			d.check(t, seed)
			mustClose(t, x)
		}
	})
}
