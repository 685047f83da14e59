package bufpool

import "sync/atomic"

// A listCache holds one buffer of a list. Get takes it and Put returns it without a lock. Each
// needs one compare-and-swap, which also counts the call.
//
// A buffer in use still belongs to the cache, which keeps it alive. Therefore put only compares
// addresses. A buffer that is in use for a long time leaves the cache; see [list.evictIdleLocked]
// and [list.evictLocked].
//
// No buffer has two owners. Only get changes the state to inUse, and each get creates a new value
// of word. Therefore the compare-and-swap of a put fails if the buffer was used again after put has
// read word.
type listCache struct {
	// word contains the state in bits 0 and 1, the number of free buffers that left the cache in
	// bits 2 to 9, and the number of gets in the bits above. Because of these numbers, a value of
	// word with state free or inUse occurs twice only if 256 collections pass without a get. Even
	// then no buffer has two owners: a get that is delayed for that long returns a buffer that the
	// pool has dropped.
	word atomic.Uint64
	mem  atomic.Pointer[byte] // first byte of the buffer; nil if vacant

	// evictions is twice the number of buffers that left the cache while in use, plus one while
	// such a buffer is leaving. It is written under the list's lock.
	evictions atomic.Uint64
}

// States of a cache.
const (
	vacant    = 0 // the cache has no buffer
	free      = 1 // its buffer is free
	inUse     = 2 // its buffer is in use
	stateMask = 3

	leaveStep = 1 << 2                    // adds one to the number of free buffers that left the cache
	leaveMask = 0xFF << 2                 // bits of the number of free buffers that left the cache
	getsBit   = 10                        // lowest bit of the number of gets
	getStep   = 1<<getsBit + inUse - free // adds one get, and changes the state from free to inUse
)

// get returns the buffer if it is free, or nil.
func (s *listCache) get() *byte {
	w := s.word.Load()
	mem := s.mem.Load()
	if w&stateMask == free && s.word.CompareAndSwap(w, w+getStep) {
		return mem
	}
	return nil
}

// put makes the buffer free and returns true if mem is the buffer of the cache and in use.
func (s *listCache) put(mem *byte) bool {
	w := s.word.Load()
	// word is read before mem. If the cache gets another buffer in between, word changes, and the
	// compare-and-swap fails.
	return w&stateMask == inUse && s.mem.Load() == mem && s.word.CompareAndSwap(w, w-inUse+free)
}

// counts returns the numbers of gets and puts of the cache, and whether its buffer is free. The
// caller must have read word between two reads of evictions that returned the same value.
func counts(word, evictions uint64) (gets, puts uint64, isFree bool) {
	gets = word >> getsBit
	// left counts the buffers that left the cache while in use. Their puts do not use the cache.
	left := evictions / 2
	switch word & stateMask {
	case free:
		isFree = true
	case inUse:
		return gets, gets - 1 - left, false
	case vacant:
		left += evictions & 1 // a buffer has already left but is not yet counted
	}
	return gets, gets - left, isFree
}

// cacheLocked stores the free buffer of n in the vacant cache.
func (l *list) cacheLocked(mem *byte, n *node) {
	n.free = false // the state in word records that the buffer is free
	l.cached = n
	l.mem.Store(mem)
	l.word.Store(l.word.Load() + free - vacant)
}

// evictLocked makes the cache vacant if its buffer is in use, and reports whether it did. When
// the owner puts the buffer, Put stores it in the stack. If the owner drops the buffer, its
// finalizer counts it as lost.
func (l *list) evictLocked() bool {
	w := l.word.Load()
	if w&stateMask != inUse {
		return false
	}
	l.evictions.Add(1)
	if !l.word.CompareAndSwap(w, w-inUse+vacant) {
		l.evictions.Add(^uint64(0)) // the buffer was returned meanwhile
		return false
	}
	l.mem.Store(nil)
	l.cached = nil
	l.evictions.Add(1)
	return true
}

// stealLocked removes the buffer from the cache and returns it if it is free.
func (l *list) stealLocked() (*byte, *node) {
	mem, n := l.get(), l.cached
	if mem != nil {
		l.evictLocked()
	}
	return mem, n
}

// evictIdleLocked makes the cache vacant if it was not used since the previous call. It returns the
// cached buffer if the buffer is free.
func (l *list) evictIdleLocked() (evicted item, ok bool) {
	w := l.word.Load()
	if w != l.lastReview {
		l.lastReview = w
		return item{}, false
	}
	switch w & stateMask {
	case inUse: // if the owner has dropped the buffer, the garbage collector detects that
		l.evictLocked()
	case free:
		left := w&^leaveMask | (w+leaveStep)&leaveMask
		if l.word.CompareAndSwap(w, left-free+vacant) {
			evicted = item{l.mem.Load(), l.cached}
			evicted.node.free = true
			l.mem.Store(nil)
			l.cached = nil
			return evicted, true
		}
	}
	return item{}, false
}
