package bufpool

import (
	"runtime"
	"slices"
	"unsafe"
	"weak"
)

// How the pool gives memory back, and learns that a buffer will never come.
// Both ride on the garbage collector, so that no goroutine or timer is needed.
// Finalizers must not reach the pool but through a weak pointer: it reaches the
// free buffers, which would then never be collected with it.

// A sentinel has its pool trimmed after each collection, as long as the pool
// lives. Nobody holds it but its finalizer, which sets itself again: other than a
// new object with a cleanup each time, that allocates nothing.
type sentinel struct{ pool weak.Pointer[Pool] }

func trimAfterGC(self weak.Pointer[Pool]) {
	runtime.SetFinalizer(&sentinel{self}, (*sentinel).collected)
}

func (s *sentinel) collected() {
	if p := s.pool.Value(); p != nil {
		p.trim()
		runtime.SetFinalizer(s, (*sentinel).collected)
	}
}

// trim gives up the free buffers that were not needed since the last trim: as
// many as the list had at its emptiest, those unused for longest. A pool that is
// idle during one whole collection cycle is empty after it, a busy one keeps
// what it works with.
func (p *Pool) trim() {
	for _, c := range p.classes {
		for i := range c.lists {
			l := &c.lists[i]
			l.mu.Lock()
			idle := int(l.low)
			gone := slices.Clone(l.items[:idle])
			l.dropLocked(idle)
			l.low = int32(len(l.items))
			if idle > 0 && l.low == 0 {
				l.items = nil // a burst may have made it long
			}
			if it, ok := l.reviewLocked(); ok {
				gone = append(gone, it)
			}
			c.released.Add(uint64(len(gone)))
			if p.debug != nil {
				for _, f := range gone {
					p.holdLocked(c, f)
				}
				gone = nil
			}
			l.mu.Unlock()
			for _, f := range gone { // unlocked: it may take a while
				c.forget(f.mem, f.node)
			}
		}
		c.nodes.shrink()
	}
}

// whenDropped returns the finalizer of the buffers of class i: it accounts for
// one that was dropped in use, and in debug mode looks once more at one that was
// not.
//
// A finalizer, not a cleanup: a cleanup runs some time after the memory may be
// in use again, and until it has run any slice that begins there would pass for
// the buffer. The price is that the memory is free one collection later.
func whenDropped(self weak.Pointer[Pool], i int) func(*byte) {
	return func(mem *byte) {
		p := self.Value()
		if p == nil {
			return
		}
		c := p.classes[i]
		if n := c.nodes.find(uintptr(unsafe.Pointer(mem))); n != nil {
			p.lose(c, mem, n)
			c.nodes.remove(n)
		}
	}
}

// lose accounts for a buffer that was dropped in use, or, in debug mode, has left
// the quarantine.
func (p *Pool) lose(c *class, mem *byte, n *node) {
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
