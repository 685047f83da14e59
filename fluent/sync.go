package fluent

import (
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/forebay-log/forebay/batch"
)

// ErrHandled is wrapped by the error of a Post with Config.Sync if the record was accepted by the
// error handler or the fallback file, and not by the server.
var ErrHandled = errors.New("accepted by the error handler, not acknowledged by the server")

// The type awaited contains the calls of Post with Config.Sync that wait for the server. Post does
// not know the sequence number (ticket) of its record, so the record is found in a batch by its
// time and content. The method stamp makes the time unique. While no call waits, n is 0, and
// batches are not searched. All methods are safe for concurrent use.
type awaited struct {
	seed maphash.Seed // of awaitedKey.sum
	n    atomic.Int64 // number of waiters
	last atomic.Int64 // last time returned by stamp, in Unix ns

	mu      sync.Mutex // guards waiting and the outcomes of waiters; no other lock is acquired under it
	waiting map[awaitedKey]*waiter
}

// An awaitedKey identifies the record of a waiter.
type awaitedKey struct {
	time int64  // Meta.Time, in Unix ns
	sum  uint64 // hash of the encoded record
}

// A waiter is a call of Post that waits for the outcome of its record. awaited.mu guards acked and
// why.
type waiter struct {
	key   awaitedKey
	known chan struct{} // closed when the outcome is set
	acked bool          // the server has acknowledged the record
	why   error         // why the record was refused; nil if it was not
}

// setLocked sets the outcome of the record of w and wakes the call of Post. Only the first call has
// an effect. The caller holds awaited.mu.
func (w *waiter) setLocked(acked bool, why error) {
	if w.acked || w.why != nil {
		return
	}
	w.acked, w.why = acked, why
	close(w.known)
}

// newAwaited returns an empty set of waiters.
func newAwaited() *awaited {
	return &awaited{seed: maphash.MakeSeed(), waiting: map[awaitedKey]*waiter{}}
}

// stamp returns now, or the next larger time that it has not yet returned. Results always increase.
// Times are in Unix ns.
func (a *awaited) stamp(now int64) int64 {
	for {
		last := a.last.Load()
		t := max(now, last+1)
		if a.last.CompareAndSwap(last, t) {
			return t
		}
	}
}

// key returns the key of a record with the given time, in Unix ns, and content.
func (a *awaited) key(time int64, rec []byte) awaitedKey {
	return awaitedKey{time, maphash.Bytes(a.seed, rec)}
}

// add returns a new waiter for the record rec. The caller must call add before it writes the
// record, so that no outcome is missed. Finally it must call remove.
func (a *awaited) add(time int64, rec []byte) *waiter {
	w := &waiter{key: a.key(time, rec), known: make(chan struct{})}
	a.mu.Lock()
	a.waiting[w.key] = w
	a.mu.Unlock()
	a.n.Add(1)
	return w
}

// remove removes w and returns its outcome: acked is true if the server has acknowledged the
// record, and why is not nil if the record was rejected.
func (a *awaited) remove(w *waiter) (acked bool, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, w.key)
	a.n.Add(-1)
	return w.acked, w.why
}

// A recordWaiter is a waiter with the index of its record in a batch.
type recordWaiter struct {
	index int
	w     *waiter
}

// appendWaiters appends the waiters for records of b to dst. It must be called while the memory of
// b is valid.
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

// settle sets the outcomes of waiters from o, the outcome of their batch. If a record must be sent
// again (o.Open), its waiter continues to wait.
func (a *awaited) settle(waiters []recordWaiter, o *batch.Outcome) {
	if len(waiters) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	// A record that is neither in Refused nor in Open is acknowledged.
	for _, p := range waiters {
		switch {
		case o.Refused.Has(p.index):
			p.w.setLocked(false, o.Refusal)
		case !o.Open.Has(p.index):
			p.w.setLocked(true, nil)
		}
	}
}

// refused sets the outcomes of the waiters for the records of b. These records were permanently
// rejected for the reason cause.
func (a *awaited) refused(cause error, b *batch.Batch) {
	waiters := a.appendWaiters(nil, b)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range waiters {
		p.w.setLocked(false, cause)
	}
}
