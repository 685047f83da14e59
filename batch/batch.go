// Package batch defines the types shared by all packages of forebay: the [Batch] of records that is
// passed from a slab to a destination, the answer to it ([Outcome]), the outcomes of its records
// ([Account], [Reason]) and the format of their bytes ([Codec]).
//
//	slab ─▶ Batch ─▶ session.Send ─▶ Outcome ─▶ Account
//
// A destination reads a batch like this:
//
//	for i, rec := range b.All() {
//		…
//	}
//
// The package imports no other package of forebay.
package batch

import (
	"iter"
	"log/slog"
	"math"
	"slices"
)

// Meta describes one encoded record.
type Meta struct {
	// Time is the time of the record in Unix nanoseconds; 0 means unknown.
	Time int64
	// Level is the severity of the record. Slots store 8 bits: values outside -128…127 are
	// clamped.
	Level slog.Level
	// Stream is the small integer that a destination has assigned to a tag or label set;
	// destinations without streams use only 0.
	Stream uint32
}

// NoLevel is the Level of a record whose level is unknown, such as a line of another program.
const NoLevel = slog.Level(math.MinInt8)

// clampLevel converts l to the 8 bits of a [Slot].
func clampLevel(l slog.Level) int8 {
	return int8(max(math.MinInt8, min(math.MaxInt8, int(l))))
}

// SlotBytes is the size of a [Slot] in memory: 32 bytes.
const SlotBytes = 32

// A Slot is the index entry of one record: the position of its bytes and its Meta. It contains no
// pointer, so it can be stored in mapped memory.
type Slot struct {
	Ticket uint64 // position in the order of acceptance, counting from 1
	Time   int64  // Unix nanoseconds, 0 = unknown
	Off    uint32 // first byte, counted from the start of the block
	Len    uint32 // length in bytes
	Stream uint32
	Level  int8
	Flags  uint8
	_      uint16
}

// FlagMarker, in Slot.Flags, marks a gap marker: a record that a Writer inserts to report dropped
// records. It is not counted.
const FlagMarker = 1

// Meta returns the Meta of the record.
func (s *Slot) Meta() Meta {
	return Meta{Time: s.Time, Level: slog.Level(s.Level), Stream: s.Stream}
}

// A Run is a sequence of records whose bytes are contiguous in one block of memory.
type Run struct {
	block []byte
	slots []Slot
	back  bool // slots grow downwards: record i is slots[len-1-i]
}

// NewRun returns the run that slots describe in block, in slot order. The run retains both slices.
// Records must be contiguous: each slot begins at the end of the previous one.
func NewRun(block []byte, slots []Slot) Run { return Run{block: block, slots: slots} }

// NewBackRun is [NewRun] for slots that grow downwards from the end of a slab, so that the last
// element describes the first record.
func NewBackRun(block []byte, slots []Slot) Run {
	return Run{block: block, slots: slots, back: true}
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

// Record returns the bytes of record i. The run owns them.
func (r *Run) Record(i int) []byte {
	s := r.Slot(i)
	return r.block[s.Off : uint64(s.Off)+uint64(s.Len) : uint64(s.Off)+uint64(s.Len)]
}

// Data returns the concatenated bytes of all records. The run owns them.
func (r *Run) Data() []byte {
	n := len(r.slots)
	if n == 0 {
		return nil
	}
	first, last := r.Slot(0), r.Slot(n-1)
	end := uint64(last.Off) + uint64(last.Len)
	return r.block[first.Off:end:end]
}

// Slice returns the run of the records i to j-1, which shares the memory of r.
func (r *Run) Slice(i, j int) Run {
	if r.back {
		n := len(r.slots)
		return Run{block: r.block, slots: r.slots[n-j : n-i], back: true}
	}
	return Run{block: r.block, slots: r.slots[i:j]}
}

// AppendSlots appends the index entries of the run to dst in record order, for bytes that begin at
// offset off, and returns the extended slice.
func (r *Run) AppendSlots(dst []Slot, off uint32) []Slot {
	n, at := len(r.slots), len(dst)
	if n == 0 {
		return dst
	}
	dst = slices.Grow(dst, n)[:at+n]
	out := dst[at:]
	delta := off - r.Slot(0).Off // may wrap, and back
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

// A Record is one record of a [Batch].
type Record struct {
	Data   []byte // owned by the batch
	Ticket uint64
	Meta
}

// A Batch is the unit of one Send of a session: records in the order of acceptance, as a list of
// runs.
//
// The caller of Send owns the memory, which is valid until Send returns. Methods that read a Batch
// are safe for concurrent use; methods that change it are not.
type Batch struct {
	// Runs contains the records. To append, use [Batch.Add], which maintains Len and
	// Bytes.
	Runs []Run
	// Codec is the codec of the bytes. It is nil for plain lines of unknown content.
	Codec Codec
	// Origin and its ticket identify a record permanently. Origin is the id of the
	// slab.Writer that accepted the record: the id of its crash-safe file if it has one,
	// otherwise a random number. It does not change when the record is sent again, stored
	// in a spool, or sent by another process after a crash. All records of a batch have the
	// same Origin. It is zero, which identifies nothing, in a batch of gap markers, in a
	// batch not made by a Writer, and in batches that earlier versions wrote to a spool.
	Origin [16]byte

	n     int
	bytes int
}

// Add appends a run. Empty runs are ignored.
func (b *Batch) Add(r Run) {
	if len(r.slots) == 0 {
		return
	}
	b.Runs = append(b.Runs, r)
	b.n += len(r.slots)
	b.bytes += len(r.Data())
}

// Reset empties b for reuse. It keeps the capacity of Runs, the Codec and the Origin.
func (b *Batch) Reset() {
	clear(b.Runs)
	b.Runs, b.n, b.bytes = b.Runs[:0], 0, 0
}

// Len returns the number of records.
func (b *Batch) Len() int { return b.n }

// Bytes returns the number of payload bytes.
func (b *Batch) Bytes() int { return b.bytes }

// First returns the ticket of the first record, or 0 if the batch is empty.
func (b *Batch) First() uint64 {
	if b.n == 0 {
		return 0
	}
	return b.Runs[0].Slot(0).Ticket
}

// Last returns the ticket of the last record, or 0 if the batch is empty.
func (b *Batch) Last() uint64 {
	if b.n == 0 {
		return 0
	}
	r := &b.Runs[len(b.Runs)-1]
	return r.Slot(r.Len() - 1).Ticket
}

// All returns an iterator over the records and their indexes.
func (b *Batch) All() iter.Seq2[int, Record] {
	return func(yield func(int, Record) bool) {
		k := 0
		for i := range b.Runs {
			r := &b.Runs[i]
			for j := range r.slots {
				s := r.Slot(j)
				if !yield(k, Record{Data: r.Record(j), Ticket: s.Ticket, Meta: s.Meta()}) {
					return
				}
				k++
			}
		}
	}
}

// At returns record i. It walks the runs; use [Batch.All] in loops.
func (b *Batch) At(i int) Record {
	for k := range b.Runs {
		r := &b.Runs[k]
		if i < len(r.slots) {
			s := r.Slot(i)
			return Record{Data: r.Record(i), Ticket: s.Ticket, Meta: s.Meta()}
		}
		i -= len(r.slots)
	}
	panic("batch: index out of range")
}

// Slice appends the records i to j-1 to dst, which may be nil, and returns it. The result shares the
// memory of b.
func (b *Batch) Slice(dst *Batch, i, j int) *Batch {
	if dst == nil {
		dst = new(Batch)
	}
	dst.Codec, dst.Origin = b.Codec, b.Origin
	for k := range b.Runs {
		r := &b.Runs[k]
		n := len(r.slots)
		lo, hi := max(i, 0), min(j, n)
		if lo < hi {
			dst.Add(r.Slice(lo, hi))
		}
		i, j = i-n, j-n
	}
	return dst
}

// Select appends the records with the given ascending indexes to dst, which may be nil, and returns
// it. The result shares the memory of b.
func (b *Batch) Select(dst *Batch, indexes []int) *Batch {
	if dst == nil {
		dst = new(Batch)
	}
	dst.Codec, dst.Origin = b.Codec, b.Origin
	base, k := 0, 0
	for x := 0; x < len(indexes) && k < len(b.Runs); {
		r := &b.Runs[k]
		if indexes[x] >= base+r.Len() {
			base += r.Len()
			k++
			continue
		}
		end := x + 1
		for end < len(indexes) && indexes[end] == indexes[end-1]+1 && indexes[end] < base+r.Len() {
			end++
		}
		dst.Add(r.Slice(indexes[x]-base, indexes[end-1]-base+1))
		x = end
	}
	return dst
}

// AppendTo appends the payload of all records to dst and returns the extended slice.
func (b *Batch) AppendTo(dst []byte) []byte {
	for i := range b.Runs {
		dst = append(dst, b.Runs[i].Data()...)
	}
	return dst
}

// A Builder makes a [Batch] from single records, which it copies. The zero value is an empty Builder.
// It is for tests, replay and destinations that store batches. It is not safe for concurrent use.
type Builder struct {
	data  []byte
	slots []Slot
}

// Append appends a copy of a record. A ticket of 0 means the previous ticket plus one.
func (b *Builder) Append(rec []byte, ticket uint64, m Meta) {
	if ticket == 0 {
		ticket = 1
		if n := len(b.slots); n > 0 {
			ticket = b.slots[n-1].Ticket + 1
		}
	}
	b.slots = append(b.slots, Slot{
		Ticket: ticket, Time: m.Time, Off: uint32(len(b.data)), Len: uint32(len(rec)),
		Stream: m.Stream, Level: clampLevel(m.Level),
	})
	b.data = append(b.data, rec...)
}

// Batch returns the batch of the appended records. It shares the builder's memory until Reset.
func (b *Builder) Batch(c Codec) *Batch {
	out := &Batch{Codec: c}
	out.Add(NewRun(b.data, b.slots))
	return out
}

// Reset removes all records and keeps the memory.
func (b *Builder) Reset() { b.data, b.slots = b.data[:0], b.slots[:0] }
