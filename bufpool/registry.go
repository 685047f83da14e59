package bufpool

import (
	"sync"
	"sync/atomic"
)

// A node describes one buffer. It does not keep the buffer alive; while the buffer is free, its
// list does.
type node struct {
	addr uintptr // address of the buffer's first byte

	// home is the list from which the buffer was last taken, or for which it was allocated. Put
	// returns the buffer to it. home changes only under the lock of the list that it refers to at
	// that time.
	home atomic.Pointer[list]

	// The fields below are guarded by the lock of home.

	// free reports whether the buffer is in a list or dropped; Put refuses such a buffer.
	free  bool
	trace *trace // debug mode only

	// The padding separates nodes of different owners, because the Puts of one owner would
	// otherwise slow down the Puts of another.
	_ [32]byte
}

// A registry finds the buffers of one class by address. With it, Put distinguishes a buffer of this
// pool from any other slice of the same capacity, such as one resliced from a larger buffer or
// grown by append.
//
// No other object can have a registered address: a buffer has a finalizer, and the collector frees
// no object before its finalizer has returned. The finalizer removes the address.
//
// A registry is an open-addressing hash table with linear probing. Every Put reads it without a
// lock. It changes only when a buffer is allocated or dropped.
type registry struct {
	table atomic.Pointer[nodeTable]

	// mu guards the fields below, and changes of table. No other lock is acquired while it is held.
	mu   sync.Mutex
	live int // number of nodes in table
	used int // number of nodes and tombstones in table
}

// A nodeTable is a hash table of nodes by address. It is never more than half full.
type nodeTable struct {
	shift uint // 64 - log2(len(slots))
	slots []atomic.Pointer[node]
}

// tombstone fills the slot of a removed node. No buffer has its address.
var tombstone = new(node)

// minTableBits is the base-2 logarithm of the smallest table size.
const minTableBits = 4

// newNodeTable returns an empty table with 1<<bits slots.
func newNodeTable(bits uint) *nodeTable {
	return &nodeTable{shift: 64 - bits, slots: make([]atomic.Pointer[node], 1<<bits)}
}

// start returns the slot at which the search for addr begins. It uses Fibonacci hashing, in which
// the high bits of the product depend on all bits of the address.
func (t *nodeTable) start(addr uintptr) int {
	return int(uint64(addr) * 0x9E3779B97F4A7C15 >> t.shift)
}

// find returns the node of the buffer at addr, or nil. It may run concurrently with all other
// methods.
func (r *registry) find(addr uintptr) *node {
	t := r.table.Load()
	slots := t.slots
	mask := len(slots) - 1
	// The table is at most half full, so the loop reaches an empty slot.
	for i := t.start(addr); ; i++ {
		n := slots[i&mask].Load()
		if n == nil || n.addr == addr {
			return n
		}
	}
}

// add registers n. The address of n must not be registered yet.
func (r *registry) add(n *node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.table.Load()
	if 2*(r.used+1) > len(t.slots) {
		t = r.rebuildLocked()
	}
	t.place(n)
	r.live++
	r.used++
}

// place stores n in the first empty slot at or after the start of the search for its address.
func (t *nodeTable) place(n *node) {
	mask := len(t.slots) - 1
	i := t.start(n.addr)
	for t.slots[i&mask].Load() != nil {
		i++
	}
	t.slots[i&mask].Store(n)
}

// remove removes n, if it is registered.
func (r *registry) remove(n *node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.table.Load()
	mask := len(t.slots) - 1
	for i := t.start(n.addr); ; i++ {
		switch slot := &t.slots[i&mask]; slot.Load() {
		case n:
			slot.Store(tombstone)
			r.live--
			return
		case nil:
			return
		}
	}
}

// rebuildLocked publishes a table without tombstones in which at most a quarter of the slots is
// used. A reader of the old table still finds every buffer that it can search for, because the
// owner of a newer buffer gets it after the new table is published.
func (r *registry) rebuildLocked() *nodeTable {
	bits := uint(minTableBits)
	for 1<<bits < 4*(r.live+1) {
		bits++
	}
	old, t := r.table.Load(), newNodeTable(bits)
	for i := range old.slots {
		n := old.slots[i].Load()
		if n != nil && n != tombstone {
			t.place(n)
		}
	}
	r.used = r.live
	r.table.Store(t)
	return t
}

// shrink replaces a table of which less than a sixteenth is in use. Afterwards a quarter is in use,
// so the table does not soon grow or shrink again.
func (r *registry) shrink() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.table.Load().slots); n > 1<<minTableBits && n > 16*(r.live+1) {
		r.rebuildLocked()
	}
}

// forEach calls f for every node. For a node that is added or removed during the call, it may or
// may not call f.
func (r *registry) forEach(f func(*node)) {
	t := r.table.Load()
	for i := range t.slots {
		if n := t.slots[i].Load(); n != nil && n != tombstone {
			f(n)
		}
	}
}
