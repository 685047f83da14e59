package experiments

import (
	"io"
	"runtime"
	"sync"
	"sync/atomic"
)

// addWriter reserves room with one addition: where it lands is the place of the record, and
// so the order. The addition that crosses the end of the slab seals it; those behind it wait
// for the next slab. A slab that is not current stays crossed, so that a caller with an old
// pointer reserves nothing.
type addWriter struct {
	*sharedPipe
	size uint64
	cur  atomic.Pointer[shared]
}

func newAdd(dst io.Writer, size, count int) *addWriter {
	w := &addWriter{sharedPipe: newSharedPipe(dst, size, count), size: uint64(size)}
	w.open()
	return w
}

// open makes a free slab current. Additions that came too late for its last use may still
// take their copier back: only the place begins anew.
func (w *addWriter) open() {
	s := <-w.free
	for {
		st := s.state.Load()
		if s.state.CompareAndSwap(st, st&^(oneCopier-1)) {
			break
		}
	}
	w.cur.Store(s)
}

func (w *addWriter) Write(p []byte) (int, error) {
	n := uint64(len(p))
	for {
		s := w.cur.Load()
		end := s.state.Add(n+oneCopier) & (oneCopier - 1)
		if end <= w.size {
			copy(s.p[end-n:], p)
			s.state.Add(^uint64(oneCopier - 1))
			return len(p), nil
		}
		s.state.Add(^uint64(oneCopier - 1))
		if end-n > w.size { // somebody else has crossed the end
			// It may be current again, and be open, by the time that this looks.
			for w.cur.Load() == s && s.state.Load()&(oneCopier-1) > w.size {
				runtime.Gosched()
			}
			continue
		}
		s.n = int(end - n)
		w.full <- s
		w.open()
	}
}

func (w *addWriter) Drain() error {
	s := w.cur.Load()
	s.n = int(s.state.Load() & (oneCopier - 1))
	return w.end(s)
}

// combineWriter has one caller do the work of all that meet: whoever gets the lock copies
// also the records of those who do not, and these wait until that is done.
type combineWriter struct {
	mutexWriter
	wishes atomic.Pointer[wish]
	pool   sync.Pool
}

// A wish is a record that somebody else is to copy.
type wish struct {
	p    []byte
	next *wish
	done atomic.Bool
}

func newCombine(dst io.Writer, size, count int) *combineWriter {
	p := newPipe(dst, size, count)
	return &combineWriter{mutexWriter: mutexWriter{pipe: p, cur: <-p.free}}
}

func (w *combineWriter) Write(p []byte) (int, error) {
	if w.mu.TryLock() {
		w.store(p)
		w.grant()
		w.mu.Unlock()
		return len(p), nil
	}
	m, _ := w.pool.Get().(*wish)
	if m == nil {
		m = new(wish)
	}
	m.p = p
	m.done.Store(false)
	for {
		m.next = w.wishes.Load()
		if w.wishes.CompareAndSwap(m.next, m) {
			break
		}
	}
	for i := 0; !m.done.Load(); i++ {
		if w.mu.TryLock() {
			w.grant()
			w.mu.Unlock()
		} else if i >= spins {
			runtime.Gosched()
			i = 0
		}
	}
	m.p = nil
	w.pool.Put(m)
	return len(p), nil
}

// grant copies what others wish for. They all meet, so any order of theirs is right.
func (w *combineWriter) grant() {
	for m := w.wishes.Swap(nil); m != nil; {
		next := m.next // afterwards m is its caller's again
		w.store(m.p)
		m.done.Store(true)
		m = next
	}
}

func (w *combineWriter) store(p []byte) {
	b := w.cur
	if len(b.p)-b.n < len(p) {
		w.full <- b
		b = <-w.free
		w.cur = b
	}
	b.n += copy(b.p[b.n:], p)
	w.records++
	w.bytes += int64(len(p))
}
