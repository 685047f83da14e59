package bufpool

import (
	"sync"
	"sync/atomic"
)

// An item is one free buffer. The list holds it by mem and so keeps it alive.
type item struct {
	mem  *byte // its first byte
	node *node
}

// A list holds some of the free buffers of a class: one in its cache, the others in a stack. A class
// has several lists to reduce contention.
//
// While mu is held, the lock of another list is only tried, never waited for. The locks of the
// registry and the fault log are acquired inside mu.
type list struct {
	listCache

	mu     sync.Mutex
	items  []item // the stack; the last is the one used last
	pushes uint64 // buffers that Put stored in the stack
	pops   uint64 // buffers that Get took from it
	limit  int32  // of free buffers
	low    int32  // the fewest items there were since the last trim

	cached   *node  // of the buffer in the cache; nil if vacant
	stale    uint64 // the cache's word when last a Get found its buffer lent
	reviewed uint64 // the cache's word at the last review

	reported published

	// No padding: these are two cache lines, and neighbours are prefetched in
	// pairs.
}

// published are the counters of a list for readers that do not wait for its lock. The holder of the
// lock stores them every tellEvery operations, and whenever Stats holds it.
type published struct {
	pushes, pops atomic.Uint64
	held         atomic.Int32 // len(items)
}

const tellEvery = 64

func (l *list) reportLocked() {
	l.reported.pushes.Store(l.pushes)
	l.reported.pops.Store(l.pops)
	l.reported.held.Store(int32(len(l.items)))
}

// popLocked removes the most recently used free buffer, which is the most likely one in a cache. The
// stack must not be empty.
func (l *list) popLocked() (*byte, *node) {
	last := len(l.items) - 1
	it := &l.items[last]
	mem, n := it.mem, it.node
	n.free = false
	it.mem = nil // or the list would keep alive what its owner drops
	l.items = l.items[:last]
	l.low = min(l.low, int32(last))
	if l.pops++; l.pops%tellEvery == 0 {
		l.reportLocked()
	}
	return mem, n
}

// getLocked returns a free buffer, or nil. The cache was just found empty.
func (l *list) getLocked() *byte {
	if len(l.items) == 0 {
		return l.get()
	}
	// The cache is for the most frequent caller. If its buffer is still out, its owner is not
	// running or keeps it: another buffer gets the cache.
	if l.cached != nil {
		if w := l.word.Load(); w != l.stale {
			l.stale = w
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
	if l.pushes++; l.pushes%tellEvery == 0 {
		l.reportLocked()
	}
}

// storeLocked stores a buffer whose node has home l, or reports that l is full.
func (l *list) storeLocked(c *class, mem *byte, n *node) bool {
	switch {
	case len(l.items) >= int(l.limit):
		return false
	case l.cached != nil && len(l.items)+1 < int(l.limit):
		l.pushLocked(mem, n)
		return true
	case l.cached != nil && !l.evictLocked(): // one place is left, and the cached one came first
		return false
	}
	l.settleLocked(mem, n)
	c.settles.Add(1)
	return true
}

// dropLocked removes the i least recently used buffers from the stack.
func (l *list) dropLocked(i int) {
	rest := copy(l.items, l.items[i:])
	clear(l.items[rest:])
	l.items = l.items[:rest]
	l.low = min(l.low, int32(rest))
}
