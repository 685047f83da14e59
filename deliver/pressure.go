package deliver

import (
	"slices"
	"sync"
)

// pressure is the lack of room in the memories in front of an outlet.
type pressure struct {
	mu    sync.Mutex // leaf; guards the rest
	full  []func() bool
	needs []func() (drops, waits bool)
}

// add adds the states of a producer. Nil ones are left out.
func (p *pressure) add(full func() bool, state func() (drops, waits bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if full != nil {
		p.full = append(p.full, full)
	}
	if state != nil {
		p.needs = append(p.needs, state)
	}
}

// areFull reports whether a producer is full that would rather spill than wait.
func (p *pressure) areFull() bool {
	p.mu.Lock()
	full := p.full
	p.mu.Unlock()
	return slices.ContainsFunc(full, func(full func() bool) bool { return full() })
}

// need returns what producers need a handler for, or room that held streams have.
func (p *pressure) need() (n needs) {
	p.mu.Lock()
	all := p.needs
	p.mu.Unlock()
	for _, state := range all {
		drops, waits := state()
		n.drops, n.waits = n.drops || drops, n.waits || waits
	}
	return n
}
