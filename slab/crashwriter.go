package slab

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/forebay-log/forebay/batch"
)

// openSlabs makes the blocks, in mapped memory if that is asked for and to be
// had, and adopts the files of dead processes.
func (w *Writer) openSlabs() error {
	o := &w.o
	if o.Crash == nil {
		w.free = newArena(o.SlabBytes, o.SlabCount)
		return nil
	}
	dict, _ := w.sink.(batch.Dictionary)
	c, blocks, err := openCrash(o, dict)
	switch {
	case err == nil:
		w.crash, w.free = c, blocks
	case o.Crash.Required:
		return err
	default:
		w.crashErr = err
		w.free = newArena(o.SlabBytes, o.SlabCount)
		w.events.Post(batch.Event{Output: o.Name, Op: "crash-safe", Err: fmt.Errorf("%w; going on with slabs on the heap, which do not survive this process", err)})
	}
	w.adopt(dict)
	return nil
}

// putMapped is put into mapped memory.
func (w *Writer) putMapped(p []byte, m batch.Meta) error {
	w.mu.Lock()
	b := w.cur
	if b == nil || b.head == nil || b.old != nil || w.sleep == parked || w.closed || w.waiters.n > 0 ||
		int(m.Level) >= w.flushLevel || m.Stream != 0 && !w.crash.known[m.Stream] || !b.fits(len(p)) {
		return w.putSlow(p, m)
	}
	w.next++
	faulted := w.storeGuarded(b, p, m)
	if faulted {
		w.next-- // the ticket of a record that was not stored is given out again
		return w.putSlow(p, m)
	}
	w.mu.Unlock()
	return nil
}

func (w *Writer) storeGuarded(b *block, p []byte, m batch.Meta) (faulted bool) {
	defer w.catchFault(debug.SetPanicOnFault(true), &faulted)
	b.store(p, m, w.next)
	return false
}

// mapped reports whether new records go to mapped memory. mu is held.
func (w *Writer) mapped() bool { return w.crash != nil && w.crash.broken == nil }

var errTruncated = errors.New("slab: the crash-safe file was truncated")

// intact reports whether the file still has the length that is mapped.
func (c *crashFile) intact() bool {
	st, err := c.f.Stat()
	return err == nil && st.Size() >= int64(len(c.mem))
}

// take is takeLocked where mapped memory may be damaged. It reports false if it
// was: the slabs are on the heap now, and the caller looks again.
func (w *Writer) take() bool {
	if !w.mapped() {
		w.takeLocked()
		return true
	}
	faulted := false
	if w.crash.intact() {
		w.tryTakeLocked(&faulted)
	} else {
		w.toHeapLocked(errTruncated)
		faulted = true
	}
	if !faulted {
		return true
	}
	d := &w.d
	for i, p := range d.pieces { // popped, and not readable
		w.countDropLocked(batch.Corrupt, p.len())
		p.inflight = false
		w.releaseLocked(p)
		d.pieces[i] = nil
	}
	d.pieces = d.pieces[:0]
	d.all.Reset()
	d.rest, w.inflight = nil, 0
	return false
}

func (w *Writer) tryTakeLocked(faulted *bool) {
	defer w.catchFault(true, faulted)
	w.takeLocked()
}

// ackLocked persists how far everything is settled, before the memory is used
// again.
func (w *Writer) ackLocked() {
	var faulted bool
	defer w.catchFault(debug.SetPanicOnFault(true), &faulted)
	w.crash.ack(w.watermarkLocked())
}

// rescueBatch copies the batch under way out of a mapping that has faulted. It
// reports false if that cannot be read: then the batch is settled as corrupt.
func (w *Writer) rescueBatch() bool {
	d := &w.d
	if d.cloned || !w.crash.fault.Load() {
		return true
	}
	d.cloned = true
	var b batch.Builder
	if w.copyOut(&b) {
		*d.rest = *b.Batch(w.o.Codec)
		return true
	}
	d.sent = d.rest
	d.sent.Tally = batch.Tally{}
	var t batch.Tally
	t.Dropped[batch.Corrupt] = uint64(d.rest.Len())
	w.settle(d.rest.Len(), nil, t)
	return false
}

func (w *Writer) copyOut(b *batch.Builder) (ok bool) {
	defer func() {
		if r := recover(); r != nil && !w.isFault(r) {
			panic(r)
		}
	}()
	for _, r := range w.d.rest.All() {
		b.Append(r.Data, r.Ticket, r.Meta)
	}
	return true
}

// keepOversizeLocked writes an oversize record to the file beside the slabs. It
// lets go of mu meanwhile. The call that brought the record returns after.
func (w *Writer) keepOversizeLocked(b *block, p []byte, s batch.Slot) {
	w.unlock()
	err := w.crash.storeBig(p, s)
	w.mu.Lock()
	if err == nil || b.refs == 0 {
		return
	}
	b.unsafe = true
	w.heapOnly++
	if w.heapOnly == 1 {
		w.events.Post(batch.Event{Output: w.o.Name, Op: "crash-safe", Count: 1,
			Err: fmt.Errorf("slab: cannot keep a record larger than a slab on disk, it is only in memory: %w", err)})
	}
}

// emptyBig truncates the file of oversize records once none is pending.
func (w *Writer) emptyBig() {
	c := w.crash
	c.bigMu.Lock()
	defer c.bigMu.Unlock()
	if c.big == nil || c.bigN == 0 {
		return
	}
	w.mu.Lock()
	idle := w.oversizeUsed == 0
	w.mu.Unlock()
	if idle && c.big.Truncate(0) == nil {
		c.bigN = 0
	}
}

// keepsLocked reports whether what is left at the end stays in the file.
func (w *Writer) keepsLocked() bool { return w.mapped() }

// keepLocked ends the Writer with everything that is not settled left in the
// crash files, for the next process. Records that have no copy there are dropped.
func (w *Writer) keepLocked() {
	lost := w.heapOnly
	w.kept = w.inflight + int(w.pendingSlabLocked()) + w.recLeft - lost
	w.acc.Dropped[batch.Shutdown] += uint64(lost)
	w.inflight, w.recLeft = 0, 0
	w.retained = true
}

// unrecoverLocked gives the unsettled batch of a dead process back to its file.
func (w *Writer) unrecoverLocked() {
	if w.recovering {
		w.recLeft += w.inflight
		w.inflight = 0
		w.recovering = false
	}
}

// endCrashLocked lets go of the files: those with nothing left are removed.
func (w *Writer) endCrashLocked() {
	if c := w.crash; c != nil {
		if w.retained {
			c.release()
		} else {
			c.remove()
		}
	}
	if w.recLeft > 0 {
		w.kept, w.retained, w.recLeft = w.recLeft, true, 0
	}
}

func (w *Writer) crashStatsLocked(s *Stats) {
	s.HeapOnly = w.heapOnly
	switch {
	case w.crashErr != nil:
		s.CrashUnsafe = w.crashErr.Error()
	case w.crash != nil && w.crash.broken != nil:
		s.CrashUnsafe = w.crash.broken.Error()
	}
}
