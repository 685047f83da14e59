package experiments

import (
	"io"
	"runtime"
	"sync"
	"sync/atomic"
)

// mutexWriter copies under a mutex and counts in plain integers.
type mutexWriter struct {
	*pipe
	mu      sync.Mutex
	cur     *buffer
	records int64
	bytes   int64
}

func newMutex(dst io.Writer, size, count int) *mutexWriter {
	p := newPipe(dst, size, count)
	return &mutexWriter{pipe: p, cur: <-p.free}
}

func (w *mutexWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	b := w.cur
	if len(b.p)-b.n < len(p) {
		w.full <- b
		b = <-w.free
		w.cur = b
	}
	b.n += copy(b.p[b.n:], p)
	w.records++
	w.bytes += int64(len(p))
	w.mu.Unlock()
	return len(p), nil
}

func (w *mutexWriter) Drain() error { return w.end(w.cur) }

// atomicsWriter is mutexWriter with atomic counters, so that they can be read
// without the lock.
type atomicsWriter struct {
	*pipe
	mu      sync.Mutex
	cur     *buffer
	records atomic.Int64
	bytes   atomic.Int64
}

func newAtomics(dst io.Writer, size, count int) *atomicsWriter {
	p := newPipe(dst, size, count)
	return &atomicsWriter{pipe: p, cur: <-p.free}
}

func (w *atomicsWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	b := w.cur
	if len(b.p)-b.n < len(p) {
		w.full <- b
		b = <-w.free
		w.cur = b
	}
	b.n += copy(b.p[b.n:], p)
	w.records.Add(1)
	w.bytes.Add(int64(len(p)))
	w.mu.Unlock()
	return len(p), nil
}

func (w *atomicsWriter) Drain() error { return w.end(w.cur) }

// A spinlock waits without parking its goroutine for a while, then yields the
// processor. Plain Go has no pause instruction; the loads have to do.
type spinlock struct{ v atomic.Uint32 }

const spins = 64

func (l *spinlock) Lock() {
	for !l.v.CompareAndSwap(0, 1) {
		for i := 0; l.v.Load() != 0; i++ {
			if i >= spins {
				runtime.Gosched()
				i = 0
			}
		}
	}
}

func (l *spinlock) Unlock() { l.v.Store(0) }

// spinWriter is mutexWriter under a spinlock.
type spinWriter struct {
	*pipe
	mu      spinlock
	cur     *buffer
	records int64
	bytes   int64
}

func newSpin(dst io.Writer, size, count int) *spinWriter {
	p := newPipe(dst, size, count)
	return &spinWriter{pipe: p, cur: <-p.free}
}

func (w *spinWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	b := w.cur
	if len(b.p)-b.n < len(p) {
		w.full <- b
		b = <-w.free
		w.cur = b
	}
	b.n += copy(b.p[b.n:], p)
	w.records++
	w.bytes += int64(len(p))
	w.mu.Unlock()
	return len(p), nil
}

func (w *spinWriter) Drain() error { return w.end(w.cur) }
