package rivals

import (
	"io"
	"sync"
)

// A SourceSlab is the slab writer of the project's original design document, reconstructed from its
// description. Callers copy records under a mutex into the current slab. Full slabs are passed over
// a channel to one goroutine, which writes and returns them.
//
// A SourceSlab allocates nothing per record. It does not count records, always waits for a free
// slab, and passes each slab to the destination in one Write.
type SourceSlab struct {
	mu   sync.Mutex
	cur  []byte
	free chan []byte
	full chan []byte
	done chan error
}

// NewSourceSlab returns a SourceSlab with count slabs of size bytes in front of dst.
func NewSourceSlab(dst io.Writer, size, count int) *SourceSlab {
	s := &SourceSlab{free: make(chan []byte, count), full: make(chan []byte, count), done: make(chan error, 1)}
	for range count {
		s.free <- make([]byte, 0, size)
	}
	s.cur = <-s.free
	go func() {
		var first error
		for p := range s.full {
			if _, err := dst.Write(p); err != nil && first == nil {
				first = err
			}
			s.free <- p[:0]
		}
		s.done <- first
	}()
	return s
}

// Write copies p, which must not be larger than a slab. It waits while no slab is free.
func (s *SourceSlab) Write(p []byte) (int, error) {
	s.mu.Lock()
	if cap(s.cur)-len(s.cur) < len(p) {
		s.full <- s.cur
		s.cur = <-s.free
	}
	s.cur = append(s.cur, p...)
	s.mu.Unlock()
	return len(p), nil
}

// Drain writes all records and stops the goroutine.
func (s *SourceSlab) Drain() error {
	s.full <- s.cur
	close(s.full)
	return <-s.done
}
