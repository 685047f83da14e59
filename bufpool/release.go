package bufpool

import (
	"runtime"
	"slices"
	"unsafe"
	"weak"
)

// The pool releases memory and detects dropped buffers in finalizers, so it needs no goroutine and
// no timer. A finalizer refers to the pool by a weak pointer, because a strong one would keep the
// pool and its free buffers alive.

// A sentinel trims its pool after each garbage collection, as long as the pool is alive. Only its
// finalizer refers to it. The finalizer sets itself again, which does not allocate; a cleanup
// (runtime.AddCleanup) would need a new object for each collection.
type sentinel struct{ pool weak.Pointer[Pool] }

// trimAfterGC arranges that the pool is trimmed after each garbage collection.
func trimAfterGC(self weak.Pointer[Pool]) {
	runtime.SetFinalizer(&sentinel{self}, (*sentinel).afterCollection)
}

// afterCollection is the finalizer of a sentinel.
func (s *sentinel) afterCollection() {
	if p := s.pool.Value(); p != nil {
		p.trim()
		runtime.SetFinalizer(s, (*sentinel).afterCollection)
	}
}

// trim drops the free buffers that were not needed since the last trim. If a list has always held
// at least n free buffers since then, trim drops n of them, the least recently used first. A pool
// that is idle for a whole collection cycle is empty afterwards. A busy pool keeps the buffers it
// uses.
func (p *Pool) trim() {
	for _, c := range p.classes {
		for i := range c.lists {
			l := &c.lists[i]
			l.mu.Lock()
			idle := int(l.minItems)
			dropped := slices.Clone(l.items[:idle])
			l.dropLocked(idle)
			l.minItems = int32(len(l.items))
			if idle > 0 && l.minItems == 0 {
				l.items = nil // releases the array, which may be large because of a burst
			}
			if it, ok := l.evictIdleLocked(); ok {
				dropped = append(dropped, it)
			}
			c.released.Add(uint64(len(dropped)))
			if p.debug != nil {
				for _, f := range dropped {
					p.quarantineLocked(c, f)
				}
				dropped = nil
			}
			l.mu.Unlock()
			for _, f := range dropped { // without the lock, because unregistering may be slow
				c.unregister(f.mem, f.node)
			}
		}
		c.nodes.shrink()
	}
}

// whenDropped returns the finalizer of the buffers of class i. The finalizer counts a buffer that
// was dropped in use. In debug mode it also inspects a buffer that was dropped while free.
//
// A cleanup (runtime.AddCleanup) cannot replace the finalizer, because a cleanup may run after the
// memory is in use again, and then a slice at the same address would be mistaken for the buffer.
// With a finalizer, the memory is freed one collection later.
func whenDropped(self weak.Pointer[Pool], i int) func(*byte) {
	return func(mem *byte) {
		p := self.Value()
		if p == nil {
			return
		}
		c := p.classes[i]
		if n := c.nodes.find(uintptr(unsafe.Pointer(mem))); n != nil {
			p.accountLost(c, mem, n)
			c.nodes.remove(n)
		}
	}
}

// accountLost counts a buffer that was dropped in use. In debug mode it inspects a buffer that has
// left the quarantine. The finalizer calls it.
func (p *Pool) accountLost(c *class, mem *byte, n *node) {
	l := n.lockHome()
	defer l.mu.Unlock()
	if p.debug != nil && n.free {
		p.inspectLocked(c, mem, n)
		return
	}
	n.free = true
	c.lost.Add(1)
	if p.debug != nil {
		p.debug.leaked(Fault{Kind: lostBuffer, Class: c.size, Got: n.trace.got})
	}
}
