package spool

import (
	"encoding/binary"
	"math"

	"github.com/forebay-log/forebay/batch"
)

// The record index has one entry per record: a control byte, the fields the
// control byte announces, the length. A record whose ticket follows on the one
// before, with equal stream and level, takes a control byte, a time difference
// and a length: about 6 bytes where a [batch.Slot] has 32.
const (
	hasTicket = 1 << iota // difference to the ticket before + 1, zigzag varint
	hasStream             // stream, varint; else as before (0 at first)
	hasLevel              // level, one byte; else as before (0 at first)
	noTime                // time is unknown; else difference to the last known, zigzag varint
	hasFlags              // slot flags, one byte; else 0

	controlBits = hasTicket | hasStream | hasLevel | noTime | hasFlags

	// minEntryBytes and maxEntryBytes bound one entry.
	minEntryBytes = 2
	maxEntryBytes = 1 + 10 + 5 + 1 + 1 + 10 + 5
)

// indexState is what an entry is a difference to.
type indexState struct {
	ticket uint64
	time   int64
	stream uint32
	level  int8
}

// appendIndex appends the index of b to dst and returns it with the number of
// records that are part of the account, which gap markers are not.
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
			if s.Flags&batch.FlagMarker == 0 {
				records++
			}
			if s.Time == 0 {
				ctl |= noTime
			} else {
				dst = binary.AppendVarint(dst, s.Time-st.time) // may wrap, and back
				st.time = s.Time
			}
			dst[at] = ctl
			dst = binary.AppendUvarint(dst, uint64(s.Len))
		}
	}
	return dst, records
}

// decodeIndex appends the slots of an index to dst, whose offsets count from the
// start of the payload. stream translates the stream numbers; it is called once
// for each change, and may refuse. Every byte of p must be used, the lengths
// must add up to payload, and the entries and records to what the frame header
// says: a batch is whole or it is not.
func decodeIndex(dst []batch.Slot, p []byte, h *frameHeader, stream func(uint32) (uint32, bool)) ([]batch.Slot, error) {
	// An entry has at least minEntryBytes, so memory is bounded by the file.
	if int64(h.entries)*minEntryBytes > int64(len(p)) {
		return dst, errIndex
	}
	if need := int(h.entries); cap(dst)-len(dst) < need {
		dst = append(make([]batch.Slot, 0, len(dst)+need), dst...)
	}
	var st indexState
	local, known := uint32(0), false
	off, records := uint64(0), uint32(0)
	for range h.entries {
		if len(p) == 0 {
			return dst, errIndex
		}
		ctl := p[0]
		p = p[1:]
		if ctl&^controlBits != 0 {
			return dst, errIndex
		}
		st.ticket++
		if ctl&hasTicket != 0 {
			d, n := binary.Varint(p)
			if n <= 0 {
				return dst, errIndex
			}
			st.ticket += uint64(d)
			p = p[n:]
		}
		if ctl&hasStream != 0 {
			v, n := binary.Uvarint(p)
			if n <= 0 || v > math.MaxUint32 {
				return dst, errIndex
			}
			st.stream, known = uint32(v), false
			p = p[n:]
		}
		if ctl&hasLevel != 0 {
			if len(p) == 0 {
				return dst, errIndex
			}
			st.level = int8(p[0])
			p = p[1:]
		}
		flags := uint8(0)
		if ctl&hasFlags != 0 {
			if len(p) == 0 {
				return dst, errIndex
			}
			flags = p[0]
			p = p[1:]
		}
		time := int64(0)
		if ctl&noTime == 0 {
			d, n := binary.Varint(p)
			if n <= 0 {
				return dst, errIndex
			}
			st.time += d
			time = st.time
			p = p[n:]
		}
		length, n := binary.Uvarint(p)
		if n <= 0 || length > uint64(h.payload)-off {
			return dst, errIndex
		}
		p = p[n:]
		if !known {
			if local, known = stream(st.stream); !known {
				return dst, errStreams
			}
		}
		if flags&batch.FlagMarker == 0 {
			records++
		}
		dst = append(dst, batch.Slot{
			Ticket: st.ticket, Time: time, Off: uint32(off), Len: uint32(length),
			Stream: local, Level: st.level, Flags: flags,
		})
		off += length
	}
	if len(p) != 0 || off != uint64(h.payload) || records != h.records {
		return dst, errIndex
	}
	return dst, nil
}
