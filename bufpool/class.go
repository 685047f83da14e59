package bufpool

import (
	"runtime"
	"unsafe"
)

// A class is one size with its lists and the registry of its buffers.
type class struct {
	size  int
	lists []list
	mask  uint32 // len(lists)-1, a power of two less one
	nodes registry

	dropped func(mem *byte) // the finalizer of its buffers
}

// newClass returns a class that keeps at most limit free buffers of size bytes,
// spread over at most maxLists lists; maxLists is a power of two.
func newClass(size, limit, maxLists int) *class {
	n := 1
	for n < maxLists && 8*n <= limit { // leaves four buffers for each
		n *= 2
	}
	c := &class{size: size, lists: make([]list, n), mask: uint32(n - 1)}
	for i := range c.lists {
		c.lists[i].limit = limit / n
		if i < limit%n {
			c.lists[i].limit++
		}
	}
	c.nodes.table.Store(newNodeTable(minTableBits))
	return c
}

// hint picks the list to try first: the same one as long as a goroutine calls
// from about the same stack depth, mostly another one for another goroutine.
// Where its stack lies is the only thing a goroutine can learn about itself at
// no cost. A poor guess costs time, nothing else.
func (c *class) hint() uint32 {
	var here byte
	page := uint64(uintptr(unsafe.Pointer(&here)) >> 11) // stacks are 2 KiB or more
	return uint32(page*0x9E3779B97F4A7C15>>32) & c.mask
}

// takeElsewhere returns a free buffer, or nil, when list h had none or was busy.
// It tries the others, then waits for h if that was busy. What it finds
// elsewhere moves to h, so that the next Get finds it there.
func (c *class) takeElsewhere(h uint32, busy bool) *byte {
	home := &c.lists[h]
	for i := uint32(1); i <= c.mask; i++ {
		l := &c.lists[(h+i)&c.mask]
		if !l.mu.TryLock() {
			continue
		}
		if len(l.items) > 0 {
			mem, n := l.popLocked()
			n.home.Store(home)
			l.mu.Unlock()
			return mem
		}
		l.mu.Unlock()
	}
	if busy {
		home.mu.Lock()
		defer home.mu.Unlock()
		if len(home.items) > 0 {
			mem, _ := home.popLocked()
			return mem
		}
	}
	return nil
}

// lockHome locks the list n is at home in and returns it.
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

// give returns the buffer of n, whose first byte is mem, to the class. It
// reports false if the buffer was free already.
func (c *class) give(mem *byte, n *node) bool {
	l := n.lockHome()
	if n.free {
		l.mu.Unlock()
		return false
	}
	l.puts++
	if len(l.items) < l.limit {
		l.pushLocked(mem, n)
		l.mu.Unlock()
		return true
	}
	c.giveElsewhereUnlock(l, mem, n)
	return true
}

// giveElsewhereUnlock is give for a full home list, whose lock it releases: it
// stores the buffer in a list with room, or gives it up.
func (c *class) giveElsewhereUnlock(home *list, mem *byte, n *node) {
	for i := range c.lists {
		l := &c.lists[i]
		if l == home || !l.mu.TryLock() {
			continue
		}
		if len(l.items) < l.limit {
			n.home.Store(l)
			l.pushLocked(mem, n)
			l.mu.Unlock()
			home.mu.Unlock()
			return
		}
		l.mu.Unlock()
	}
	home.discarded++
	n.free = true
	home.mu.Unlock()
	c.forget(mem, n)
}

// forget lets the buffer of n, whose first byte is mem, go: when its owner
// drops it the collector may free it at once.
func (c *class) forget(mem *byte, n *node) {
	c.nodes.remove(n)
	runtime.SetFinalizer(mem, nil)
}
