package slablog

import "github.com/forebay-log/forebay/slab"

// The memory of a Writer is the memory of its slabs. A record larger than a slab has a separate
// buffer. While it exists, free slabs of at least the same total size are ceded: they release their
// memory. Two slabs are never ceded, so that other records are still accepted. If no other oversize
// record is pending, one is always accepted, even if all slabs are full. Therefore the memory
// exceeds SlabCount times SlabBytes by at most one record. Mapped slabs keep their memory, which
// belongs to the file.

// neverCeded is the number of slabs that are never ceded.
const neverCeded = 2

// budget returns the maximum total size, in bytes, of pending records larger than a slab.
func budget(o *slab.Options) int { return max(o.SlabBytes*o.SlabCount, o.MaxRecord) }

// pool contains the slabs that are not in use. It also counts the memory taken from them for records
// larger than a slab.
type pool struct {
	// idle has the least recently used slab first. The first slabs are ceded.
	idle  []*block
	ceded int
	// oversize is the total size in bytes of the records larger than a slab.
	oversize int
	// slab is the size of a slab in bytes, and maxCeded the maximum of ceded. New sets both.
	slab, maxCeded int
}

// free returns the number of free slabs. Ceded slabs are not free.
func (p *pool) free() int { return len(p.idle) - p.ceded }

// takeLocked returns a free slab: the one that was freed last, because its memory is probably still
// in a cache of the processor. The caller has checked that there is one.
func (p *pool) takeLocked() *block {
	k := len(p.idle) - 1
	b := p.idle[k]
	p.idle = p.idle[:k]
	if b.mem == nil { // the slab was ceded, or in a damaged mapping
		b.fill(p.slab)
	}
	return b
}

// slabsFor returns the number of slabs that must be ceded for n bytes.
func (p *pool) slabsFor(n int) int { return (n + p.slab - 1) / p.slab }

// cedableLocked returns the number of slabs to cede for a record of n bytes, and whether so many
// can be ceded. At least reserved slabs must stay free.
func (p *pool) cedableLocked(n, reserved int) (k int, ok bool) {
	most := max(0, min(p.free()-reserved, p.maxCeded-p.ceded))
	k = p.slabsFor(p.oversize+n) - p.ceded
	return min(k, most), k <= most || p.oversize == 0
}

// cedeLocked reserves n bytes of the budget for a record larger than a slab. It returns false if so
// much is not available.
func (p *pool) cedeLocked(n, reserved int) bool {
	k, ok := p.cedableLocked(n, reserved)
	if !ok {
		return false
	}
	for _, b := range p.idle[p.ceded:][:k] {
		if b.head == nil {
			b.mem, b.slots = nil, nil
		}
	}
	p.ceded += k
	p.oversize += n
	return true
}

// takeBackLocked returns n bytes to the budget. Slabs that are no longer ceded get memory again
// when takeLocked returns them, which happens after all other slabs are in use.
func (p *pool) takeBackLocked(n int) {
	p.oversize -= n
	p.ceded = min(p.ceded, p.slabsFor(p.oversize))
}
