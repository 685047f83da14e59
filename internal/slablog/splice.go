package slablog

import (
	"unsafe"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/slab"
)

// TryWriteSpliced is WriteRecord of p with the texts of in inserted: see
// deliver.Output.TryWriteSpliced.
func (w *Writer) TryWriteSpliced(p []byte, in []slab.Splice, m batch.Meta) bool {
	n, last := len(p), 0
	for i := range in {
		if at := in[i].At; at < last || at > len(p) {
			panic("slab: TryWriteSpliced: the places of texts must lie within the record and ascend")
		}
		last = in[i].At
		n += len(in[i].Text)
	}
	if points {
		point(ptPut)
	}
	if w.front.checks {
		return false
	}
	w.front.lock()
	if !w.front.fits(n) || m.Level >= w.front.flush.Level() {
		w.front.closeLocked()
		w.store.mu.Lock()
		return w.placeSplicedLocked(p, in, n, m)
	}
	splice(w.front.reserve(n, uint64(m.Time), tail(m)), p, in)
	if points {
		point(ptCopiedLocked)
		point(ptStoredLocked)
	}
	w.front.mu.Unlock()
	if points {
		point(ptReturn)
	}
	return true
}

// placeSplicedLocked is putSlowLocked for a spliced record of n bytes. It stores the record only if
// there is room.
func (w *Writer) placeSplicedLocked(p []byte, in []slab.Splice, n int, m batch.Meta) bool {
	defer w.store.unlock()
	if points {
		point(ptSlowLocked)
	}
	if w.store.life != accepting || w.store.callers.slabs.n > 0 || n > w.conf.o.MaxRecord || n+batch.SlotBytes > w.conf.o.SlabBytes || !w.front.roomLocked(n, m) {
		return false
	}
	w.front.cur.storeSpliced(p, in, n, m, w.front.ticketLocked())
	w.front.storedLocked(m)
	return true
}

// storeSpliced is store of p with the texts of in inserted, n bytes together. The block is on the
// heap.
func (b *block) storeSpliced(p []byte, in []slab.Splice, n int, m batch.Meta, ticket uint64) {
	off := b.off
	*(*slotWords)(unsafe.Add(b.top, -b.n*batch.SlotBytes)) = slotWords{
		ticket, uint64(m.Time), pair(uint32(off), uint32(n)), tail(m),
	}
	if b.n == b.cut {
		b.cutTicket = ticket
	}
	b.off = off + n
	b.n++
	splice(unsafe.Slice((*byte)(unsafe.Add(b.base, off)), n), p, in)
	if points {
		point(ptCopiedLocked)
		point(ptStoredLocked)
	}
}

// splice fills dst with p and the texts of in.
func splice(dst, p []byte, in []slab.Splice) {
	from := 0
	for i := range in {
		s := &in[i]
		dst = dst[copy(dst, p[from:s.At]):]
		dst = dst[copy(dst, s.Text):]
		from = s.At
	}
	copy(dst, p[from:])
}
