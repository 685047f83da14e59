package fluent

import (
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/forebay-log/forebay/batch"
)

// ErrHandled is wrapped by the error of a Post with Config.Sync whose record was accepted by
// the error handler or the fallback file instead of the server.
var ErrHandled = errors.New("accepted by the error handler, not acknowledged by the server")

// awaited holds the records whose callers wait for the server. A record is identified by its
// time, which is unique, and its content.
type awaited struct {
	seed maphash.Seed
	n    atomic.Int64 // number of waiters
	last atomic.Int64 // last unique time, in Unix ns

	mu      sync.Mutex // leaf lock; guards the fields below
	waiting map[awaitedKey]*waiter
}

type awaitedKey struct {
	time int64
	sum  uint64
}

// waiter is one caller of Post. awaited.mu guards its outcome.
type waiter struct {
	key   awaitedKey
	known chan struct{} // closed when the outcome is set
	acked bool
	why   error // reason of the refusal
}

// setLocked sets the outcome of the record of w.
func (w *waiter) setLocked(acked bool, why error) {
	if w.acked || w.why != nil {
		return
	}
	w.acked, w.why = acked, why
	close(w.known)
}

func newAwaited() *awaited {
	return &awaited{seed: maphash.MakeSeed(), waiting: map[awaitedKey]*waiter{}}
}

// stamp returns now, or the next unused nanosecond.
func (a *awaited) stamp(now int64) int64 {
	for {
		last := a.last.Load()
		t := max(now, last+1)
		if a.last.CompareAndSwap(last, t) {
			return t
		}
	}
}

func (a *awaited) key(time int64, rec []byte) awaitedKey {
	return awaitedKey{time, maphash.Bytes(a.seed, rec)}
}

func (a *awaited) add(time int64, rec []byte) *waiter {
	w := &waiter{key: a.key(time, rec), known: make(chan struct{})}
	a.mu.Lock()
	a.waiting[w.key] = w
	a.mu.Unlock()
	a.n.Add(1)
	return w
}

// remove ends the wait and returns the outcome.
func (a *awaited) remove(w *waiter) (acked bool, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, w.key)
	a.n.Add(-1)
	return w.acked, w.why
}

// A recordWaiter is a waiter and the index of its record in a batch.
type recordWaiter struct {
	index int
	w     *waiter
}

// appendWaiters appends the waiters for records of b.
func (a *awaited) appendWaiters(dst []recordWaiter, b *batch.Batch) []recordWaiter {
	if a.n.Load() == 0 {
		return dst
	}
	for i, rec := range b.All() {
		key := a.key(rec.Time, rec.Data)
		a.mu.Lock()
		if w := a.waiting[key]; w != nil {
			dst = append(dst, recordWaiter{i, w})
		}
		a.mu.Unlock()
	}
	return dst
}

// settle records the outcome of records.
func (a *awaited) settle(waiters []recordWaiter, o *batch.Outcome) {
	if len(waiters) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range waiters {
		switch {
		case o.Refused.Has(p.index):
			p.w.setLocked(false, o.Refusal)
		case !o.Open.Has(p.index):
			p.w.setLocked(true, nil)
		}
	}
}

// refused reports to the waiters for records of b that the server will not accept them.
func (a *awaited) refused(cause error, b *batch.Batch) {
	waiters := a.appendWaiters(nil, b)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range waiters {
		p.w.setLocked(false, cause)
	}
}
