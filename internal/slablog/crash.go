package slablog

import (
	"errors"
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

// noteHeapFromLocked stores in the file, if possible, that it lacks later records.
func (c *crashSafe) noteHeapFromLocked() {
	defer c.passFault(debug.SetPanicOnFault(true))
	c.file.SetHeapFrom(c.store.front.next + 1)
}

// ackLocked stores the ticket up to which all records are settled. It is called before the memory
// of these records is reused.
func (c *crashSafe) ackLocked() {
	c.guardLocked(func() {
		point(ptAckLocked)
		t := c.store.readUpToLocked()
		if len(c.store.leases.list) > 0 {
			t = c.store.leases.list[0].first - 1
		}
		c.file.Ack(t)
		point(ptAckedLocked)
		c.noteAheadLocked()
		c.file.Skip(t - min(t, c.store.leases.acked))
	})
}

// forgetFramesLocked forgets the oversize records of settled pieces, before the file is marked as
// settled up to them.
func (c *crashSafe) forgetFramesLocked(pieces []*piece) {
	if n, _ := c.file.Frames(); n == 0 {
		return
	}
	for _, p := range pieces {
		if p.blk.kind == oversize {
			c.forgetBigLocked(p.first)
		}
	}
}

// noteAheadLocked stores in the file how many settled records in free slabs follow an unsettled
// record, so that recovery distinguishes them from writes that never returned. It may fault.
func (c *crashSafe) noteAheadLocked() {
	n := uint64(0)
	for _, l := range c.store.leases.list {
		n += uint64(l.n + l.behind)
		for _, p := range l.pieces {
			n -= uint64(p.len())
		}
	}
	c.file.SetAhead(n)
}

// leaveBigLocked is called when an oversize record is no longer pending.
func (c *crashSafe) leaveBigLocked(b *block) {
	switch {
	case b.unsafe:
		c.heapOnly--
		c.noteHeapHeldLocked()
	case c.mapped():
		c.forgetBigLocked(b.slot(0).Ticket)
		what := crashfile.FrameSettled
		if b.evicted {
			what = crashfile.FrameEvicted
		}
		c.file.Big.Note(b.slot(0).Ticket, what)
	}
}

// forgetBigLocked is called when the oversize record with this ticket is no longer pending.
func (c *crashSafe) forgetBigLocked(ticket uint64) {
	c.guardLocked(func() { c.file.ForgetFrame(ticket) })
}

// noteHeapHeldLocked stores in the file how many pending oversize records are not on disk, so that
// the next process counts them as lost.
func (c *crashSafe) noteHeapHeldLocked() {
	c.guardLocked(func() { c.file.SetHeapHeld(c.heapOnly) })
}

// noteEvictedLocked adds n evicted records to the count in the file, so that recovery distinguishes
// them from writes that never returned. It may fault.
func (c *crashSafe) noteEvictedLocked(n int) {
	if n > 0 && c.mapped() {
		c.file.Evict(n)
	}
}

// saveOversizeLocked writes an oversize record to the companion file before the write returns. It
// unlocks mu during the file access. A record that cannot be written is kept only in memory. With
// Crash.Required it is refused, unless the destination has already received it.
func (c *crashSafe) saveOversizeLocked(b *block, p []byte, s layout.Slot) (refused error) {
	big := &c.file.Big
	big.Note(s.Ticket, crashfile.FrameDue)
	c.store.unlock()
	point(ptBigKeep)
	err := big.Store(p, s, budget(&c.conf.o))
	c.store.lock()
	switch {
	case c.store.life == retained: // the record is in the file or counted as dropped; see retainLocked
		if errors.Is(err, crashfile.ErrBigClosed) {
			refused = dropErrors[batch.Shutdown]
		}
	case err != nil && b.refs > 0:
		if c.conf.o.Crash.Required && c.withdrawLocked(b) {
			refused = dropErrors[batch.Failed]
			if c.store.callers.waitingLocked() > 0 {
				c.store.front.serveLocked()
			}
			break
		}
		b.unsafe = true
		c.heapOnly++
		c.noteHeapHeldLocked()
		if c.heapOnly == 1 {
			c.conf.events.Post("crash-safe", fmt.Errorf("slab: cannot keep a record larger than a slab on disk, it is only in memory: %w", err), 1)
		}
	case err == nil && b.refs > 0:
		c.guardLocked(func() { c.file.ExpectFrame(s.Ticket) })
		point(ptBigNotedLocked)
	}
	return refused
}

// withdrawLocked removes an oversize record from the queue and counts it as dropped. It returns
// false if the record is leased.
func (c *crashSafe) withdrawLocked(b *block) bool {
	for i, p := range c.store.pieces.queued {
		if p.blk != b {
			continue
		}
		c.store.pieces.remove(i)
		c.store.countDropLocked(batch.Failed, 1)
		c.guardLocked(func() { c.noteEvictedLocked(1) })
		c.store.releaseLocked(p)
		return true
	}
	return false
}
