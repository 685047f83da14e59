// Package layout describes records in memory. A [Slot] is the index entry of a record. A [Run] is a
// sequence of contiguous records, and a batch consists of runs.
//
//	| payload r1 r2 r3 ...  →            free            ←  ... s3 s2 s1 |
//
// The payload of a slab grows from the front, and its slots from the back.
package layout

import (
	"slices"
	"time"
	"unsafe"
)

// A Slot is the index entry of one record: the position of its bytes and its Meta. It contains no
// pointer, so it can be stored in mapped memory.
type Slot struct {
	Ticket uint64 // position in the order of acceptance, counted from 1
	Time   int64  // Unix nanoseconds; 0: unknown
	Off    uint32 // offset of the first byte in the block
	Len    uint32 // length in bytes
	Stream uint32
	Level  int8
	Flags  uint8
	_      uint16
}

// SlotBytes is the size of a Slot: the memory that a record needs in a slab in addition to its
// bytes.
const SlotBytes = 32

var _ = [1]struct{}{}[unsafe.Sizeof(Slot{})-SlotBytes]

// Defaults and limits of slab.Options.
const (
	DefaultSlabBytes = 64 << 10               // of SlabBytes
	DefaultMaxRecord = 1 << 20                // of MaxRecord, in bytes
	DefaultBlockFor  = 250 * time.Millisecond // maximum wait of WhenFull

	MinSlabBytes = 512      // of SlabBytes
	MaxSlabBytes = 64 << 20 // of SlabBytes and MaxRecord
	MaxSlabCount = 1 << 16  // slabs
)

// MaxWait returns the maximum time that a write waits for memory under the policy whenFull, a
// slab.WhenFull. It is 0 if writes never wait, and negative if there is no limit. Package slab sets
// MaxWait.
var MaxWait func(whenFull any) time.Duration

// Tickets is the range of tickets from First to Last, both included.
type Tickets struct{ First, Last uint64 }

// FlagMarker in Slot.Flags identifies a gap marker: a record with which a Writer reports dropped
// records. A gap marker is not counted as a record.
const FlagMarker = 1

// A Run is a sequence of records whose bytes are contiguous in one block of memory.
type Run struct {
	block []byte
	slots []Slot
	back  bool // the slots are in reverse order: record i is slots[len-1-i]
}

// NewRun returns the run that slots describe in block, in slot order. The run retains both slices.
// Records must be contiguous: each slot begins at the end of the previous one.
func NewRun(block []byte, slots []Slot) Run { return Run{block: block, slots: slots} }

// NewBackRun is like [NewRun], for slots that grow downwards from the end of a slab: the last slot
// describes the first record.
func NewBackRun(block []byte, slots []Slot) Run {
	return Run{block: block, slots: slots, back: true}
}

// Append appends a copy of a record. s is the slot of the record; Append sets its position and
// length. All earlier records of the run must also have been appended by Append.
func (r *Run) Append(rec []byte, s Slot) {
	s.Off, s.Len = uint32(len(r.block)), uint32(len(rec))
	r.block, r.slots = append(r.block, rec...), append(r.slots, s)
}

// Len returns the number of records.
func (r *Run) Len() int { return len(r.slots) }

// Slot returns the index entry of record i. The caller must not change it.
func (r *Run) Slot(i int) *Slot {
	if r.back {
		return &r.slots[len(r.slots)-1-i]
	}
	return &r.slots[i]
}

// Record returns the bytes of record i. They share the memory of the run.
func (r *Run) Record(i int) []byte {
	s := r.Slot(i)
	return r.block[s.Off : uint64(s.Off)+uint64(s.Len) : uint64(s.Off)+uint64(s.Len)]
}

// Data returns the bytes of all records, one after another. They share the memory of the run.
func (r *Run) Data() []byte {
	n := len(r.slots)
	if n == 0 {
		return nil
	}
	first, last := r.Slot(0), r.Slot(n-1)
	end := uint64(last.Off) + uint64(last.Len)
	return r.block[first.Off:end:end]
}

// Slice returns the run of the records i to j-1. It shares the memory of r.
func (r *Run) Slice(i, j int) Run {
	if r.back {
		n := len(r.slots)
		return Run{block: r.block, slots: r.slots[n-j : n-i], back: true}
	}
	return Run{block: r.block, slots: r.slots[i:j]}
}

// AppendSlots appends the slots of the run to dst, in the order of the records. It changes the
// offsets as if the bytes began at off.
func (r *Run) AppendSlots(dst []Slot, off uint32) []Slot {
	n, at := len(r.slots), len(dst)
	if n == 0 {
		return dst
	}
	dst = slices.Grow(dst, n)[:at+n]
	out := dst[at:]
	delta := off - r.Slot(0).Off // an overflow is reversed when delta is added
	if !r.back {
		copy(out, r.slots)
		for i := range out {
			out[i].Off += delta
		}
		return dst
	}
	for i, s := range slices.Backward(r.slots) {
		out[n-1-i] = s
		out[n-1-i].Off += delta
	}
	return dst
}
