package spool

import (
	"hash/crc32"
	"io"
	"slices"

	"github.com/forebay-log/forebay/batch"
)

// Held returns the tickets from first to last of those records of origin that are in the
// spool or have been acknowledged. It reads the indexes of all frames; calls of Next and
// Ack wait until it is done.
//
// The result contains no other ticket: a frame counts only if its segment is undamaged up
// to that frame, and records dropped over the quota do not count. It may omit some: for
// acknowledged records in deleted segments, only the last 60 ranges are known, which Ack
// stores in the cursor. Records in segments of version 1 have no origin.
func (s *Spool) Held(origin [16]byte, first, last uint64) (held []batch.Tickets) {
	if origin == [16]byte{} || s.isClosed() {
		return nil
	}
	s.readMu.Lock()
	defer s.readMu.Unlock()
	type source struct {
		segment
		at *segment
	}
	s.mu.Lock()
	var segs []source
	for _, g := range s.segs {
		segs = append(segs, source{*g, g})
	}
	s.mu.Unlock()
	for _, g := range segs {
		found := s.heldIn(&g.segment, origin, first, last)
		s.mu.Lock()
		gone := g.at.gone // dropped over the quota
		s.mu.Unlock()
		if !gone {
			held = append(held, found...)
		}
	}
	for _, t := range s.cur.settled {
		if t.origin == origin && t.First <= last && t.Last >= first {
			held = append(held, batch.Tickets{First: max(t.First, first), Last: min(t.Last, last)})
		}
	}
	return held
}

// heldIn is Held for one segment.
func (s *Spool) heldIn(g *segment, origin [16]byte, first, last uint64) (held []batch.Tickets) {
	if g.version < 2 || g.gone {
		return nil
	}
	f, err := openIn(s.fs, s.dir, g.name)
	if err != nil {
		return nil
	}
	defer f.Close()
	w := startFrames(f, g.size, &g.segmentHeader)
	sound := w // everything before it is valid
	var h, passed frameHeader
	var index, scratch []byte
	for w.seq < g.end.seq && w.header(&h) == nil {
		var found []batch.Tickets
		if h.origin == origin {
			index = slices.Grow(index[:0], int(h.index))[:h.index]
			if readFull(f, index, w.off+int64(h.head)+int64(h.dict)) != nil {
				break
			}
			found = ticketsOf(index, first, last)
		}
		if len(found) > 0 {
			if scratch == nil {
				scratch = make([]byte, 64<<10)
			}
			for sound.seq <= w.seq {
				if sound.header(&passed) != nil || sound.verify(&passed, scratch) != nil {
					return held // Next does not come further either
				}
			}
			held = append(held, found...)
		}
		w.skip(&h)
	}
	return held
}

// ticketsOf returns the tickets between first and last in an index, as far as it can be
// read.
func ticketsOf(p []byte, first, last uint64) (held []batch.Tickets) {
	var st indexState
	for i := 0; i < len(p); {
		ctl := p[i]
		st.ticket++
		next, flags, ok := st.changes(p, i+1, ctl)
		if ok && ctl&noTime == 0 {
			_, next = uvarint(p, next)
			ok = next >= 0
		}
		if ok {
			_, next = uvarint(p, next) // length
		}
		if !ok || next < 0 {
			return held
		}
		i = next
		if flags&batch.FlagMarker == 0 && st.ticket >= first && st.ticket <= last {
			held = appendTicket(held, st.ticket)
		}
	}
	return held
}

// appendTicket adds a ticket to ranges.
func appendTicket(to []batch.Tickets, ticket uint64) []batch.Tickets {
	if n := len(to); n > 0 && to[n-1].Last+1 == ticket {
		to[n-1].Last = ticket
		return to
	}
	return append(to, batch.Tickets{First: ticket, Last: ticket})
}

// settledTickets are records of one origin that were acknowledged.
type settledTickets struct {
	origin [16]byte
	batch.Tickets
}

const (
	// maxSettled is how many ranges of acknowledged tickets the spool remembers.
	maxSettled = 60
	// In the cursor file they follow a slot: checksum, number, and an entry for each.
	settledHeadBytes  = 8
	settledEntryBytes = 32
)

// noteSettled remembers the records of a batch that is acknowledged.
func (c *cursor) noteSettled(origin [16]byte, slots []batch.Slot) {
	if origin == [16]byte{} {
		return
	}
	var t batch.Tickets
	for i := range slots {
		switch s := &slots[i]; {
		case s.Flags&batch.FlagMarker != 0:
		case s.Ticket == t.Last+1 && t.First > 0:
			t.Last++
		default:
			c.addSettled(settledTickets{origin, t})
			t = batch.Tickets{First: s.Ticket, Last: s.Ticket}
		}
	}
	c.addSettled(settledTickets{origin, t})
}

// addSettled makes t the newest range, joined with those that it touches. The oldest one
// goes if there are too many.
func (c *cursor) addSettled(t settledTickets) {
	if t.origin == [16]byte{} || t.First == 0 || t.First > t.Last {
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

// appendSettled appends the ranges in the format of the cursor file to dst.
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

// readSettled adds the ranges after both slots, those of the newer slot last. Ranges of the older
// one stay settled. Cursors of earlier versions have none.
func (c *cursor) readSettled(f io.ReaderAt) {
	for slot := c.state.gen + 1; slot < c.state.gen+3; slot++ {
		var p [settledHeadBytes + maxSettled*settledEntryBytes]byte
		n, _ := f.ReadAt(p[:], int64(slot%2)*cursorStride+cursorSlotBytes)
		c.parseSettled(p[:n])
	}
}

func (c *cursor) parseSettled(p []byte) {
	if len(p) < settledHeadBytes {
		return
	}
	n := le.Uint32(p[4:])
	end := settledHeadBytes + int(min(n, maxSettled))*settledEntryBytes
	if n == 0 || n > maxSettled || end > len(p) || crc32.Checksum(p[4:end], castagnoli) != le.Uint32(p) {
		return
	}
	for p = p[settledHeadBytes:end]; len(p) > 0; p = p[settledEntryBytes:] {
		c.addSettled(settledTickets{[16]byte(p), batch.Tickets{First: le.Uint64(p[16:]), Last: le.Uint64(p[24:])}})
	}
}
