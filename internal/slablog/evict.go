package slablog

import "github.com/forebay-log/forebay/batch"

// DropOldest frees whole slabs. It drops the oldest slab that no Send reads, or an older record
// that is larger than a slab. See docs/adr/0019-bound-memory-by-whole-slabs.md.

// evictLocked drops the oldest block whose drop frees a slab. If all slabs except the current one
// are being read, it seals and drops the current one. It reports whether a slab is free now.
func (s *store) evictLocked() bool {
	point(ptEvictLocked)
	if !s.evictOldestLocked(s.freesSlabLocked) {
		if c := s.front.cur; c != nil && c.queued == c.refs {
			s.front.sealLocked()
			s.evictOldestLocked(s.freesSlabLocked)
		}
	}
	return s.pool.free() > 0
}

// evictForLocked makes room for a record of n bytes that is larger than a slab, and reserves that
// room. It drops the oldest blocks. If too many slabs are being read, it drops nothing and returns
// false: so it first computes what dropping everything would free.
func (s *store) evictForLocked(n int, m batch.Meta) bool {
	if s.front.belowReserveLocked(m) {
		return false
	}
	held, slabs := s.pool.oversize, len(s.pool.idle) // values after all evictable blocks are dropped
	var last *block                                  // a slab may have several pieces, with only large records between them
	for _, p := range s.pieces.queued {
		switch b := p.blk; {
		case b.big:
			held -= len(b.mem)
		case b != last && b.evictable():
			last = b
			slabs++
		}
	}
	if held > 0 && s.pool.slabsFor(held+n) > min(s.pool.maxCeded, slabs) {
		return false
	}
	for !s.pool.cedeLocked(n, s.front.reservedLocked(m)) {
		// If no further slabs may be ceded, room results only from dropping another oversize
		// record.
		noMoreSlabs := s.pool.slabsFor(s.pool.oversize+n) > s.pool.maxCeded
		match := func(b *block) bool { return b.big || !noMoreSlabs && b.evictable() }
		if !s.evictOldestLocked(match) {
			return false
		}
	}
	return true
}

// evictOldestLocked drops the oldest queued block for which match returns true. It resets a
// crash-safe slab at once. The header then excludes all earlier tickets, so recovery finds none of
// the dropped records.
func (s *store) evictOldestLocked(match func(*block) bool) bool {
	for _, p := range s.pieces.queued {
		b := p.blk
		if !match(b) {
			continue
		}
		if b.big {
			b.evicted = true
			if s.crash.mapped() {
				s.crash.notesDue = true
			}
		}
		n := s.dropQueuedLocked(b, batch.Full)
		s.crash.guardLocked(func() {
			s.crash.file.Evict(n) // first, so that recovery can explain the missing tickets
			if b.head != nil {
				b.reset(s.front.next + 1)
			}
		})
		return true
	}
	return false
}

// evictable reports whether b may be evicted. It must be a sealed slab that no Send reads.
func (b *block) evictable() bool {
	return b.retired && !b.big && b.queued == b.refs
}

// freesSlabLocked reports whether dropping b frees a slab. It does if b is a slab, or has a record
// for which a slab is ceded.
func (s *store) freesSlabLocked(b *block) bool {
	if b.big {
		return s.pool.slabsFor(s.pool.oversize-len(b.mem)) < s.pool.ceded
	}
	return b.evictable()
}
