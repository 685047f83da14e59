package experiments

import (
	"io"
	"sync"
	"unsafe"
)

// naiveWriter is n mutexWriters before one destination. Which one a caller
// writes to depends on its stack address: its own records come out of order as
// soon as its stack moves, those of different callers always do.
type naiveWriter struct {
	*pipe
	shards []naiveShard
}

type naiveShard struct {
	mu      sync.Mutex
	cur     *buffer
	records int64
	bytes   int64
	_       [88]byte // 128 in all
}

func newNaive(dst io.Writer, size, count, n int) *naiveWriter {
	w := &naiveWriter{pipe: newPipe(dst, size, max(count, 2*n)), shards: make([]naiveShard, n)}
	for i := range w.shards {
		w.shards[i].cur = <-w.free
	}
	return w
}

// pick spreads callers over n shards by the address of their stack.
func pick(n int) int {
	var here byte
	h := uint64(uintptr(unsafe.Pointer(&here))) >> 11 * 0x9E3779B97F4A7C15
	return int(h >> 32 % uint64(n))
}

func (w *naiveWriter) Write(p []byte) (int, error) {
	s := &w.shards[pick(len(w.shards))]
	s.mu.Lock()
	b := s.cur
	if len(b.p)-b.n < len(p) {
		w.full <- b
		b = <-w.free
		s.cur = b
	}
	b.n += copy(b.p[b.n:], p)
	s.records++
	s.bytes += int64(len(p))
	s.mu.Unlock()
	return len(p), nil
}

func (w *naiveWriter) Drain() error {
	var last []*buffer
	for i := range w.shards {
		last = append(last, w.shards[i].cur)
	}
	return w.end(last...)
}
