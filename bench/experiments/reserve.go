package experiments

import (
	"io"
	"runtime"
	"sync"
	"sync/atomic"
)

// A shared is a slab that several callers copy into at once.
type shared struct {
	// state holds the payload end in its low bits and, from casWriter on, how
	// many callers are copying. The sealed bit stays until the slab is current
	// again, so that a caller with an old pointer reserves nothing.
	state atomic.Uint64
	p     []byte
	n     int
}

const (
	oneCopier = 1 << 48
	sealedBit = 1 << 47
	posMask   = sealedBit - 1
)

// sharedPipe is pipe for shared slabs. The goroutine waits for copiers.
type sharedPipe struct {
	free, full chan *shared
	done       chan error
}

func newSharedPipe(dst io.Writer, size, count int) *sharedPipe {
	p := &sharedPipe{free: make(chan *shared, count), full: make(chan *shared, count), done: make(chan error, 1)}
	for range count {
		s := &shared{p: make([]byte, size)}
		s.state.Store(sealedBit)
		p.free <- s
	}
	go func() {
		var first error
		for s := range p.full {
			for s.state.Load()>>48 != 0 {
				runtime.Gosched()
			}
			if s.n > 0 {
				if _, err := dst.Write(s.p[:s.n]); err != nil && first == nil {
					first = err
				}
			}
			p.free <- s
		}
		p.done <- first
	}()
	return p
}

func (p *sharedPipe) end(last *shared) error {
	p.full <- last
	close(p.full)
	return <-p.done
}

// casWriter reserves room with one compare-and-swap and signals the end of the
// copy with one addition. Only the swap of slabs takes a lock.
type casWriter struct {
	*sharedPipe
	cur atomic.Pointer[shared]
	mu  sync.Mutex
}

func newCAS(dst io.Writer, size, count int) *casWriter {
	w := &casWriter{sharedPipe: newSharedPipe(dst, size, count)}
	s := <-w.free
	s.state.Store(0)
	w.cur.Store(s)
	return w
}

func (w *casWriter) Write(p []byte) (int, error) {
	n := uint64(len(p))
	for {
		s := w.cur.Load()
		st := s.state.Load()
		pos := st & posMask
		if st&sealedBit != 0 || pos+n > uint64(len(s.p)) {
			w.swap(s)
			continue
		}
		if s.state.CompareAndSwap(st, st+n+oneCopier) {
			copy(s.p[pos:], p)
			s.state.Add(^uint64(oneCopier - 1))
			return len(p), nil
		}
	}
}

// swap makes another slab current, unless somebody else has done so.
func (w *casWriter) swap(s *shared) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cur.Load() != s {
		return
	}
	w.seal(s)
	w.full <- s
	next := <-w.free
	next.state.Store(0)
	w.cur.Store(next)
}

func (w *casWriter) seal(s *shared) { s.n = int(s.state.Or(sealedBit) & posMask) }

func (w *casWriter) Drain() error {
	s := w.cur.Load()
	w.seal(s)
	return w.end(s)
}

// outsideWriter reserves room under the lock and copies outside it.
type outsideWriter struct {
	*sharedPipe
	mu  sync.Mutex
	cur *shared
}

func newOutside(dst io.Writer, size, count int) *outsideWriter {
	w := &outsideWriter{sharedPipe: newSharedPipe(dst, size, count)}
	w.cur = <-w.free
	w.cur.state.Store(0)
	w.cur.n = 0
	return w
}

func (w *outsideWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	s := w.cur
	if len(s.p)-s.n < len(p) {
		w.full <- s
		s = <-w.free
		s.state.Store(0)
		s.n = 0
		w.cur = s
	}
	off := s.n
	s.n += len(p)
	s.state.Add(oneCopier)
	w.mu.Unlock()
	copy(s.p[off:], p)
	s.state.Add(^uint64(oneCopier - 1))
	return len(p), nil
}

func (w *outsideWriter) Drain() error { return w.end(w.cur) }
