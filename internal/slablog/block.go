package slablog

import (
	"sync/atomic"
	"unsafe"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/layout"
)

// A block is one slab, or the memory of a record that is larger: payload grows from the front, slots
// from the back.
//
//	| payload r1 r2 r3 ...  →            free            ←  ... s3 s2 s1 |
//
// mem and slots view the same memory. Slot i is slots[len(slots)-1-i]. store.mu guards all fields.
// While the fast path is open, off and n of the current block are outdated: the front has the sizes
// (see front.closeLocked). The bytes of records that belong to a piece are read without a lock,
// because they do not change while the piece exists.
//
//	idle ──takeLocked, reset──▶ current ──sealLocked──▶ retired ──the last piece is gone──▶ idle
//	                              ▲   │
//	                              └───┘ rewindLocked, if all records are settled
type block struct {
	mem   []byte
	slots []layout.Slot

	// off is the end of the payload, and n the number of slots in use.
	off, n int
	// refs counts the pieces of this block that are queued or in flight, and queued those that are
	// queued. While refs is not 0, the memory is not reused.
	refs, queued int
	// retired reports that the block is no longer the current one. It is freed when refs is 0.
	retired bool
	// big reports that the block is a heap buffer for one record larger than a slab, which is
	// discarded when freed. unsafe and evicted are set only for such a block with a crash-safe file.
	// unsafe reports that its record is not on disk, evicted that slab.DropOldest has dropped the
	// record.
	big, unsafe, evicted bool

	// head is the header of a slab in mapped memory, or nil. summed reports that it contains a
	// checksum, or that one is being computed.
	head   *crashfile.Head
	summed bool
}

// slot returns the slot of record i. The slots are stored backwards from the end of the memory.
func (b *block) slot(i int) *layout.Slot { return &b.slots[len(b.slots)-1-i] }

// room returns the maximum size of the next record in bytes, including its slot.
func (b *block) room() int { return len(b.mem) - b.off - b.n*layout.SlotBytes }

// reset empties the block. first is the ticket of its next record.
func (b *block) reset(first uint64) {
	b.refs, b.retired = 0, false
	b.off, b.n = 0, 0
	if h := b.head; h != nil {
		point(ptRewindLocked)
		if b.summed { // must precede everything that the checksum covers
			b.summed = false
			atomic.StoreUint64(&h.Sum, 0)
		}
		// Without a ticket in slot 0, recovery finds no record in the slab.
		b.slot(0).Ticket = 0
		atomic.StoreUint64(&h.First, first)
		point(ptRewoundLocked)
	}
}

// store copies p, which must fit. It writes the ticket last, because the ticket makes the record
// valid.
func (b *block) store(p []byte, m batch.Meta, ticket uint64) {
	off := b.off
	s := (*slotWords)(unsafe.Pointer(b.slot(b.n)))
	if b.head != nil {
		fence(b.base(), len(b.mem)-(b.n+1)*layout.SlotBytes, off+len(p))
	}
	s[1], s[2], s[3] = uint64(m.Time), pair(uint32(off), uint32(len(p))), tail(m)
	copy(b.mem[off:], p)
	point(ptCopiedLocked)
	// The ticket is the commit word of a crash-safe slab. A plain store is sufficient: it is
	// aligned, the compiler moves no store across the call that copies, and the stores of a dead
	// process are in program order. No other goroutine reads the word now.
	s[0] = ticket
	// The sizes change last, because the stores above may fault in mapped memory.
	b.off = off + len(p)
	b.n++
}

// newSlabs returns count blocks of size bytes each, which must be a multiple of layout.SlotBytes.
// Each block has separate memory that it can release.
func newSlabs(size, count int) []*block {
	out := make([]*block, count)
	for i := range out {
		out[i] = new(block)
		out[i].fill(size)
	}
	return out
}

// fill allocates the memory of a block.
func (b *block) fill(size int) {
	b.slots = make([]layout.Slot, size/layout.SlotBytes)
	for i := 0; i < len(b.slots); i += 4096 / layout.SlotBytes {
		b.slots[i].Flags = 0 // the kernel allocates a page at its first store, which should not delay a caller
	}
	// A Slot has no pointers and no padding, so both views may be written.
	b.mem = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(b.slots))), size)
}

// base returns the start of the memory.
func (b *block) base() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b.mem)) }

// newOversize returns a block that contains only a copy of p, with an empty slot. It is retired from
// the start: it never becomes the current block, and is freed with its only piece.
func newOversize(p []byte) *block {
	return &block{
		mem: append(make([]byte, 0, len(p)), p...), slots: make([]layout.Slot, 1),
		off: len(p), n: 1, retired: true, big: true,
	}
}

// fence clears the tickets of the slot to be written, at the given offset from base, and of the
// slot after it. An earlier use of the slab may have stored payload there, which recovery could
// mistake for tickets. end is the end of the payload of the new record.
func fence(base unsafe.Pointer, slot, end int) {
	*(*uint64)(unsafe.Add(base, slot)) = 0
	if next := slot - layout.SlotBytes; next >= end {
		*(*uint64)(unsafe.Add(base, next)) = 0
	}
}

// fits reports whether a record of n bytes fits into the block.
func (b *block) fits(n int) bool { return n+layout.SlotBytes <= b.room() }
