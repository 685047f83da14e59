package bufpool

import "sync"

// A free is one buffer nobody owns. The list holds it by mem and so keeps it
// alive.
type free struct {
	mem  *byte // its first byte
	node *node
}

// A list is one of the stacks of free buffers of a class, with the counters of
// what went through it. A class has several so that goroutines seldom meet on
// one lock.
//
// No lock of another list is waited for while holding mu; a second one is only
// ever tried. The registry's lock and the fault log's are taken inside mu.
type list struct {
	mu    sync.Mutex
	items []free // the last is the one used last
	limit int    // of items
	low   int    // the fewest items there were since the last trim
	counters

	_ [128 - 96]byte // two cache lines: neighbours are prefetched in pairs
}

// counters counts what happened at one list. Guarded by its lock.
type counters struct {
	hits      uint64 // Gets served from this list
	misses    uint64 // Gets that found no free buffer and made one for this list
	puts      uint64 // accepted Puts of buffers whose home was this list
	discarded uint64 // of those, or of free ones: given up, see ClassStats.Discarded
	released  uint64 // free buffers given back by trim
	lost      uint64 // buffers collected before a Put
}

func (c *counters) add(d *counters) {
	c.hits += d.hits
	c.misses += d.misses
	c.puts += d.puts
	c.discarded += d.discarded
	c.released += d.released
	c.lost += d.lost
}

// popLocked takes the free buffer used last, which is the one most likely in a
// cache. The list must not be empty.
func (l *list) popLocked() (*byte, *node) {
	last := len(l.items) - 1
	it := &l.items[last]
	mem, n := it.mem, it.node
	n.free = false
	it.mem = nil // or the list would keep alive what its owner drops
	l.items = l.items[:last]
	if last < l.low {
		l.low = last
	}
	l.hits++
	return mem, n
}

// pushLocked stores a buffer whose node has home l. There must be room.
func (l *list) pushLocked(mem *byte, n *node) {
	n.free = true
	l.items = append(l.items, free{mem, n})
}

// dropLocked takes the i buffers unused for longest out of the list.
func (l *list) dropLocked(i int) {
	rest := copy(l.items, l.items[i:])
	clear(l.items[rest:])
	l.items = l.items[:rest]
	l.low = min(l.low, rest)
}
