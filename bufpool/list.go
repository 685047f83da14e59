package bufpool

import (
	"sync"
	"sync/atomic"
)

// An item is a free buffer. mem keeps the buffer alive.
type item struct {
	mem  *byte // first byte of the buffer
	node *node
}

// A list holds some of the free buffers of a class: one in its cache, and the rest in a stack. A
// class has several lists to reduce contention. mu guards the fields below it.
//
// To avoid a deadlock, a goroutine that holds mu acquires the lock of another list only with
// TryLock. It may acquire the locks of the registry and of the fault log.
type list struct {
	listCache

	mu       sync.Mutex
	items    []item // the stack; the most recently used buffer is the last
	pushes   uint64 // buffers that Put stored in the stack
	pops     uint64 // buffers that Get took from the stack
	limit    int32  // maximum number of free buffers, including the cached one
	minItems int32  // minimum of len(items) since the last trim

	cached     *node  // node of the buffer in the cache; nil if the cache is vacant
	missedWord uint64 // value of listCache.word when a Get last found the cached buffer in use
	lastReview uint64 // value of listCache.word at the last evictIdleLocked

	reported published

	// A list occupies exactly two cache lines of 64 bytes, so lists need no padding. CPUs prefetch
	// lines in pairs.
}

// published holds the counters of a list for readers that do not wait for its lock. The holder of
// the lock stores them after every reportEvery operations, and in Stats.
type published struct {
	pushes, pops atomic.Uint64
	held         atomic.Int32 // len(items)
}

// reportEvery is the number of operations after which the holder of the lock publishes the
// counters. A reader without the lock may therefore miss up to 63 operations of each kind.
const reportEvery = 64

// reportLocked publishes the counters.
func (l *list) reportLocked() {
	l.reported.pushes.Store(l.pushes)
	l.reported.pops.Store(l.pops)
	l.reported.held.Store(int32(len(l.items)))
}

// popLocked removes the most recently used free buffer, which is most likely in a CPU cache. The
// stack must not be empty.
func (l *list) popLocked() (*byte, *node) {
	last := len(l.items) - 1
	it := &l.items[last]
	mem, n := it.mem, it.node
	n.free = false
	it.mem = nil // with this reference, the list would keep alive a buffer that its owner drops
	l.items = l.items[:last]
	l.minItems = min(l.minItems, int32(last))
	if l.pops++; l.pops%reportEvery == 0 {
		l.reportLocked()
	}
	return mem, n
}

// getLocked returns a free buffer, or nil. The caller has found no free buffer in the cache.
func (l *list) getLocked() *byte {
	if len(l.items) == 0 {
		return l.get()
	}
	// The cache should hold the buffer that is used most often. If no Get or Put has used the
	// cached buffer since the previous miss, the buffer is in use for a long time, or its owner
	// is not running. The buffer then leaves the cache to make room for another buffer.
	if l.cached != nil {
		if w := l.word.Load(); w != l.missedWord {
			l.missedWord = w
		} else {
			l.evictLocked()
		}
	}
	mem, _ := l.popLocked()
	return mem
}

// pushLocked stores a buffer in the stack. The stack must have room.
func (l *list) pushLocked(mem *byte, n *node) {
	n.free = true
	l.items = append(l.items, item{mem, n})
	if l.pushes++; l.pushes%reportEvery == 0 {
		l.reportLocked()
	}
}

// storeLocked stores the free buffer of n, whose home list is l. It returns false if l is full.
func (l *list) storeLocked(c *class, mem *byte, n *node) bool {
	switch {
	case len(l.items) >= int(l.limit):
		return false
	case l.cached != nil && len(l.items)+1 < int(l.limit):
		l.pushLocked(mem, n)
		return true
	case l.cached != nil && !l.evictLocked(): // the cached buffer is free and counts toward the limit
		return false
	}
	l.cacheLocked(mem, n)
	c.cachePuts.Add(1)
	return true
}

// dropLocked drops the i least recently used buffers of the stack.
func (l *list) dropLocked(i int) {
	rest := copy(l.items, l.items[i:])
	clear(l.items[rest:])
	l.items = l.items[:rest]
	l.minItems = min(l.minItems, int32(rest))
}
