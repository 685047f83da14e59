package slab

import "github.com/forebay-log/forebay/batch"

// DropOldest makes room by the slab: the oldest slab that no Send is reading is
// dropped, and is then free like any other. Records larger than a slab are dropped
// for others of their kind only. See docs/adr/0019-drop-oldest-by-slab.md.

// evictLocked drops the oldest sealed slab that nobody reads. If the current slab is
// the only one that nobody reads, it is sealed and dropped. evictLocked reports
// whether a slab is free now.
func (w *Writer) evictLocked() bool {
	if points {
		point(ptEvictLocked)
	}
	b := w.evictableLocked()
	if c := w.cur; b == nil && c != nil && w.queuedOfLocked(c) == c.refs {
		w.sealLocked()
		b = w.evictableLocked()
	}
	if b != nil {
		w.dropSlabLocked(b)
	}
	return len(w.free) > 0
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
		w.unqueueLocked(p)
		w.releaseLocked(p)
	}
	w.countDropLocked(batch.Full, n)
	if b.head != nil { // last: mapped memory may fault
		w.noteEvictedLocked(n)
		b.reset(w.next + 1)
	}
}

// evictableLocked returns the oldest sealed slab that no Send is reading, nil if
// there is none.
func (w *Writer) evictableLocked() *block {
	for i := range w.queue.n {
		b := w.queue.at(i).blk
		if b.retired && !b.oversize && !b.rescued && w.queuedOfLocked(b) == b.refs {
			return b
		}
	}
	return nil
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
