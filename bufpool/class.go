package bufpool

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// A class is one buffer size, with its lists and the registry of its buffers.
type class struct {
	size  int
	lists []list
	mask  uint32 // len(lists)-1; len(lists) is a power of two
	nodes registry

	dropped func(mem *byte) // the finalizer set on each buffer

	_ [64]byte // keeps the counters out of the cache line of the immutable fields
	counters

	// quarantine contains the quarantined buffers in debug mode, the oldest first. The lock of
	// the only list guards it.
	quarantine []item
}

// counters counts the rare events of a class.
type counters struct {
	misses    atomic.Uint64 // Gets that found no free buffer and allocated one
	cachePuts atomic.Uint64 // Puts into a vacant cache
	discarded atomic.Uint64 // buffers of accepted Puts that were dropped because the class was at its limit
	released  atomic.Uint64 // free buffers dropped by trim
	lost      atomic.Uint64 // buffers dropped without a Put
}

// newClass returns a class that retains at most limit free buffers of size bytes in at most maxLists
// lists. maxLists is a power of two.
func newClass(size, limit, maxLists int) *class {
	n := 1
	for n < maxLists && 8*n <= limit { // each list retains at least four buffers
		n *= 2
	}
	c := &class{size: size, lists: make([]list, n), mask: uint32(n - 1)}
	for i := range c.lists {
		c.lists[i].limit = int32(limit / n)
		if i < limit%n {
			c.lists[i].limit++
		}
	}
	c.nodes.table.Store(newNodeTable(minTableBits))
	return c
}

// hint returns the index of the list to try first, derived from the address of the caller's stack.
// Calls of a goroutine from about the same stack depth get the same list; other goroutines usually
// get other lists. Go has no other cheap way to tell goroutines apart. A bad hint only costs time.
func (c *class) hint() uint32 {
	var here byte
	page := uint64(uintptr(unsafe.Pointer(&here)) >> 11) // stacks have at least 2 KiB
	return uint32(page*0x9E3779B97F4A7C15>>32) & c.mask
}

// get returns a free buffer, or nil if there is none. The caller has already tried the cache of
// list h. get tries the other lists before it waits for the lock of h. A buffer taken from another
// list belongs to h from then on.
func (c *class) get(h uint32) *byte {
	home := &c.lists[h]
	if !home.mu.TryLock() {
		return c.getContended(h)
	}
	mem := home.getLocked()
	home.mu.Unlock()
	if mem == nil {
		mem = c.getElsewhere(h)
	}
	return mem
}

// getContended is like get, while another goroutine holds the lock of list h.
func (c *class) getContended(h uint32) *byte {
	if mem := c.getElsewhere(h); mem != nil {
		return mem
	}
	home := &c.lists[h]
	home.mu.Lock()
	defer home.mu.Unlock()
	return home.getLocked()
}

// getElsewhere searches the other lists, except those that are locked. It searches their stacks
// before their caches, because other goroutines use the caches.
func (c *class) getElsewhere(h uint32) *byte {
	home := &c.lists[h]
	for _, steal := range []bool{false, true} {
		for i := uint32(1); i <= c.mask; i++ {
			l := &c.lists[(h+i)&c.mask]
			if !l.mu.TryLock() {
				continue
			}
			var mem *byte
			var n *node
			switch {
			case len(l.items) > 0:
				mem, n = l.popLocked()
			case steal:
				mem, n = l.stealLocked()
			}
			if mem != nil {
				n.home.Store(home)
			}
			l.mu.Unlock()
			if mem != nil {
				return mem
			}
		}
	}
	return nil
}

// lockHome locks and returns the home of n, the list to which its buffer is returned. If the home
// changes while lockHome waits for the lock, it tries again.
func (n *node) lockHome() *list {
	l := n.home.Load()
	l.mu.Lock()
	for n.home.Load() != l {
		l.mu.Unlock()
		l = n.home.Load()
		l.mu.Lock()
	}
	return l
}

// put adds the buffer of n, whose first byte is mem, to the free buffers. It returns false if the
// buffer was already free.
func (c *class) put(mem *byte, n *node) bool {
	l := n.home.Load()
	if l.put(mem) {
		return true
	}
	// The most frequent case is handled first: the stack has room.
	l.mu.Lock()
	if n.home.Load() == l && !n.free && l.cached != n && l.cached != nil && len(l.items)+1 < int(l.limit) {
		l.pushLocked(mem, n)
		l.mu.Unlock()
		return true
	}
	l.mu.Unlock()
	return c.putSlow(mem, n)
}

// putSlow implements put for all cases.
func (c *class) putSlow(mem *byte, n *node) bool {
	l := n.lockHome()
	if l.cached == n {
		// The buffer is free, or another goroutine has moved it to the cache after put read n.home.
		ok := l.listCache.put(mem)
		l.mu.Unlock()
		return ok
	}
	if n.free {
		l.mu.Unlock()
		return false
	}
	if l.storeLocked(c, mem, n) {
		l.mu.Unlock()
		return true
	}
	c.putElsewhereUnlock(l, mem, n)
	return true
}

// putElsewhereUnlock stores the buffer of n in a list with room, because its home list is full. If
// no list has room, it drops the buffer. It unlocks home.
func (c *class) putElsewhereUnlock(home *list, mem *byte, n *node) {
	for i := range c.lists {
		l := &c.lists[i]
		if l == home || !l.mu.TryLock() {
			continue
		}
		if l.storeLocked(c, mem, n) {
			n.home.Store(l)
			l.mu.Unlock()
			home.mu.Unlock()
			return
		}
		l.mu.Unlock()
	}
	c.discarded.Add(1)
	n.free = true
	home.mu.Unlock()
	c.unregister(mem, n)
}

// unregister removes the buffer of n, whose first byte is mem, from the pool. The garbage collector
// frees it when nothing refers to it.
func (c *class) unregister(mem *byte, n *node) {
	c.nodes.remove(n)
	runtime.SetFinalizer(mem, nil)
}
