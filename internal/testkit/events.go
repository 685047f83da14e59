package testkit

import (
	"slices"
	"sync"

	"github.com/forebay-log/forebay/batch"
)

// Events collects the events passed to OnError.
type Events struct {
	mu  sync.Mutex
	all []batch.Event
}

// Add adds an event. It can be used as OnError.
func (e *Events) Add(ev batch.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

// Ops returns the Op of all events so far.
func (e *Events) Ops() (ops []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.all {
		ops = append(ops, e.all[i].Op)
	}
	return ops
}

// Count returns the number of events with the given Op.
func (e *Events) Count(op string) (n int) {
	for _, o := range e.Ops() {
		if o == op {
			n++
		}
	}
	return n
}

// Has reports whether there is an event with the given Op.
func (e *Events) Has(op string) bool { return slices.Contains(e.Ops(), op) }
