package bufpool

import (
	"runtime"
	"weak"
)

// How the pool gives memory back, and learns that a buffer will never come.
// Both ride on the garbage collector, so that no goroutine or timer is needed.
// Cleanups must not reach the pool but through a weak pointer: it reaches the
// free buffers, which would then never be collected with it.

// trimAfterGC has the pool trimmed after each collection, as long as it lives.
func trimAfterGC(self weak.Pointer[Pool]) {
	// Unreachable at once, so the next collection finds it.
	sentinel := new([minAlloc]byte)
	runtime.AddCleanup(sentinel, func(self weak.Pointer[Pool]) {
		if p := self.Value(); p != nil {
			p.trim()
			trimAfterGC(self)
		}
	}, self)
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
			if p.debug != nil {
				p.checkFreeLocked(c, l)
			}
			idle := l.low
			for _, f := range l.items[:idle] {
				c.nodes.remove(f.node)
			}
			l.dropLocked(idle)
			l.released += uint64(idle)
			l.low = len(l.items)
			if idle > 0 && l.low == 0 {
				l.items = nil // a burst may have made it long
			}
			l.mu.Unlock()
		}
	}
}

// A corpse names a buffer that has been collected.
type corpse struct {
	pool  weak.Pointer[Pool]
	class int
	addr  uintptr
	id    uint64
}

// collected is the cleanup of every buffer.
func collected(x corpse) {
	p := x.pool.Value()
	if p == nil {
		return
	}
	c := p.classes[x.class]
	// Given up before, mostly; or the address is a later buffer's by now.
	n := c.nodes.find(x.addr)
	if n == nil || n.id != x.id {
		return
	}
	p.lose(c, n)
	c.nodes.remove(n)
}

// lose accounts for a buffer that was collected while in use.
func (p *Pool) lose(c *class, n *node) {
	l := n.lockHome()
	defer l.mu.Unlock()
	if n.free {
		return
	}
	n.free = true
	l.lost++
	if p.debug != nil {
		p.debug.leaked(Leak{Class: c.size, Collected: true, Got: n.trace.got})
	}
}
