// Package batch defines the types that all packages of forebay share:
//
//   - [Batch]: the records that are passed from a slab to a destination
//   - [Outcome]: the answer to a batch
//   - [Account] and [Reason]: the numbers of records by outcome
//   - [Codec]: the format of the bytes of a record
//
// They belong to the path of a record:
//
//	slab ─▶ Batch ─▶ session.Send ─▶ Outcome ─▶ Account
//
// A destination reads a batch like this:
//
//	for i, rec := range b.All() {
//		…
//	}
//
// The other packages of forebay import this one; it imports none of them.
package batch

import (
	"iter"
	"log/slog"
	"math"

	"github.com/forebay-log/forebay/internal/layout"
)

// Meta describes one encoded record.
type Meta struct {
	// Time is the time of the record in Unix nanoseconds; 0 means unknown.
	Time int64
	// Level is the severity of the record. It is stored in 8 bits: values outside -128…127 are
	// clamped.
	Level slog.Level
	// Stream is the number that a destination has assigned to a tag or a label set. It is 0 for
	// destinations without streams.
	Stream uint32
}

// NoLevel is the Level of a record whose level is unknown, such as a line of another program.
const NoLevel = slog.Level(math.MinInt8)

// clampLevel converts l to the 8 bits in which a level is stored. A value that does not fit becomes
// the nearest value that fits.
func clampLevel(l slog.Level) int8 {
	return int8(max(math.MinInt8, min(math.MaxInt8, int(l))))
}

// metaOf returns the Meta of the record that s describes.
func metaOf(s *layout.Slot) Meta {
	return Meta{Time: s.Time, Level: slog.Level(s.Level), Stream: s.Stream}
}

// A Record is one record of a [Batch].
type Record struct {
	Data   []byte // memory of the batch
	Ticket uint64
	Meta
}

// A Batch is the unit of one Send of a session: records in the order of acceptance. The zero value is
// an empty batch.
//
// The caller of Send owns the memory, which is valid until Send returns. Methods that read a Batch
// are safe for concurrent use; methods that change it are not.
type Batch struct {
	// Runs contains the records in parts whose bytes are contiguous. [Batch.All] and
	// [Batch.AppendTo] read them. To change Runs, use the methods of Batch, which maintain Len and
	// Bytes.
	Runs []layout.Run
	// Codec is the codec of the bytes. It is nil for plain lines of unknown content.
	Codec Codec
	// Origin and the ticket of a record together identify the record permanently. Origin is the
	// id of the memory that accepted the record: the id of its crash-safe file if it has one, or
	// a random number. It does not change when the record is sent again, stored in a spool, or
	// sent by another process after a crash. All records of a batch have the same Origin. A zero
	// Origin identifies nothing. Origin is zero in a batch of gap markers (records that report
	// drops), in a batch that was not made from memory of an output, and in batches that earlier
	// versions wrote to a spool.
	Origin [16]byte

	n      int
	bytes  int
	copied bool // the last run contains copies made by Append
}

// Add appends the records of a slab without copying them: b shares the memory of the slab. An empty
// run is ignored.
func (b *Batch) Add(r layout.Run) {
	if r.Len() == 0 {
		return
	}
	b.Runs = append(b.Runs, r)
	b.n += r.Len()
	b.bytes += len(r.Data())
	b.copied = false
}

// Append appends a copy of a record. If ticket is 0, the record gets the last ticket plus one.
// Append is for tests and for handlers that convert a batch.
func (b *Batch) Append(rec []byte, ticket uint64, m Meta) {
	if ticket == 0 {
		ticket = b.Last() + 1
	}
	if !b.copied {
		b.Runs, b.copied = append(b.Runs, layout.Run{}), true
	}
	b.Runs[len(b.Runs)-1].Append(rec, layout.Slot{Ticket: ticket, Time: m.Time, Stream: m.Stream, Level: clampLevel(m.Level)})
	b.n++
	b.bytes += len(rec)
}

// Reset empties b for reuse. It keeps the capacity of Runs, the Codec and the Origin.
func (b *Batch) Reset() {
	clear(b.Runs)
	b.Runs, b.n, b.bytes, b.copied = b.Runs[:0], 0, 0, false
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
			for j := range r.Len() {
				s := r.Slot(j)
				if !yield(k, Record{Data: r.Record(j), Ticket: s.Ticket, Meta: metaOf(s)}) {
					return
				}
				k++
			}
		}
	}
}

// At returns the record with index i. It searches the runs linearly; in loops, use [Batch.All].
func (b *Batch) At(i int) Record {
	for k := range b.Runs {
		r := &b.Runs[k]
		if i < r.Len() {
			s := r.Slot(i)
			return Record{Data: r.Record(i), Ticket: s.Ticket, Meta: metaOf(s)}
		}
		i -= r.Len()
	}
	panic("batch: index out of range")
}

// Slice appends the records i to j-1 to dst and returns dst. If dst is nil, Slice makes a new
// Batch. The result shares the memory of b.
func (b *Batch) Slice(dst *Batch, i, j int) *Batch {
	if dst == nil {
		dst = new(Batch)
	}
	dst.Codec, dst.Origin = b.Codec, b.Origin
	for k := range b.Runs {
		r := &b.Runs[k]
		n := r.Len()
		lo, hi := max(i, 0), min(j, n)
		if lo < hi {
			dst.Add(r.Slice(lo, hi))
		}
		i, j = i-n, j-n
	}
	return dst
}

// Select appends the records with the given ascending indexes to dst and returns dst. If dst is
// nil, Select makes a new Batch. The result shares the memory of b.
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
