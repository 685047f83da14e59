package bufpool

import "sync/atomic"

// A listCache holds the one buffer of a list that Get and Put move without a lock. Each of them needs
// one compare-and-swap, which also counts the call.
//
// A buffer in use still belongs to the cache, which keeps it alive, so that put only compares
// addresses. A buffer that is in use for long loses its cache: see [list.reviewLocked] and
// [list.evictLocked].
//
// No buffer has two owners. The state is lent only after a get, and each get makes a word that never
// existed before. So a put that is delayed between reading and swapping the word fails.
type listCache struct {
	// word has the state in bits 0 and 1, the number of free buffers that left the cache in bits 2
	// to 9, and the number of gets above. So a word of state free or lent never occurs twice,
	// unless 256 collections pass without a get and the middle bits wrap. A get that is delayed
	// for that long returns a buffer that the pool has dropped and that no other caller has.
	word atomic.Uint64
	mem  atomic.Pointer[byte] // first byte of the buffer; nil if vacant

	// evictions is twice the number of lent buffers that left the cache, plus one
	// while one is leaving. Written under the list's lock.
	evictions atomic.Uint64
}

// States of a cache.
const (
	vacant    = 0
	free      = 1 // its buffer is free
	lent      = 2 // its buffer is in use
	stateMask = 3

	leaveStep = 1 << 2 // in the bits of leaveMask
	leaveMask = 0xFF << 2
	getsBit   = 10
	getStep   = 1<<getsBit + lent - free
)

// get returns the buffer if it is free, otherwise nil.
func (s *listCache) get() *byte {
	w := s.word.Load()
	mem := s.mem.Load()
	if w&stateMask == free && s.word.CompareAndSwap(w, w+getStep) {
		return mem
	}
	return nil
}

// put returns the buffer at mem to the cache if it is the cache's buffer and in use.
func (s *listCache) put(mem *byte) bool {
	w := s.word.Load()
	// The word first: if the cache gets another buffer in between, it changes.
	return w&stateMask == lent && s.mem.Load() == mem && s.word.CompareAndSwap(w, w-lent+free)
}

// counts returns the numbers of gets and puts of the cache, and whether its buffer is free, from a
// value of word and one of evictions that was the same before and after it was read.
func counts(word, evictions uint64) (gets, puts uint64, isFree bool) {
	gets = word >> getsBit
	gone := evictions / 2
	switch word & stateMask {
	case free:
		isFree = true
	case lent:
		return gets, gets - 1 - gone, false
	case vacant:
		gone += evictions & 1 // it has just left
	}
	return gets, gets - gone, isFree
}

// settleLocked caches the free buffer of n in the vacant cache.
func (l *list) settleLocked(mem *byte, n *node) {
	n.free = false // the cache knows
	l.cached = n
	l.mem.Store(mem)
	l.word.Store(l.word.Load() + free - vacant)
}

// evictLocked makes the cache vacant if its buffer is lent. The owner puts it into
// the list, or the collector finds that it has none any more.
func (l *list) evictLocked() bool {
	w := l.word.Load()
	if w&stateMask != lent {
		return false
	}
	l.evictions.Add(1)
	if !l.word.CompareAndSwap(w, w-lent+vacant) {
		l.evictions.Add(^uint64(0)) // it came back
		return false
	}
	l.mem.Store(nil)
	l.cached = nil
	l.evictions.Add(1)
	return true
}

// stealLocked removes the buffer from the cache if it is free.
func (l *list) stealLocked() (*byte, *node) {
	mem, n := l.get(), l.cached
	if mem != nil {
		l.evictLocked()
	}
	return mem, n
}

// reviewLocked makes the cache vacant if nothing happened there since it was
// called last, and returns the buffer if it was free.
func (l *list) reviewLocked() (gone item, ok bool) {
	w := l.word.Load()
	if w != l.reviewed {
		l.reviewed = w
		return item{}, false
	}
	switch w & stateMask {
	case lent: // for long: let the collector see whether by anybody
		l.evictLocked()
	case free:
		left := w&^leaveMask | (w+leaveStep)&leaveMask
		if l.word.CompareAndSwap(w, left-free+vacant) {
			gone = item{l.mem.Load(), l.cached}
			gone.node.free = true
			l.mem.Store(nil)
			l.cached = nil
			return gone, true
		}
	}
	return item{}, false
}
