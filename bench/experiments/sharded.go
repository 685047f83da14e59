package experiments

import (
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// shardedWriter spreads callers over n shards and gives every record a stamp, as
// the last step under the lock of its shard. The drain takes what all shards hold,
// up to a cut, merges it by stamp into whole buffers and writes these.
//
// With tickets the stamp is one more than the last, from one counter: dense, so
// that the merge is a scatter over an array. With the clock it is a time: equal
// stamps of two shards say nothing, so the call waits, before it returns, until
// the clock has moved on; then a later call has a later stamp.
type shardedWriter struct {
	kind   stamping
	shards []shard
	free   chan *stamped
	wake   chan struct{}
	ending chan struct{}
	done   chan error

	_ [128]byte
	g atomic.Uint64
	_ [128]byte

	start time.Time
	d     merger
}

type stamping uint8

const (
	tickets    stamping = iota
	lateCut             // tickets, but the cut is fixed after the shards were swept: wrong
	clockWait           // a time per record, waited out
	clockPlain          // a time per record: nothing orders equal times
)

// A stamped is a slab with an index.
type stamped struct {
	p     []byte
	n     int
	index []entry
	cut   int // entries below it belong to the drain

	// Of the drain:
	retired bool
	left    int // entries that are not merged yet
}

type entry struct {
	stamp    uint64
	off, len uint32
}

type shard struct {
	mu   sync.Mutex
	cur  *stamped
	full []*stamped
	_    [80]byte // 128 in all
}

// run is a part of a slab that was swept.
type run struct {
	s     *stamped
	index []entry
}

func newSharded(dst io.Writer, size, count, n int, kind stamping) *shardedWriter {
	count = max(count, 2*n+1)
	w := &shardedWriter{
		kind: kind, shards: make([]shard, n), free: make(chan *stamped, count), start: time.Now(),
		wake: make(chan struct{}, 1), ending: make(chan struct{}), done: make(chan error, 1),
	}
	for range count {
		w.free <- &stamped{p: make([]byte, size), index: make([]entry, 0, size/32)}
	}
	w.d = merger{dst: dst, src: make([][]run, n), out: make([]byte, 0, size), free: func(b *stamped) { w.free <- b }}
	go w.run()
	return w
}

func (w *shardedWriter) now() uint64 { return uint64(time.Since(w.start)) }

func (w *shardedWriter) Write(p []byte) (int, error) {
	i := pick(len(w.shards))
	s := &w.shards[i]
	if !s.mu.TryLock() {
		if next := &w.shards[(i+1)%len(w.shards)]; next.mu.TryLock() {
			s = next
		} else {
			s.mu.Lock()
		}
	}
	if b := s.cur; b == nil || len(b.p)-b.n < len(p) || len(b.index) == cap(b.index) {
		w.open(s, len(p))
	}
	b := s.cur
	off := b.n
	b.n += copy(b.p[off:], p)
	var t uint64
	if w.kind <= lateCut {
		t = w.g.Add(1)
	} else {
		t = w.now()
	}
	b.index = append(b.index, entry{t, uint32(off), uint32(len(p))})
	s.mu.Unlock()
	if w.kind == clockWait {
		for w.now() <= t {
		}
	}
	return len(p), nil
}

// open gives s, whose lock is held, a slab with room for n bytes. It lets go of
// the lock while it waits for one.
func (w *shardedWriter) open(s *shard, n int) {
	for b := s.cur; b == nil || len(b.p)-b.n < n || len(b.index) == cap(b.index); b = s.cur {
		if b != nil {
			s.full = append(s.full, b)
			s.cur = nil
		}
		select {
		case s.cur = <-w.free:
		default:
			s.mu.Unlock()
			w.signal()
			next := <-w.free
			s.mu.Lock()
			if s.cur == nil {
				s.cur = next
			} else {
				w.free <- next // another caller was faster
			}
		}
		w.signal()
	}
}

func (w *shardedWriter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Drain ends the writer. No Write may run beside it.
func (w *shardedWriter) Drain() error {
	close(w.ending)
	return <-w.done
}

// run is the goroutine that writes.
func (w *shardedWriter) run() {
	for {
		select {
		case <-w.wake:
			w.sweep()
		case <-w.ending:
			w.sweep()
			w.d.flush()
			w.done <- w.d.err
			return
		}
	}
}

// A merger puts the records of swept slabs in order and writes them.
type merger struct {
	dst  io.Writer
	src  [][]run // by shard, oldest first
	of   []uint8 // source + 1 of ticket lo+i
	out  []byte
	err  error
	free func(*stamped) // takes back a slab that is merged
}

// sweep takes what the shards hold and writes what lies before the cut.
func (w *shardedWriter) sweep() {
	m := &w.d
	cut := w.g.Load()
	if w.kind >= clockWait {
		cut = w.now() - 1 // a call beside us may still get this very time
	}
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		for _, b := range s.full {
			m.take(i, b, true)
		}
		clear(s.full)
		s.full = s.full[:0]
		if s.cur != nil {
			m.take(i, s.cur, false)
		}
		s.mu.Unlock()
		if w.kind == lateCut {
			runtime.Gosched()
		}
	}
	switch {
	case w.kind == lateCut:
		m.scatter(w.g.Load())
	case w.kind == tickets:
		m.scatter(cut)
	default:
		select {
		case <-w.ending: // nobody writes any more
			cut = ^uint64(0)
		default:
		}
		m.merge(cut)
	}
}

// take notes what b holds beyond the last cut. The lock of its shard is held.
func (m *merger) take(i int, b *stamped, retired bool) {
	if n := len(b.index); n > b.cut {
		m.src[i] = append(m.src[i], run{b, b.index[b.cut:n]})
		b.left += n - b.cut
		b.cut = n
	}
	b.retired = retired
	m.release(b)
}

// release frees a slab that nobody fills and that is merged.
func (m *merger) release(b *stamped) {
	if b.retired && b.left == 0 {
		b.n, b.index, b.cut, b.retired = 0, b.index[:0], 0, false
		m.free(b)
	}
}

// scatter merges dense stamps: one pass to note where each is, one to copy.
func (m *merger) scatter(cut uint64) {
	lo := cut + 1
	for _, runs := range m.src {
		if len(runs) > 0 {
			lo = min(lo, runs[0].index[0].stamp)
		}
	}
	n := int(cut + 1 - lo)
	m.of = slices.Grow(m.of[:0], n)[:n]
	clear(m.of)
	for i, runs := range m.src {
		for _, r := range runs {
			for _, e := range r.index {
				if e.stamp <= cut {
					m.of[e.stamp-lo] = uint8(i + 1)
				}
			}
		}
	}
	for _, of := range m.of {
		if of > 0 {
			m.emit(int(of) - 1)
		}
	}
}

// merge merges stamps of any kind by looking at the head of every source.
func (m *merger) merge(cut uint64) {
	for {
		best, at := cut+1, -1
		if cut == ^uint64(0) {
			best = cut
		}
		for i, runs := range m.src {
			if len(runs) > 0 {
				if t := runs[0].index[0].stamp; t < best {
					best, at = t, i
				}
			}
		}
		if at < 0 {
			return
		}
		m.emit(at)
	}
}

// emit copies the first record of source i.
func (m *merger) emit(i int) {
	r := &m.src[i][0]
	e, b := r.index[0], r.s
	if len(m.out)+int(e.len) > cap(m.out) {
		m.flush()
	}
	m.out = append(m.out, b.p[e.off:e.off+e.len]...)
	b.left--
	if r.index = r.index[1:]; len(r.index) == 0 {
		m.src[i] = slices.Delete(m.src[i], 0, 1)
		m.release(b)
	}
}

func (m *merger) flush() {
	if len(m.out) > 0 {
		if _, err := m.dst.Write(m.out); err != nil && m.err == nil {
			m.err = err
		}
	}
	m.out = m.out[:0]
}
