package diskqueue

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
)

// The record index has one entry per record: a control byte, the fields that the control byte
// announces, and the length. Fields are differences to the record before. The usual record, with
// the next ticket and the same stream and level, needs only about 6 bytes, instead of the 32 bytes
// of a [layout.Slot]:
//
//	| 0 | time difference, zigzag varint | length, varint |
//
// A spool writes an index for each batch and reads it back for each delivery, so both directions
// avoid allocations and calls per record.
const (
	hasTicket = 1 << iota // difference to the ticket of the previous record plus 1, zigzag varint
	hasStream             // stream, varint; if absent, as in the previous record (0 for the first record)
	hasLevel              // level, one byte; if absent, as in the previous record (0 for the first record)
	noTime                // the time is unknown; if absent, difference to the last known time, zigzag varint
	hasFlags              // slot flags, one byte; if absent, 0

	controlBits = hasTicket | hasStream | hasLevel | noTime | hasFlags

	minEntryBytes = 2 // size of the smallest entry
)

// indexState is the state to which an entry of the index is relative. It begins with zeros in each
// frame, so that a frame can be read without those before it.
type indexState struct {
	ticket uint64
	time   int64
	stream uint32
	level  int8
}

// appendIndex appends the index of b to dst. It returns the index and the number of records without
// gap markers. Offsets are not stored, because the records are contiguous.
func appendIndex(dst []byte, b *batch.Batch) (_ []byte, records int) {
	var st indexState
	for i := range b.Runs {
		r := &b.Runs[i]
		for j := range r.Len() {
			s := r.Slot(j)
			at := len(dst)
			dst = append(dst, 0)
			ctl := byte(0)
			if s.Ticket != st.ticket+1 {
				ctl |= hasTicket
				dst = binary.AppendVarint(dst, int64(s.Ticket-st.ticket-1))
			}
			st.ticket = s.Ticket
			if s.Stream != st.stream {
				ctl |= hasStream
				st.stream = s.Stream
				dst = binary.AppendUvarint(dst, uint64(s.Stream))
			}
			if s.Level != st.level {
				ctl |= hasLevel
				st.level = s.Level
				dst = append(dst, byte(s.Level))
			}
			if s.Flags != 0 {
				ctl |= hasFlags
				dst = append(dst, s.Flags)
			}
			if s.Flags&layout.FlagMarker == 0 {
				records++
			}
			if s.Time == 0 {
				ctl |= noTime
			} else {
				dst = binary.AppendVarint(dst, s.Time-st.time) // the difference may overflow; the decoder reverses this
				st.time = s.Time
			}
			dst[at] = ctl
			dst = binary.AppendUvarint(dst, uint64(s.Len))
		}
	}
	return dst, records
}

// decodeIndex appends the slots of an index to dst; their offsets count from the start of the
// payload. It translates stream numbers with the function stream, which it calls whenever the
// number changes from one record to the next, and which may refuse a number. decodeIndex returns
// errIndex unless it uses every byte of p, the lengths add up to the payload, and the numbers of
// entries and records match the frame header.
func decodeIndex(dst []layout.Slot, p []byte, h *frameHeader, stream func(uint32) (uint32, bool)) ([]layout.Slot, error) {
	// An entry has at least minEntryBytes, so the size of the file limits the memory.
	if int64(h.entries)*minEntryBytes > int64(len(p)) {
		return dst, errIndex
	}
	if need := int(h.entries); cap(dst)-len(dst) < need {
		dst = append(make([]layout.Slot, 0, len(dst)+need), dst...)
	}
	var st indexState
	local, known := uint32(0), false
	off, records := uint64(0), uint32(0)
	i := 0 // offset in p up to which entries are decoded
	for range h.entries {
		// The reads below are checked once per entry, at its end: after the first error, next stays
		// -1.
		st.ticket++
		if known && len(p)-i >= 8 {
			// Fast path for the most frequent kind of entry. The general code below gives the same
			// result.
			if d, length, n := decodeShort(le.Uint64(p[i:])); n > 0 && length <= uint64(h.payload)-off {
				i += n
				st.time += d
				records++
				dst = dst[:len(dst)+1] // room was made before the loop
				s := &dst[len(dst)-1]  // a composite literal would be built in a temporary and copied
				s.Ticket, s.Time, s.Off, s.Len = st.ticket, st.time, uint32(off), uint32(length)
				s.Stream, s.Level, s.Flags = local, st.level, 0
				off += length
				continue
			}
		}
		ctl, next := octet(p, i)
		flags := uint8(0)
		if ctl&^noTime != 0 { // most entries have no announced field
			before := st.stream
			flags, next = st.changes(p, next, ctl)
			known = known && st.stream == before
		}
		time := int64(0)
		if ctl&noTime == 0 {
			var d uint64
			d, next = uvarint(p, next)
			st.time += zigzag(d)
			time = st.time
		}
		length, next := uvarint(p, next)
		if next < 0 || length > uint64(h.payload)-off {
			return dst, errIndex
		}
		i = next
		if !known {
			if local, known = stream(st.stream); !known {
				return dst, errStreams
			}
		}
		if flags&layout.FlagMarker == 0 {
			records++
		}
		dst = dst[:len(dst)+1]
		dst[len(dst)-1] = layout.Slot{
			Ticket: st.ticket, Time: time, Off: uint32(off), Len: uint32(length),
			Stream: local, Level: st.level, Flags: flags,
		}
		off += length
	}
	if i != len(p) || off != uint64(h.payload) || records != h.records {
		return dst, errIndex
	}
	return dst, nil
}

// changes reads the fields between the control byte and the time from p[i:] and applies them to st.
// It returns the flags of the record and the position after the fields, or -1 if the entry ends
// early or has a field that this version does not know.
func (st *indexState) changes(p []byte, i int, ctl byte) (flags uint8, next int) {
	var v uint64
	if ctl&^controlBits != 0 {
		return 0, -1
	}
	if ctl&hasTicket != 0 {
		v, i = uvarint(p, i)
		st.ticket += uint64(zigzag(v))
	}
	if ctl&hasStream != 0 {
		if v, i = uvarint(p, i); v > math.MaxUint32 {
			return 0, -1
		}
		st.stream = uint32(v)
	}
	if ctl&hasLevel != 0 {
		var level byte
		level, i = octet(p, i)
		st.level = int8(level)
	}
	if ctl&hasFlags != 0 {
		flags, i = octet(p, i)
	}
	return flags, i
}

// uvarint reads a varint from p[i:] and returns the position after it. It returns the position -1
// if there is no valid varint, or if i is -1, so that the caller of a series of reads checks only
// the last position.
func uvarint(p []byte, i int) (v uint64, next int) {
	if i < 0 {
		return 0, -1
	}
	v, n := binary.Uvarint(p[i:])
	if n <= 0 {
		return 0, -1
	}
	return v, i + n
}

// octet is like uvarint, but reads a single byte.
func octet(p []byte, i int) (b byte, next int) {
	if i < 0 || i >= len(p) {
		return 0, -1
	}
	return p[i], i + 1
}

// zigzag decodes a signed number.
func zigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// decodeShort decodes an entry without optional fields from the eight bytes in x. Such an entry is
// a control byte of 0, a time difference and a length, each a varint of at most four bytes. n is
// the size of the entry in bytes, or 0 if x begins with another kind of entry.
//
// A varint ends with the first byte below 0x80. Finding both ends with bit operations instead of
// loops halves the time of decoding: BenchmarkIndex.
func decodeShort(x uint64) (diff int64, length uint64, n int) {
	ends := ^x & 0x8080808080808080 // the top bit of the control byte and of the last byte of each varint
	end1 := ends & (ends - 1)       // without the control byte
	end2 := end1 & (end1 - 1)       // without the time difference
	if byte(x) != 0 || end2 == 0 {
		return 0, 0, 0
	}
	i := bits.TrailingZeros64(end1) >> 3 // last byte of the time difference
	n = bits.TrailingZeros64(end2)>>3 + 1
	if i > 4 || n-i > 5 {
		return 0, 0, 0
	}
	d := (x & (end1 ^ (end1 - 1))) >> 8
	l := (x & (end2 ^ (end2 - 1))) >> (8 * (i + 1))
	d = d&0x7f | d>>1&(0x7f<<7) | d>>2&(0x7f<<14) | d>>3&(0x7f<<21)
	l = l&0x7f | l>>1&(0x7f<<7) | l>>2&(0x7f<<14) | l>>3&(0x7f<<21)
	return zigzag(d), l, n
}
