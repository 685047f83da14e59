package slab

import "github.com/forebay-log/forebay/batch"

// DropOldest treats the oldest slab that no Send is reading as a ring: it becomes
// the current block again, new records are written over its front, and of its
// old records only as many are evicted as the new one needs. The survivors stay
// where they are, as a piece at the head of the queue. Nothing is copied and
// nothing that fits is lost. See docs/adr/0003-drop-oldest-in-place.md.

// evictLocked evicts records of b's old generation until n bytes and one slot
// fit. It reports false if that cannot be had, because the old generation is in
// flight or the block is too full of new records.
func (w *Writer) evictLocked(b *block, n int) bool {
	if points {
		point(ptEvictLocked)
	}
	p := b.old
	if p.inflight {
		return false
	}
	// Once all of the old generation is gone the block ends at the new slots.
	if b.off+n+(b.n+1)*batch.SlotBytes > len(b.mem) {
		return false
	}
	start := p.from
	defer func() { w.countDropLocked(batch.Full, p.from-start) }() // also after a fault on the way
	for p.from < p.to && !b.fits(n) {
		w.unqueueFrontLocked(p)
	}
	evicted := p.from - start
	if p.from == p.to {
		w.dropEmptyLocked(p)
	}
	if b.head != nil && evicted > 0 {
		b.noteOld()
		w.noteEvictedLocked(evicted)
	}
	return b.fits(n)
}

// unqueueFrontLocked takes the first record out of a queued piece.
func (w *Writer) unqueueFrontLocked(p *piece) {
	n := int(p.blk.slot(p.from).Len)
	w.queuedBytes -= n
	w.queuedRecs--
	p.size -= n
	if p.from++; p.from < p.to {
		p.first = max(p.first, p.blk.slot(p.from).Ticket) // zeros, where the file was truncated, make it unsound
	}
}

// dropEmptyLocked removes an emptied piece from the queue.
func (w *Writer) dropEmptyLocked(p *piece) {
	for i := range w.queue.n {
		if w.queue.at(i) == p {
			w.queue.remove(i)
			break
		}
	}
	w.releaseLocked(p)
}

// overwriteLocked makes the oldest evictable slab the current block.
func (w *Writer) overwriteLocked(n int) bool {
	p := w.evictableLocked()
	if p == nil {
		// Perhaps the current slab is the only one that nobody reads.
		if b := w.cur; b == nil || b.n == 0 || w.queuedOfLocked(b) != b.refs {
			return false
		}
	}
	w.sealLocked()
	if p == nil {
		p = w.evictableLocked()
	}
	if p == nil && len(w.free) == 0 {
		return false
	}
	if len(w.free) > 0 { // the sealed block was empty and is free now
		k := len(w.free) - 1
		w.cur, w.free = w.free[k], w.free[:k]
		w.cur.reset(w.next + 1)
		return true
	}
	b := p.blk
	if points {
		point(ptOverwriteLocked)
	}
	b.retired, b.old = false, p
	w.cur = b
	b.rewind(w.next + 1)
	return w.evictLocked(b, n)
}

// queuedOfLocked returns how many pieces of b are in the queue. A Send is reading the
// others, if b.refs says that there are more.
func (w *Writer) queuedOfLocked(b *block) (n int) {
	for i := range w.queue.n {
		if w.queue.at(i).blk == b {
			n++
		}
	}
	return n
}

// evictableLocked returns the one queued piece of the oldest slab that is sealed
// and that no Send is reading. Records larger than a slab, and slabs flushed before
// they were full, leave several pieces of one slab in the queue, with others
// between them: then all but the last are evicted first, since an overwritten
// slab can have only one old generation. So are the survivors of an earlier one, once
// it is the turn of what was written over the others: until then they are in nobody's
// way.
func (w *Writer) evictableLocked() *piece {
	for i := range w.queue.n {
		keep := w.queue.at(i)
		b := keep.blk
		if b.oversize || b.rescued || !b.retired || b.old == keep {
			continue
		}
		queued := w.queuedOfLocked(b)
		if queued != b.refs { // part of it is being read
			continue
		}
		for k := i + 1; k < w.queue.n; k++ {
			if p := w.queue.at(k); p.blk == b {
				keep = p
			}
		}
		for k := 0; queued > 1; {
			p := w.queue.at(k)
			if p.blk != b {
				k++
				continue
			}
			w.queue.remove(k)
			w.unqueueLocked(p)
			n := p.len()
			w.countDropLocked(batch.Full, n)
			w.releaseLocked(p)
			queued--
			if b.head != nil {
				w.noteEvictedLocked(n)
			}
		}
		return keep
	}
	return nil
}

// evictOversizeLocked evicts queued oversize records, oldest first, until n
// bytes of the budget are free. If that cannot be had, because Send has too many of
// them, none is evicted.
func (w *Writer) evictOversizeLocked(n int) {
	held := w.oversizeUsed
	for i := range w.queue.n {
		if b := w.queue.at(i).blk; b.oversize {
			held -= len(b.mem)
		}
	}
	if held+n > w.o.OversizeBytes {
		return
	}
	evicted := 0
	for i := 0; i < w.queue.n && w.oversizeUsed+n > w.o.OversizeBytes; {
		p := w.queue.at(i)
		if !p.blk.oversize {
			i++
			continue
		}
		w.queue.remove(i)
		w.unqueueLocked(p)
		w.countDropLocked(batch.Full, 1)
		p.blk.evicted = true
		w.releaseLocked(p)
		evicted++
	}
	w.guardLocked(func() { w.noteEvictedLocked(evicted) })
}
