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

// crashSafe is the mapped memory of a Writer. store.mu guards it. See docs/CRASH-SAFETY.md for its
// promises, and docs/format/crash-slabs.md for the file.
//
//	mapped ──a fault, or the file is not intact──▶ unsafe: all slabs are on the heap
//	   └─────Log.End──▶ ended: the file is removed, or kept for the next process
type crashSafe struct {
	store *store

	file   *crashfile.Memory
	blocks []*block    // all slabs of the file
	watch  *time.Timer // runs watchSend

	// notesDue makes unlock update the companion file: a call that has evicted a record larger than
	// a slab notes this in the file (writes a tombstone) before it returns.
	notesDue bool
	heapOnly int // number of pending oversize records that are not on disk
}

// openCrash creates the mapped file of this process. The store s then uses the slabs in it.
func openCrash(s *store, form crashfile.Form, dict batch.Dictionary) (*crashSafe, error) {
	o := &s.conf.o
	f, err := crashfile.Create(o.Crash.Dir, crashfile.Layout{
		SlabBytes: o.SlabBytes, SlabCount: o.SlabCount, Form: form, Oversize: budget(o), Dict: dict,
	})
	if err != nil {
		return nil, err
	}
	f.Enter() // the mapping has two users: the consumer until Leave, and the Writer until End
	c := &crashSafe{store: s, file: f}
	for i := range o.SlabCount {
		m := f.Slab(i)
		slots := unsafe.Slice((*layout.Slot)(unsafe.Pointer(&m[0])), len(m)/layout.SlotBytes)
		c.blocks = append(c.blocks, &block{mem: m, slots: slots, head: f.Head(i)})
	}
	s.pool.idle = slices.Clone(c.blocks)
	s.conf.id = f.ID() // the file outlives this process
	c.watch = time.AfterFunc(time.Hour, c.watchSend)
	c.watch.Stop()
	return c, nil
}

// mapped reports whether new records go to mapped memory. mu is held.
func (c *crashSafe) mapped() bool {
	return c != nil && c.store.unsafe == nil && c.store.life != ended
}

// try runs f, which accesses mapped memory. The error reports a memory fault in the mapping.
// SetPanicOnFault affects only this goroutine, so no memory of the mapping is passed to drivers,
// which have goroutines of their own.
func (c *crashSafe) try(f func()) (fault error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			fault = c.faultOf(r)
		}
	}()
	f()
	return nil
}

// faultOf returns the error of a recovered memory fault in the mapping. It repeats any other panic.
func (c *crashSafe) faultOf(r any) error {
	if !c.file.IsFault(r) {
		panic(r)
	}
	return fmt.Errorf("slab: the mapped file %s is damaged: %v", c.file.Path(), r)
}

// guardLocked runs f, which accesses mapped memory, with mu held. If no memory is mapped, it does
// not run f. After a fault it returns true, and the slabs are on the heap.
func (c *crashSafe) guardLocked(f func()) (faulted bool) {
	if !c.mapped() {
		return false
	}
	err := c.try(f)
	if err != nil {
		c.toHeapLocked(err)
	}
	return err != nil
}

// toHeapLocked moves the slabs to the heap. The parameter cause is the error that requires this. It
// copies the readable records and drops the remaining ones as corrupt.
func (c *crashSafe) toHeapLocked(cause error) {
	if !c.mapped() {
		return
	}
	c.store.unsafe = cause
	// If possible, note for the next process that the file lacks the later records.
	_ = c.try(func() { c.file.SetHeapFrom(c.store.front.next + 1) })
	c.store.conf.events.Post("crash-safe", cause, 0)
	// From here on, no new record goes to the file. The consumer may still be copying leased records
	// from the mapping, which exists until Leave.
	c.store.front.sealLocked()
	mapped := make(map[*block]block, len(c.blocks))
	for _, b := range c.blocks {
		mapped[b] = *b
		b.mem, b.slots, b.head = nil, nil, nil
	}
	_, lost := c.store.pieces.remove(len(c.store.pieces.queued), func(p *piece) bool {
		from, ok := mapped[p.blk]
		if !ok || c.rescueLocked(p, &from) { // a record larger than a slab is on the heap already
			return false
		}
		c.store.releaseLocked(p.blk)
		return true
	})
	c.store.countDropLocked(batch.Corrupt, lost)
}

// rescueLocked copies a queued piece to the heap. The parameter from is its block in mapped memory.
// It returns false if that memory cannot be read, or no longer contains the records of the piece.
func (c *crashSafe) rescueLocked(p *piece, from *block) (ok bool) {
	fault := c.try(func() {
		old := piece{blk: from, from: p.from, to: p.to}
		r := old.run()
		if ok = sound(&r, p.first); !ok {
			return
		}
		b, end := p.blk, len(from.slots)
		if b.mem == nil {
			b.fill(len(from.mem))
		}
		copy(b.slots[end-p.to:end-p.from], from.slots[end-p.to:end-p.from])
		copy(b.mem[r.Slot(0).Off:], r.Data())
	})
	return ok && fault == nil
}

// sound reports whether the slots of a run are intact, whose first record has the ticket first. If
// another process truncates the file and extends it again, the end of the file becomes zeros. The
// slots are at the end of a slab, the first one last.
func sound(r *layout.Run, first uint64) bool { return r.Slot(0).Ticket == first }

// ackLocked stores the ticket up to which all records are settled, including the records in pieces.
// It is called before the memory of these records is reused.
func (c *crashSafe) ackLocked(pieces []piece) {
	c.guardLocked(func() {
		point(ptAckLocked)
		for i := range pieces { // first, so that recovery does not expect the frames of settled records
			if p := &pieces[i]; p.blk.big {
				c.file.ForgetFrame(p.first)
			}
		}
		t := c.store.readUpToLocked()
		if len(c.store.leases.list) > 0 {
			t = c.store.leases.list[0].pieces[0].first - 1
		}
		c.file.Ack(t)
		point(ptAckedLocked)
		c.noteAheadLocked()
		c.file.Skip(t - min(t, c.store.leases.acked))
	})
}

// noteAheadLocked stores in the file how many settled records in free slabs follow an unsettled
// record, so that recovery distinguishes them from writes that never returned. The store may fault.
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

// leaveBigLocked is called when an oversize record is no longer pending. Its frame is removed from
// the table in the mapped file at once. The companion file, which contains the frame, is updated
// with its next write.
func (c *crashSafe) leaveBigLocked(b *block) {
	switch ticket := b.slot(0).Ticket; {
	case b.unsafe:
		c.addHeapOnlyLocked(-1)
	case c.mapped():
		c.guardLocked(func() { c.file.ForgetFrame(ticket) })
		what := crashfile.FrameSettled
		if b.evicted {
			what = crashfile.FrameEvicted
		}
		c.file.Big.Note(ticket, what)
	}
}

// addHeapOnlyLocked adds n to the number of pending oversize records that are not on disk. The file
// has that number, so that the next process counts these records as lost.
func (c *crashSafe) addHeapOnlyLocked(n int) {
	c.heapOnly += n
	c.guardLocked(func() { c.file.SetHeapHeld(c.heapOnly) })
}

// saveOversizeLocked writes an oversize record to the companion file, before the caller's Write
// returns. It unlocks mu during the file access. A record that cannot be written is kept only in
// memory. With Crash.Required it is refused, unless the destination has already received it.
func (c *crashSafe) saveOversizeLocked(b *block, p []byte, s layout.Slot) error {
	big := &c.file.Big
	big.Note(s.Ticket, crashfile.FrameDue)
	c.store.unlock()
	point(ptBigKeep)
	err := big.Store(p, s, budget(&c.store.conf.o))
	c.store.lock()
	switch {
	case b.refs == 0: // the destination has received the record
	case c.store.life == ended: // the record is in the file or counted as dropped; see settleLeftLocked
		if errors.Is(err, crashfile.ErrBigClosed) {
			return dropErrors[batch.Shutdown]
		}
	case err == nil:
		c.guardLocked(func() { c.file.ExpectFrame(s.Ticket) })
		point(ptBigNotedLocked)
	case c.store.conf.o.Crash.Required && c.store.dropQueuedLocked(b, batch.Failed) > 0:
		c.guardLocked(func() { c.file.Evict(1) })
		c.store.freedLocked()
		return dropErrors[batch.Failed]
	default:
		b.unsafe = true
		c.addHeapOnlyLocked(1)
		if c.heapOnly == 1 {
			c.store.conf.events.Post("crash-safe", fmt.Errorf("slab: cannot keep a record larger than a slab on disk, it is only in memory: %w", err), 1)
		}
	}
	return nil
}
