package fluent

import (
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/forebay-log/forebay/batch"
)

// ErrHandled is wrapped by the error of a Post with Config.Sync whose record the
// server did not acknowledge while the error handler (Config.ErrorHandler,
// FallbackFile) took records: it is safe there, but not at the server.
var ErrHandled = errors.New("taken by the error handler, not acknowledged by the server")

// awaited are the records whose posters wait for the server. A record is known by
// its time, of which each is given out once, and by what it holds.
type awaited struct {
	seed maphash.Seed
	n    atomic.Int64 // of waiting
	last atomic.Int64 // time given out

	mu      sync.Mutex // leaf
	waiting map[awaitedKey]*waiter
}

type awaitedKey struct {
	time int64
	sum  uint64
}

// waiter is one poster. awaited.mu guards what it says.
type waiter struct {
	key   awaitedKey
	acked bool
	why   error // it was refused
}

func newAwaited() *awaited {
	return &awaited{seed: maphash.MakeSeed(), waiting: map[awaitedKey]*waiter{}}
}

// stamp returns now, or the next nanosecond that nobody has.
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
	w := &waiter{key: a.key(time, rec)}
	a.mu.Lock()
	a.waiting[w.key] = w
	a.mu.Unlock()
	a.n.Add(1)
	return w
}

// remove ends the wait and says how it stands.
func (a *awaited) remove(w *waiter) (acked bool, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, w.key)
	a.n.Add(-1)
	return w.acked, w.why
}

// settled notes that the server has taken the records of b, but for those with
// the indexes open, ascending.
func (a *awaited) settled(b *batch.Batch, open []int) {
	if a.n.Load() == 0 {
		return
	}
	for i, rec := range b.All() {
		if len(open) > 0 && open[0] == i {
			open = open[1:]
			continue
		}
		a.note(rec, func(w *waiter) { w.acked = true })
	}
}

// refused notes that the records of b with these indexes will not be delivered.
func (a *awaited) refused(b *batch.Batch, indexes []int, why error) {
	if a.n.Load() == 0 {
		return
	}
	for _, i := range indexes {
		a.note(b.At(i), func(w *waiter) { w.why = why })
	}
}

func (a *awaited) note(rec batch.Record, fn func(*waiter)) {
	key := a.key(rec.Time, rec.Data)
	a.mu.Lock()
	if w := a.waiting[key]; w != nil {
		fn(w)
	}
	a.mu.Unlock()
}
