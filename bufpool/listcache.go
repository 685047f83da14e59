package bufpool

import "sync/atomic"

// A listCache holds the one buffer of a list that Get and Put move without a lock. Each of them needs one
// compare-and-swap, which also counts the call.
//
// While the buffer is in use it still belongs to the cache, which keeps it alive, so that put only compares
// addresses. A buffer that is in use for a long time leaves the cache, see [list.evictIdleLocked] and
// [list.evictLocked].
//
// No buffer has two owners. The state becomes inUse only by a get, and each get creates a word that never
// existed before. Therefore the compare-and-swap of a put fails if the buffer was used again after the put
// has read the word.
type listCache struct {
	// word has the state in bits 0 and 1, the number of free buffers that left the cache in bits 2
	// to 9, and the number of gets above. So a word of state free or inUse never occurs twice,
	// unless 256 collections pass without a get and the middle bits wrap. A get that is delayed
	// for that long returns a buffer that the pool has dropped and that no other caller has.
	word atomic.Uint64
	mem  atomic.Pointer[byte] // first byte of the buffer; nil if vacant

	// evictions is twice the number of buffers in use that left the cache, plus one
	// while one is leaving. Written under the list's lock.
	evictions atomic.Uint64
}

// States of a cache.
const (
	vacant    = 0 // the cache has no buffer
	free      = 1 // its buffer is free
	inUse     = 2 // its buffer is in use
	stateMask = 3

	leaveStep = 1 << 2                    // adds one to the number of free buffers that left the cache
	leaveMask = 0xFF << 2                 // bits of that number
	getsBit   = 10                        // lowest bit of the number of gets
	getStep   = 1<<getsBit + inUse - free // adds one get, and changes the state from free to inUse
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

// put returns true if mem is the buffer of the cache and was in use; the buffer is then free.
func (s *listCache) put(mem *byte) bool {
	w := s.word.Load()
	// word is read before mem. If the cache gets another buffer in between, word changes, and the
	// compare-and-swap fails.
	return w&stateMask == inUse && s.mem.Load() == mem && s.word.CompareAndSwap(w, w-inUse+free)
}

// counts returns the numbers of gets and puts of the cache, and whether its buffer is free. evictions must
// have had the same value before and after word was read.
func counts(word, evictions uint64) (gets, puts uint64, isFree bool) {
	gets = word >> getsBit
	left := evictions / 2 // buffers that left the cache while in use, so their puts are counted elsewhere
	switch word & stateMask {
	case free:
		isFree = true
	case inUse:
		return gets, gets - 1 - left, false
	case vacant:
		left += evictions & 1 // the buffer has just left
	}
	return gets, gets - left, isFree
}

// cacheLocked stores the free buffer of n in the vacant cache.
func (l *list) cacheLocked(mem *byte, n *node) {
	n.free = false // the state of the cache records that the buffer is free
	l.cached = n
	l.mem.Store(mem)
	l.word.Store(l.word.Load() + free - vacant)
}

// evictLocked makes the cache vacant if its buffer is in use. The owner then returns the buffer to the
// stack, or the garbage collector finds that it was dropped.
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

// stealLocked removes the buffer from the cache and returns it, if it is free.
func (l *list) stealLocked() (*byte, *node) {
	mem, n := l.get(), l.cached
	if mem != nil {
		l.evictLocked()
	}
	return mem, n
}

// evictIdleLocked makes the cache vacant if it was not used since the previous call. It returns the buffer
// if it was free.
func (l *list) evictIdleLocked() (evicted item, ok bool) {
	w := l.word.Load()
	if w != l.lastReview {
		l.lastReview = w
		return item{}, false
	}
	switch w & stateMask {
	case inUse: // the garbage collector finds out whether the buffer was dropped
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
