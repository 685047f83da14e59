package slablog

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/layout"
)

// openSlabs creates the blocks, in mapped memory if that is requested and possible. It adopts the
// files of dead processes.
func (w *Writer) openSlabs(dict batch.Dictionary, held crashfile.HeldBy) error {
	o := &w.conf.o
	defer func() { w.front.checks = w.store.crash != nil || o.MaxRecord+layout.SlotBytes < o.SlabBytes }()
	if o.Crash == nil {
		w.store.pool.free = newSlabs(o.SlabBytes, o.SlabCount)
		return nil
	}
	form, err := crashfile.FormOf(o.Codec)
	if err != nil {
		return err
	}
	c, err := openCrash(o, form, dict)
	switch {
	case err == nil:
		c.conf, c.store = w.conf, w.store
		w.store.crash, w.store.pool.free = c, slices.Clone(c.blocks)
		w.conf.id = c.file.ID() // the file outlives this process
		c.watch = time.AfterFunc(time.Hour, w.store.crash.watchSend)
		c.watch.Stop()
	case o.Crash.Required:
		return err
	default:
		w.store.found.err = err
		w.store.pool.free = newSlabs(o.SlabBytes, o.SlabCount)
		w.conf.events.Post("crash-safe", fmt.Errorf("%w; continuing with slabs on the heap, which do not survive this process", err), 0)
	}
	w.store.found.adopt(form, dict, held)
	return nil
}

// putMapped implements WriteRecord for a Writer with mapped memory.
func (w *Writer) putMapped(p []byte, m batch.Meta) error {
	w.front.lock()
	if !w.store.crash.file.KnowsStream(m.Stream) {
		w.front.mu.Unlock()
		w.store.crash.learnStream(m.Stream)
		w.front.lock()
	}
	if !w.front.fits(len(p)) || m.Level >= w.front.flush.Level() {
		return w.putSlow(p, m)
	}
	if w.front.storeGuarded(p, m) {
		return w.putSlowLocked(p, m)
	}
	point(ptStoredLocked)
	w.front.mu.Unlock()
	point(ptReturn)
	return nil
}

// storeGuarded implements block.store for mapped memory and a record that is not the first of its
// piece. It repeats the code of block.store, because a call would add a tenth to its cost. front.mu
// is held. After a fault, storeGuarded returns true with store.mu also held; the slabs are then on
// the heap, and no ticket was issued.
func (f *front) storeGuarded(p []byte, m batch.Meta) (faulted bool) {
	old := debug.SetPanicOnFault(true)
	faulted = true // reset when the store is complete
	defer func() {
		if faulted {
			f.catchStore(old, recover())
		}
	}()
	off, end := f.off, f.end-layout.SlotBytes
	fence(f.base, end, off+len(p))
	s := (*slotWords)(unsafe.Add(f.base, end))
	s[1], s[2], s[3] = uint64(m.Time), pair(uint32(off), uint32(len(p))), tail(m)
	copy(unsafe.Slice((*byte)(unsafe.Add(f.base, off)), len(p)), p)
	point(ptCopiedLocked)
	s[0] = f.next + 1
	debug.SetPanicOnFault(old)
	f.next++
	f.off, f.end = off+len(p), end
	return false
}

// catchStore is deferred during a store. It repeats a panic that is not a fault of the mapping.
func (f *front) catchStore(old bool, r any) {
	debug.SetPanicOnFault(old)
	if !f.store.crash.isFault(r) { // for example a fault in the caller's bytes, which the caller must handle
		f.mu.Unlock()
		panic(r)
	}
	f.closeLocked()
	f.store.mu.Lock()
	f.store.crash.caught(r)
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

// writeTombstonesLocked writes the tombstones of oversize records evicted for a record that fits
// into a slab. It unlocks mu during the file access.
func (c *crashSafe) writeTombstonesLocked() {
	if c != nil && c.tombstonesDue {
		c.tombstonesDue = false
		c.store.unlock()
		c.file.Big.ApplyNotes()
		c.store.lock()
	}
}

// noteEvictedLocked adds n evicted records to the count in the file, so that recovery distinguishes
// them from writes that never returned. It may fault.
func (c *crashSafe) noteEvictedLocked(n int) {
	if n > 0 && c.mapped() {
		c.file.Evict(n)
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

// noteHeapHeldLocked stores in the file how many pending oversize records are not on disk, so that
// the next process counts them as lost.
func (c *crashSafe) noteHeapHeldLocked() {
	c.guardLocked(func() { c.file.SetHeapHeld(c.heapOnly) })
}

// noteHeapFromLocked stores in the file, if possible, that it lacks later records.
func (c *crashSafe) noteHeapFromLocked() {
	defer c.passFault(debug.SetPanicOnFault(true))
	c.file.SetHeapFrom(c.store.front.next + 1)
}

// retainLocked leaves every unsettled record in the crash-safe file for the next process, and
// refuses waiting calls. Records without a copy in the file are dropped; lost is how many of these
// are leased. retainLocked returns false if the file cannot keep the records.
func (c *crashSafe) retainLocked() (lost int, ok bool) {
	if !c.mapped() {
		return 0, false
	}
	c.file.Big.Close()
	for _, l := range c.store.leases.list {
		lost += min(c.withoutCopyLocked(l.pieces...), l.open)
	}
	unread := c.withoutCopyLocked(c.store.pieces.queued...)
	c.sumAllLocked()
	c.store.book.retained = c.store.leases.openLocked() + int(c.store.pendingSlabLocked()) - lost - unread
	c.store.book.Dropped[batch.Shutdown] += uint64(lost + unread)
	for _, l := range c.store.leases.list { // later results of the consumer are ignored
		l.open = 0
	}
	c.store.life.become(retained)
	c.store.refuseWaitersLocked()
	return lost, true
}

// withoutCopyLocked returns the number of records larger than a slab that are not on disk. Their
// file is closed, so no later call writes to it.
func (c *crashSafe) withoutCopyLocked(pieces ...*piece) (n int) {
	for _, p := range pieces {
		if p == nil {
			continue
		}
		if b := p.blk; b.kind == oversize && (b.unsafe || !c.file.Big.Holds(b.slot(0).Ticket)) {
			n++
		}
	}
	return n
}

// endCrashLocked closes the files and removes those without records.
func (c *crashSafe) endCrashLocked() {
	if c == nil {
		return
	}
	c.watch.Stop()
	c.ended = true
	if c.store.life == retained {
		c.file.Release()
	} else {
		c.file.Remove()
	}
	c.file.Leave()
}

// learnStream writes the definition of a stream before the first record that uses it. A write calls
// it without holding mu, because it calls the dictionary. If there is no definition or it cannot be
// written, learnStream reports that, because recovery will omit the records of the stream.
func (c *crashSafe) learnStream(id uint32) {
	f := c.file
	def, ok, err := f.DefineStream(id)
	c.store.lock()
	defer c.store.unlock()
	if f.KnowsStream(id) { // a concurrent call has already written the definition
		return
	}
	f.KnowStream(id)
	c.guardLocked(func() {
		if err == nil {
			err = f.AddStream(id, def, ok)
		}
	})
	if err != nil {
		c.conf.events.Post("crash-safe", fmt.Errorf(
			"slab: cannot store the definition of stream %d: if this process dies, its undelivered records will be set aside: %w", id, err), 0)
	}
}

// forgetBigLocked is called when the oversize record with this ticket is no longer pending.
func (c *crashSafe) forgetBigLocked(ticket uint64) {
	c.guardLocked(func() { c.file.ForgetFrame(ticket) })
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
