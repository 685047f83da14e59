// Package batch holds what every room of forebay shares: the [Batch] of
// records that travels from a slab to a destination, the answer to it
// ([Outcome]), what can become of its records ([Account], [Reason]) and how
// their bytes are to be read ([Codec]).
//
// It is a leaf: it imports nothing of forebay.
package batch

import (
	"iter"
	"log/slog"
	"math"
	"slices"
)

// Meta is what is known of one encoded record beside its bytes.
type Meta struct {
	// Time is the record's own time in Unix nanoseconds; 0 means unknown.
	Time int64
	// Level is the record's severity. Slots keep it in 8 bits: values outside
	// -128…127 are clamped.
	Level slog.Level
	// Stream is a small integer that a destination gave out for a tag or label set; 0
	// is the only stream of destinations that know no streams.
	Stream uint32
}

// clampLevel narrows l to the 8 bits a [Slot] keeps.
func clampLevel(l slog.Level) int8 {
	return int8(max(math.MinInt8, min(math.MaxInt8, int(l))))
}

// SlotBytes is the size of a [Slot] in memory: 32 bytes.
const SlotBytes = 32

// A Slot is the index entry of one record: where its bytes lie and what is
// known of them. It holds no pointer, so it can live in mapped memory.
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

// FlagMarker, in Slot.Flags, says that the record is a gap marker made by a
// Writer: no record of the account.
const FlagMarker = 1

// Meta returns what the slot knows of its record.
func (s *Slot) Meta() Meta {
	return Meta{Time: s.Time, Level: slog.Level(s.Level), Stream: s.Stream}
}

// A Run is a sequence of records whose bytes lie one after the other, without a
// gap, in one block of memory.
type Run struct {
	block []byte
	slots []Slot
	back  bool // slots grow downwards: record i is slots[len-1-i]
}

// NewRun returns the run that slots describe in block, in slot order. The run
// keeps both slices. Records must be contiguous: each slot begins where the one
// before ended.
func NewRun(block []byte, slots []Slot) Run { return Run{block: block, slots: slots} }

// NewBackRun is [NewRun] for slots that grow downwards from the end of a slab,
// so that the last element describes the first record.
func NewBackRun(block []byte, slots []Slot) Run {
	return Run{block: block, slots: slots, back: true}
}

// Len returns the number of records.
func (r *Run) Len() int { return len(r.slots) }

// Slot returns the index entry of record i. It must not be changed.
func (r *Run) Slot(i int) *Slot {
	if r.back {
		return &r.slots[len(r.slots)-1-i]
	}
	return &r.slots[i]
}

// Record returns the bytes of record i. They belong to the run.
func (r *Run) Record(i int) []byte {
	s := r.Slot(i)
	return r.block[s.Off : uint64(s.Off)+uint64(s.Len) : uint64(s.Off)+uint64(s.Len)]
}

// Data returns the bytes of all records of the run, one after the other. They
// belong to the run.
func (r *Run) Data() []byte {
	n := len(r.slots)
	if n == 0 {
		return nil
	}
	first, last := r.Slot(0), r.Slot(n-1)
	end := uint64(last.Off) + uint64(last.Len)
	return r.block[first.Off:end:end]
}

// Slice returns the records from i up to, but not including, j.
func (r *Run) Slice(i, j int) Run {
	if r.back {
		n := len(r.slots)
		return Run{block: r.block, slots: r.slots[n-j : n-i], back: true}
	}
	return Run{block: r.block, slots: r.slots[i:j]}
}

// AppendSlots appends the index entries of the run to dst in record order, as they
// are when its bytes begin at off, and returns it.
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
	Data   []byte // belongs to the batch
	Ticket uint64
	Meta
}

// A Batch is what one Send of a session takes: records in the order in which they
// were accepted, as a list of runs.
//
// The memory belongs to whoever calls Send; it is valid until Send returns. Several
// goroutines may read a Batch at once; what changes it is for one at a time.
type Batch struct {
	// Runs holds the records. Use [Batch.Add] to append so that Len and Bytes
	// stay true.
	Runs []Run
	// Codec knows how the bytes are to be read. It is nil for plain lines of
	// unknown content.
	Codec Codec
	// Origin and its ticket name a record for good. Origin is the id of the slab.Writer
	// that accepted the record: of its crash-safe file if it has one, else a random
	// number. It stays the same when the record is sent again, when it passes through a
	// spool, and when another process sends what a dead one has left. All records of a
	// batch have the same. It is zero, which names nothing, in a batch of gap markers, in
	// one that no Writer has made, and in what earlier versions have put into a spool.
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

// Reset empties b for reuse; the capacity of Runs, the Codec and the
// Origin are kept.
func (b *Batch) Reset() {
	clear(b.Runs)
	b.Runs, b.n, b.bytes = b.Runs[:0], 0, 0
}

// Len returns the number of records.
func (b *Batch) Len() int { return b.n }

// Bytes returns the number of payload bytes.
func (b *Batch) Bytes() int { return b.bytes }

// First returns the ticket of the first record, 0 when the batch is empty.
func (b *Batch) First() uint64 {
	if b.n == 0 {
		return 0
	}
	return b.Runs[0].Slot(0).Ticket
}

// Last returns the ticket of the last record, 0 when the batch is empty.
func (b *Batch) Last() uint64 {
	if b.n == 0 {
		return 0
	}
	r := &b.Runs[len(b.Runs)-1]
	return r.Slot(r.Len() - 1).Ticket
}

// All iterates over the records with their index.
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

// Slice appends to dst, which may be nil, the records from i up to, but not
// including, j, and returns it. The result shares the memory of b.
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

// Select appends to dst, which may be nil, the records with the given ascending
// indexes and returns it. The result shares the memory of b.
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

// AppendTo appends the payload of all records to dst and returns it.
func (b *Batch) AppendTo(dst []byte) []byte {
	for i := range b.Runs {
		dst = append(dst, b.Runs[i].Data()...)
	}
	return dst
}

// A Builder makes a [Batch] from single records, copying them. The zero value is
// ready; it is for tests, replay and destinations that keep a batch of their own. Use it from
// one goroutine at a time.
type Builder struct {
	data  []byte
	slots []Slot
}

// Append copies one record. A ticket of 0 means one more than the last.
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

// Batch returns what was appended. It shares the builder's memory until Reset.
func (b *Builder) Batch(c Codec) *Batch {
	out := &Batch{Codec: c}
	out.Add(NewRun(b.data, b.slots))
	return out
}

// Reset forgets all records and keeps the memory.
func (b *Builder) Reset() { b.data, b.slots = b.data[:0], b.slots[:0] }
