package slab

import "github.com/forebay-log/forebay/batch"

// DropOldest makes room by the slab: the oldest slab that no Send is reading is
// dropped, and is then free like any other; so is one that was ceded for a record larger
// than a slab, if that is older. See docs/adr/0019-bound-memory-by-whole-slabs.md.

// evictLocked drops the oldest of what makes a slab free. If the current slab is the
// only one that nobody reads, it is sealed and dropped. evictLocked reports whether a
// slab is free now.
func (w *Writer) evictLocked() bool {
	if points {
		point(ptEvictLocked)
	}
	if !w.evictOldestLocked(w.freesSlabLocked) {
		if c := w.cur; c != nil && w.queuedOfLocked(c) == c.refs {
			w.sealLocked()
			w.evictOldestLocked(w.freesSlabLocked)
		}
	}
	return len(w.pool.free) > 0
}

// dropSlabLocked drops all records of b, which must be in the queue, and frees it. A
// crash-safe slab is reset at once: its header then says that it holds no ticket of
// before, so that recovery finds none of them.
func (w *Writer) dropSlabLocked(b *block) {
	n := 0
	for i := 0; i < w.queue.n; {
		p := w.queue.at(i)
		if p.blk != b {
			i++
			continue
		}
		n += p.len()
		w.queue.remove(i)
		w.releaseLocked(p)
	}
	w.countDropLocked(batch.Full, n)
	if b.head != nil { // last: mapped memory may fault
		w.noteEvictedLocked(n)
		b.reset(w.next + 1)
	}
}

// queuedOfLocked returns how many pieces of b are in the queue. If b.refs says that
// there are more, the others are being read.
func (w *Writer) queuedOfLocked(b *block) (n int) {
	for i := range w.queue.n {
		if w.queue.at(i).blk == b {
			n++
		}
	}
	return n
}

// evictForLocked drops what is oldest until there is room for a record of n bytes that
// is larger than a slab, and takes that room. If it cannot be had, because Send reads too
// much, nothing is dropped.
func (w *Writer) evictForLocked(n int, m batch.Meta) bool {
	if w.belowReserveLocked(m) {
		return false
	}
	held, slabs := w.pool.oversize, len(w.pool.free)+len(w.pool.ceded) // what is left when all is dropped
	seen := map[*block]bool{}
	for i := range w.queue.n {
		switch b := w.queue.at(i).blk; {
		case b.kind == oversize:
			held -= len(b.mem)
		case !seen[b] && w.evictsLocked(b):
			seen[b] = true
			slabs++
		}
	}
	if held > 0 && w.pool.slabsFor(held+n) > min(w.pool.maxCeded, slabs) {
		return false
	}
	for !w.pool.cedeLocked(n, w.reservedLocked(m)) {
		// As long as no more slabs may be ceded, only another such record makes room.
		noMoreSlabs := w.pool.slabsFor(w.pool.oversize+n) > w.pool.maxCeded
		which := func(b *block) bool { return b.kind == oversize || !noMoreSlabs && w.evictsLocked(b) }
		any := false
		if w.mapped() { // the drop of a slab may fault: then the slabs are on the heap
			w.guardLocked(func() { any = w.evictOldestLocked(which) })
			any = any || !w.mapped()
		} else {
			any = w.evictOldestLocked(which)
		}
		if !any {
			return false
		}
	}
	if w.crash != nil {
		w.crash.toBury = false // the call buries them when it writes its own
	}
	return true
}

// evictOldestLocked drops the oldest block in the queue for which which is true.
func (w *Writer) evictOldestLocked(which func(*block) bool) bool {
	for i := range w.queue.n {
		p := w.queue.at(i)
		b := p.blk
		if !which(b) {
			continue
		}
		if b.kind != oversize {
			w.dropSlabLocked(b)
			return true
		}
		w.queue.remove(i)
		w.countDropLocked(batch.Full, 1)
		b.evicted = true
		if w.mapped() {
			w.crash.toBury = true
		}
		w.releaseLocked(p)
		w.guardLocked(func() { w.noteEvictedLocked(1) })
		return true
	}
	return false
}

// evictsLocked reports whether b is a sealed slab that no Send is reading.
func (w *Writer) evictsLocked(b *block) bool {
	return b.retired && b.kind == isSlab && w.queuedOfLocked(b) == b.refs
}

// freesSlabLocked reports whether a slab is free once b is dropped: a slab, or a record
// for which one is ceded.
func (w *Writer) freesSlabLocked(b *block) bool {
	if b.kind == oversize {
		return w.pool.slabsFor(w.pool.oversize-len(b.mem)) < len(w.pool.ceded)
	}
	return w.evictsLocked(b)
}
