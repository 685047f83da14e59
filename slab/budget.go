package slab

import (
	"slices"

	"github.com/forebay-log/forebay/batch"
)

// The memory of a Writer is that of its slabs. A record larger than a slab takes memory
// of its own, and free slabs as large as that give theirs up meanwhile: they are ceded.
// keptSlabs slabs are never ceded, so that other records go on. One record is always
// taken where no other is pending, whatever the slabs hold: so the whole exceeds
// SlabCount times SlabBytes by one record at most. Mapped slabs keep their memory, which
// belongs to the file.

// keptSlabs is how many slabs are never ceded.
const keptSlabs = 2

// budget is how many bytes of records larger than a slab may be pending.
func (o *Options) budget() int { return max(o.SlabBytes*o.SlabCount, o.MaxRecord) }

// slabsFor returns how many slabs n bytes are.
func (w *Writer) slabsFor(n int) int { return (n + w.slabBytes - 1) / w.slabBytes }

// cedableLocked returns how many slabs are ceded for a record of n bytes, and whether
// that is enough for it.
func (w *Writer) cedableLocked(n int, m batch.Meta) (k int, ok bool) {
	free := len(w.free)
	if w.o.Reserve > 0 && m.Level < w.reserve.Level() {
		free -= w.o.Reserve
	}
	free = max(0, min(free, w.o.SlabCount-keptSlabs-len(w.ceded)))
	k = w.slabsFor(w.oversizeUsed+n) - len(w.ceded)
	return min(k, free), k <= free || w.oversizeUsed == 0
}

// cedeLocked takes n bytes of the budget for a record larger than a slab, if they are
// to be had.
func (w *Writer) cedeLocked(n int, m batch.Meta) bool {
	k, ok := w.cedableLocked(n, m)
	if !ok {
		return false
	}
	for _, b := range w.free[:k] { // those that were not used for longest
		if b.head == nil {
			b.hollow()
		}
	}
	w.ceded = append(w.ceded, w.free[:k]...)
	w.free = slices.Delete(w.free, 0, k)
	w.oversizeUsed += n
	return true
}

// takeBackLocked gives n bytes of the budget back. Slabs get their memory again when
// they are opened, after all others.
func (w *Writer) takeBackLocked(n int) {
	w.oversizeUsed -= n
	if k := w.slabsFor(w.oversizeUsed); k < len(w.ceded) {
		w.free = slices.Insert(w.free, 0, w.ceded[k:]...)
		w.ceded = slices.Delete(w.ceded, k, len(w.ceded))
	}
}
