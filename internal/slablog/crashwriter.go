package slablog

import (
	"fmt"
	"runtime/debug"
	"unsafe"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/layout"
)

// openSlabs creates the slabs, in mapped memory if that is requested and possible. It adopts the
// files of dead processes.
func (w *Writer) openSlabs(dict batch.Dictionary, held crashfile.HeldBy) error {
	s, o := w.store, &w.conf.o
	var form crashfile.Form
	if o.Crash != nil {
		var err error
		if form, err = crashfile.FormOf(o.Codec); err != nil {
			return err
		}
		s.crash, err = openCrash(s, form, dict)
		if err != nil && o.Crash.Required {
			return err
		}
		if err != nil {
			s.unsafe = err
			w.conf.events.Post("crash-safe", fmt.Errorf("%w; continuing with slabs on the heap, which do not survive this process", err), 0)
		}
	}
	if s.crash == nil {
		s.pool.idle = newSlabs(o.SlabBytes, o.SlabCount)
	}
	w.front.checks = s.crash != nil || o.MaxRecord+layout.SlotBytes < o.SlabBytes
	if o.Crash != nil {
		s.found.adopt(form, dict, held)
	}
	return nil
}

// putMapped implements WriteRecord for a record that storeMapped has not stored. The definition of
// a stream must be in the file before the first record that uses it, or recovery could not
// interpret its number.
func (w *Writer) putMapped(p []byte, m batch.Meta) error {
	w.front.lock()
	if !w.store.crash.file.KnowsStream(m.Stream) {
		w.front.mu.Unlock()
		w.store.crash.learnStream(m.Stream)
		w.front.lock()
	}
	return w.putSlow(p, m)
}

// storeMapped is the fast path of WriteRecord for mapped memory. It returns false, with nothing
// stored and no ticket issued, if the slabs are not mapped or the record needs the slow path. After
// a fault the slabs are on the heap. It repeats the code of lock and block.store, because each call
// would add a tenth to its cost.
//
// Recovery depends on the order of the stores. Tickets that an earlier use may have left in the
// memory are cleared first, then slot and payload are written, and the ticket last. If the process
// dies in between, it leaves a slot without a ticket.
func (f *front) storeMapped(p []byte, m batch.Meta) (stored bool) {
	c := f.store.crash
	if c == nil || len(p) > f.conf.o.MaxRecord {
		return false
	}
	if !f.mu.TryLock() {
		f.wait()
	}
	if !f.fits(len(p)) || m.Level >= f.flush.Level() || !c.file.KnowsStream(m.Stream) {
		f.mu.Unlock()
		return false
	}
	old := debug.SetPanicOnFault(true)
	defer func() {
		if !stored {
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
	stored = true
	point(ptStoredLocked)
	f.mu.Unlock()
	point(ptReturn)
	return true
}

// catchStore is deferred during a store. It repeats a panic that is not a fault of the mapping.
func (f *front) catchStore(old bool, r any) {
	debug.SetPanicOnFault(old)
	if !f.store.crash.file.IsFault(r) { // for example a fault in the caller's bytes, which the caller must handle
		f.mu.Unlock()
		panic(r)
	}
	f.closeLocked()
	f.store.mu.Lock()
	f.store.crash.toHeapLocked(f.store.crash.faultOf(r))
	f.store.unlock()
}

// withoutCopyLocked returns the number of records larger than a slab that are not on disk. The
// companion file is already closed, so no later call adds one of them.
func (c *crashSafe) withoutCopyLocked(pieces []piece) (n int) {
	for _, p := range pieces {
		if b := p.blk; b.big && (b.unsafe || !c.file.Big.Holds(b.slot(0).Ticket)) {
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
	if c.store.book.retained > 0 {
		c.file.Release()
	} else {
		c.file.Remove()
	}
	c.file.Leave()
}

// learnStream writes the definition of a stream before the first record that uses it. The caller
// does not hold mu, because learnStream calls the dictionary. If there is no definition, or if it
// cannot be written, learnStream posts an event, because recovery will omit the records of the
// stream.
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
		c.store.conf.events.Post("crash-safe", fmt.Errorf(
			"slab: cannot store the definition of stream %d: if this process dies, its undelivered records will be set aside: %w", id, err), 0)
	}
}
