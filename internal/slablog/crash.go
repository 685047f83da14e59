package slablog

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

// crashSafe is the mapped memory of a Writer. store.mu guards it.
type crashSafe struct {
	conf  *config
	store *store

	file   *crashfile.Memory
	broken error       // error of the mapping; if set, the slabs are on the heap
	ended  bool        // Close has released the file
	fault  atomic.Bool // broken is set, for readers without the lock
	blocks []*block    // all slabs of the file
	watch  *time.Timer // runs watchSend

	heapSpare     []*block // heap slabs that replace slabs of a broken mapping when these are freed
	tombstonesDue bool     // a record larger than a slab was evicted since the lock was acquired
	heapOnly      int      // number of pending oversize records that are not on disk
}

// openCrash creates the file of this process.
func openCrash(o *slab.Options, form crashfile.Form, dict batch.Dictionary) (*crashSafe, error) {
	f, err := crashfile.Create(o.Crash.Dir, crashfile.Layout{
		SlabBytes: o.SlabBytes, SlabCount: o.SlabCount, Form: form, Oversize: budget(o), Dict: dict,
	})
	if err != nil {
		return nil, err
	}
	f.Enter() // the mapping has two users: the consumer until Leave, and the Writer until End
	c := &crashSafe{file: f, blocks: make([]*block, o.SlabCount)}
	for i := range c.blocks {
		m := f.Slab(i)
		slots := unsafe.Slice((*layout.Slot)(unsafe.Pointer(&m[0])), len(m)/layout.SlotBytes)
		c.blocks[i] = &block{mem: m, slots: slots, head: f.Head(i)}
		c.blocks[i].aim()
	}
	return c, nil
}

// placeGuardedLocked implements placeLocked for mapped memory. If the memory faults, because
// another process has truncated the file, it moves the slabs to the heap and places the record
// there. The ticket of a record that was not stored is issued again.
func (f *front) placeGuardedLocked(p []byte, m batch.Meta) (placed bool) {
	next, done := f.next, false
	defer func() {
		if !done {
			f.next = next
		}
	}()
	if f.store.crash.guardLocked(func() { placed = f.placeLocked(p, m) }) {
		f.next = next
		placed = f.placeLocked(p, m)
	}
	done = true
	return placed
}

// guardLocked runs f, which accesses mapped memory, with mu held. If no memory is mapped, it does
// not run f. After a fault it returns true, and the slabs are on the heap.
func (c *crashSafe) guardLocked(f func()) (faulted bool) {
	if !c.mapped() {
		return false
	}
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			c.caught(r)
			faulted = true
		}
	}()
	f()
	return false
}

// passFault is deferred by functions that only read mapped memory. After a fault, such a function
// returns its zero result.
func (c *crashSafe) passFault(old bool) {
	debug.SetPanicOnFault(old)
	if r := recover(); r != nil && !c.isFault(r) {
		panic(r)
	}
}

// caught handles a recovered panic with mu held. After a fault in mapped memory, it moves the slabs
// to the heap. It repeats any other panic.
func (c *crashSafe) caught(r any) {
	if !c.isFault(r) {
		panic(r)
	}
	c.toHeapLocked(fmt.Errorf("slab: the mapped file %s is damaged: %v", c.file.Path(), r))
}

// isFault reports whether a recovered value is a memory fault in the mapping.
func (c *crashSafe) isFault(r any) bool { return c != nil && c.file.IsFault(r) }

// toHeapLocked moves the slabs to the heap after a fault. It copies the readable records and drops
// the remaining ones as corrupt.
func (c *crashSafe) toHeapLocked(cause error) {
	if c.broken != nil || c.file.Bytes() == nil || c.ended {
		return
	}
	c.broken = cause
	c.fault.Store(true)
	c.noteHeapFromLocked()
	c.conf.events.Post("crash-safe", cause, 0)
	if c.store.life == retained { // all writes have ended, and the records in the file are lost
		c.store.book.Dropped[batch.Shutdown] += uint64(c.store.book.retained)
		c.store.book.retained = 0
		return
	}
	heap := newSlabs(0, c.conf.o.SlabCount)
	take := func() *block {
		b := heap[len(heap)-1]
		heap = heap[:len(heap)-1]
		b.reset(0)
		return b
	}
	for i := range c.store.pool.free {
		c.store.pool.free[i] = take()
	}
	for i := range c.store.pool.ceded {
		c.store.pool.ceded[i] = take()
	}
	if b := c.store.front.cur; b != nil {
		c.store.front.cutLocked()
		b.retired = true
		c.store.front.cur = nil
		if b.refs == 0 {
			c.store.pool.free = append(c.store.pool.free, take())
		}
	}
	c.heapSpare = heap
	for i := 0; i < len(c.store.pieces.queued); {
		p := c.store.pieces.queued[i]
		if p.blk.kind == oversize || c.rescueLocked(p) {
			i++
			continue
		}
		c.store.pieces.remove(i)
		c.store.countDropLocked(batch.Corrupt, p.len())
		c.store.releaseLocked(p)
	}
}

// rescueLocked copies a queued piece to the heap. It returns false if the memory cannot be read.
func (c *crashSafe) rescueLocked(p *piece) (ok bool) {
	defer c.passFault(debug.SetPanicOnFault(true))
	if !p.sound() {
		return false
	}
	r := p.run()
	data := append([]byte(nil), r.Data()...)
	slots := make([]layout.Slot, p.len())
	for i := range slots {
		s := *r.Slot(i)
		s.Off -= r.Slot(0).Off
		slots[len(slots)-1-i] = s
	}
	b := &block{mem: data, slots: slots, off: len(data), n: len(slots), cut: len(slots), refs: 1, retired: true, kind: rescued}
	src := p.blk
	p.blk, p.from, p.to = b, 0, len(slots)
	c.store.dropRefLocked(src)
	return true
}

// sound reports whether the index of a piece is intact. A file that was truncated and extended
// again ends in zeros. In a slab, the index follows the records. A ticket is never 0, so if p.first
// is 0, it was read from such zeros.
func (p *piece) sound() bool {
	return p.from == p.to || p.first != 0 && p.blk.slot(p.from).Ticket == p.first
}

// mapped reports whether new records go to mapped memory. mu is held.
func (c *crashSafe) mapped() bool {
	return c != nil && c.broken == nil && c.file.Bytes() != nil && !c.ended
}
