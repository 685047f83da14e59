package loki

import (
	"sync"
	"sync/atomic"
)

// A valueCounter counts the distinct values of a label. Each value creates at least one stream, and
// Loki limits the number of streams. When a label has more values than MaxLabelValues of [Limits],
// it becomes metadata permanently, even in records with values that were labels before. All methods
// are safe for concurrent use.
//
//	counting ──more than MaxLabelValues values──▶ exceeded
type valueCounter struct {
	exceeded atomic.Bool // read without mu, for each record with the label

	mu   sync.Mutex          // guards seen; no other lock is acquired while it is held
	seen map[uint64]struct{} // hashes of the values; nil in the state exceeded
}

// addValue adds a value by its hash. It returns true if this is the first value that exceeds limit.
func (s *valueCounter) addValue(value uint64, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exceeded.Load() {
		return false
	}
	if s.seen == nil {
		s.seen = map[uint64]struct{}{}
	}
	if s.seen[value] = struct{}{}; len(s.seen) <= limit {
		return false
	}
	s.exceeded.Store(true)
	s.seen = nil
	return true
}
