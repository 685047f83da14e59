package diskqueue

import (
	"hash/crc32"
	"slices"

	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/spool"
)

// Held reports which records of the batches with the given Origin are in the spool or have been
// acknowledged. It returns those of their tickets (see [batch.Batch]) that lie between first and
// last, both included. It reads the indexes of all frames; other calls wait until it is done.
//
// The result contains no other ticket: Held ignores the frames after damage in a segment, and
// records dropped over the quota. But it may omit some tickets: of the acknowledged records in
// deleted segments, only the last 60 ranges of tickets are known, which Ack stores in the cursor.
// Records in segments of version 1 have no origin.
func (s *Spool) Held(origin [16]byte, first, last uint64) (held []layout.Tickets) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if origin == [16]byte{} || s.queue.closed {
		return nil
	}
	var memory handout
	for _, g := range s.queue.segs {
		held = append(held, g.held(s.dir, origin, first, last, &memory)...)
	}
	// The segments of acknowledged records may be deleted, so the cursor has their tickets.
	for _, t := range s.reader.cursor.settled {
		if t.origin == origin {
			held = appendWithin(held, t.Tickets, first, last)
		}
	}
	return held
}

// held returns the tickets of origin in the segment, from first to last. It reads the indexes of
// the frames. If a frame contains such a ticket, the frames up to and including it are also checked
// for damage, because Next stops at damage. The memory of the handout is reused for each segment.
//
//	| frame | frame | frame | frame | frame |
//	        sound ─▶                r ─▶
//
// The caller does not deliver the records that are held. A wrong ticket in the result would lose a
// record, while a missing ticket only delivers a record twice. So the walk ends at anything that
// cannot be read.
func (g *segment) held(d *directory, origin [16]byte, first, last uint64, memory *handout) (held []layout.Tickets) {
	if g.version < 2 {
		return nil
	}
	var r segmentReader
	if r.open(d, g, g.size, &spool.Options{}) != nil {
		return nil
	}
	defer r.close()
	sound := r // all frames before its position are undamaged
	var err error
	var h, passed frameHeader
	// The index is read without verifying its checksum, which covers the whole body. The second
	// reader verifies it.
	for ; r.at.seq < g.end.seq && r.header(&h) == nil; r.skip(&h) {
		if h.origin != origin {
			continue
		}
		index := slices.Grow(memory.buf[:0], int(h.index))[:h.index]
		memory.buf = index
		if readFull(r.f, index, r.off+int64(h.head)+int64(h.dict)) != nil {
			break
		}
		if memory.slots, err = decodeIndex(memory.slots[:0], index, &h, anyStream); err != nil {
			break
		}
		n := len(held)
		for _, t := range appendRuns(nil, memory.slots) {
			held = appendWithin(held, t, first, last)
		}
		// This frame contains tickets to return, so all frames up to it are verified. Most calls
		// find no ticket and verify nothing.
		for len(held) > n && sound.at.seq <= r.at.seq {
			if sound.header(&passed) != nil {
				return held[:n]
			}
			if memory.buf, err = sound.body(&passed, memory.buf); err != nil {
				return held[:n]
			}
			sound.skip(&passed)
		}
	}
	return held
}

// anyStream returns every stream number unchanged.
func anyStream(id uint32) (uint32, bool) { return id, true }

// appendRuns appends the ranges of consecutive tickets in slots. It skips records without a ticket,
// such as gap markers, which report dropped records. Most batches are one range.
func appendRuns(dst []layout.Tickets, slots []layout.Slot) []layout.Tickets {
	for i := range slots {
		s := &slots[i]
		switch n := len(dst); {
		case s.Flags&layout.FlagMarker != 0 || s.Ticket == 0:
		case n > 0 && s.Ticket == dst[n-1].Last+1:
			dst[n-1].Last++
		default:
			dst = append(dst, layout.Tickets{First: s.Ticket, Last: s.Ticket})
		}
	}
	return dst
}

// appendWithin appends the part of t that lies between first and last, if there is one.
func appendWithin(to []layout.Tickets, t layout.Tickets, first, last uint64) []layout.Tickets {
	if t.First > last || t.Last < first {
		return to
	}
	return append(to, layout.Tickets{First: max(t.First, first), Last: min(t.Last, last)})
}

// settledTickets is a range of tickets (record numbers) of acknowledged records. All are from one
// origin; see [batch.Batch].
type settledTickets struct {
	origin [16]byte
	layout.Tickets
}

const (
	// maxSettled is the maximum number of ranges of acknowledged tickets in the cursor. They fit
	// into the 4 KiB of a slot.
	maxSettled = 60
	// In the cursor file, the ranges are stored after each slot: a checksum, the number of ranges,
	// and an entry for each range.
	settledHeadBytes  = 8
	settledEntryBytes = 32
)

// noteSettled adds the tickets of an acknowledged batch. The next write stores them.
func (c *cursor) noteSettled(origin [16]byte, slots []layout.Slot) {
	if origin == [16]byte{} {
		return
	}
	c.runs = appendRuns(c.runs[:0], slots)
	for _, t := range c.runs {
		c.addSettled(settledTickets{origin, t})
	}
}

// addSettled makes t the newest range, joined with the ranges that it overlaps or continues. The
// oldest range is removed if there are too many.
func (c *cursor) addSettled(t settledTickets) {
	if t.origin == [16]byte{} || t.First == 0 || t.First > t.Last { // only another program can have written such a range
		return
	}
	c.settled = slices.DeleteFunc(c.settled, func(o settledTickets) bool {
		if o.origin != t.origin || o.First-1 > t.Last || t.First-1 > o.Last {
			return false
		}
		t.First, t.Last = min(t.First, o.First), max(t.Last, o.Last)
		return true
	})
	if n := len(c.settled); n >= maxSettled {
		c.settled = slices.Delete(c.settled, 0, n-maxSettled+1)
	}
	c.settled = append(c.settled, t)
}

// appendSettled appends the ranges to dst, in the format of the cursor file.
func (c *cursor) appendSettled(dst []byte) []byte {
	at := len(dst)
	dst = le.AppendUint32(dst, 0) // checksum, below
	dst = le.AppendUint32(dst, uint32(len(c.settled)))
	for i := range c.settled {
		t := &c.settled[i]
		dst = append(dst, t.origin[:]...)
		dst = le.AppendUint64(dst, t.First)
		dst = le.AppendUint64(dst, t.Last)
	}
	le.PutUint32(dst[at:], crc32.Checksum(dst[at+4:], castagnoli))
	return dst
}

// parseSettled adds the ranges in p, unless their checksum is wrong. p has the size of the longest
// list.
func (c *cursor) parseSettled(p []byte) {
	n := le.Uint32(p[4:])
	if n == 0 || n > maxSettled {
		return
	}
	end := settledHeadBytes + int(n)*settledEntryBytes
	if crc32.Checksum(p[4:end], castagnoli) != le.Uint32(p) {
		return
	}
	for p = p[settledHeadBytes:end]; len(p) > 0; p = p[settledEntryBytes:] {
		c.addSettled(settledTickets{[16]byte(p), layout.Tickets{First: le.Uint64(p[16:]), Last: le.Uint64(p[24:])}})
	}
}
