package slablog

import (
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
)

// rewindLocked resets the current block if all its records are settled.
func (f *front) rewindLocked() {
	if b := f.cur; b != nil && b.refs == 0 && f.unreadLocked() == 0 {
		f.store.gauge.rewound += uint64(f.conf.o.SlabBytes - b.room())
		f.resetLocked()
	}
}

// The type front also has the methods that place a record in a slab. They need both locks:
//
//	placeLocked ─▶ openLocked, if the current slab is full ─▶ evictLocked
//	     │             └─▶ sealLocked ─▶ cutLocked
//	     └───▶ block.store ─▶ storedLocked

// storeFast implements block.store for a record on the heap that is not the first of its piece. It
// is most of the cost of a Write. It is inlined, and the copy comes last, so that few registers
// must be saved across the copy.
func (f *front) storeFast(p []byte, time, tail uint64) {
	copy(f.reserve(len(p), time, tail), p)
	point(ptCopiedLocked)
	point(ptStoredLocked)
}

// reserve writes the slot of a record of n bytes, which must fit, and returns the memory for its
// payload.
func (f *front) reserve(n int, time, tail uint64) []byte {
	// On the heap the order of these stores does not matter: the consumer reads the slot only after
	// the record belongs to a piece, and pieces are made with the lock held.
	off, end := f.off, f.end-layout.SlotBytes
	f.next++
	f.off, f.end = off+n, end
	*(*slotWords)(unsafe.Add(f.base, end)) = slotWords{f.next, time, pair(uint32(off), uint32(n)), tail}
	return unsafe.Slice((*byte)(unsafe.Add(f.base, off)), n)
}

// resetLocked empties the current block. After a fault it returns true, and the slabs are on the
// heap.
func (f *front) resetLocked() (faulted bool) {
	b := f.cur
	f.store.unread = unread{}
	if b.head != nil {
		return f.store.crash.guardLocked(func() { b.reset(f.next + 1) })
	}
	b.reset(f.next + 1)
	return false
}

// placeLocked stores p if a slab has room for it. It issues the ticket only after the record is
// stored, because storing into mapped memory may fault.
func (f *front) placeLocked(p []byte, m batch.Meta) bool {
	if !f.fitsLocked(len(p)) && !f.openLocked(m) {
		return false
	}
	b, ticket := f.cur, f.next+1
	if b.head == nil {
		b.store(p, m, ticket)
	} else if f.store.crash.guardLocked(func() { b.store(p, m, ticket) }) {
		return f.placeLocked(p, m) // on the heap
	}
	f.next = ticket
	f.storedLocked(m)
	return true
}

// storedLocked is called after a record with the metadata m was stored. It updates the gauges and
// wakes the consumer if necessary.
func (f *front) storedLocked(m batch.Meta) {
	if f.unreadLocked() == 1 { // runs once per slab and flush, so its cost does not matter
		f.beganLocked()
	}
	urgent := m.Level >= f.flush.Level()
	if urgent {
		f.store.due = f.next
	}
	if urgent || f.store.bell.state == parked {
		f.store.bell.wakeLocked()
	}
}

// openLocked makes an empty block the current one. It returns false if no block is available: then
// the policy decides, and the current block stays.
func (f *front) openLocked(m batch.Meta) bool {
	point(ptOpenLocked)
	if f.belowReserveLocked(m) {
		return false
	}
	// Only DropOldest evicts, and only if no slab is free.
	if f.store.pool.free() == 0 && (!f.conf.policyFor(m.Level).evicts || !f.store.evictLocked()) {
		return false
	}
	// The current block is sealed only when a free block is certain. If there is none, a smaller
	// record may still fit into it.
	f.sealLocked()
	f.cur = f.store.pool.takeLocked()
	if f.resetLocked() {
		return f.openLocked(m) // on the heap
	}
	if f.store.fewLocked() {
		f.store.pressLocked()
	}
	return true
}

// reservedLocked returns the number of free slabs that a record with the metadata m must not use.
func (f *front) reservedLocked(m batch.Meta) int {
	if f.conf.o.Reserve > 0 && m.Level < f.conf.reserve.Level() {
		return f.conf.o.Reserve
	}
	return 0
}

// belowReserveLocked reports whether a record with the metadata m must not open a slab, because the
// remaining free slabs are reserved for more important records.
func (f *front) belowReserveLocked(m batch.Meta) bool {
	n := f.reservedLocked(m)
	return n > 0 && f.store.pool.free() <= n
}

// sealLocked queues the unread records of the current block, which then accepts no more records.
func (f *front) sealLocked() {
	b := f.cur
	if b == nil {
		return
	}
	point(ptSealLocked)
	f.cutLocked()
	f.cur = nil
	b.retired = true
	f.store.sealed.Add(1)
	// Without pieces in the queue or in flight, nobody reads the block, and it is free at once. That
	// is the case if all its records were settled while it was the current one.
	if b.refs == 0 {
		f.store.pool.idle = append(f.store.pool.idle, b)
	} else {
		f.store.bell.wakeLocked()
	}
}

// fitsLocked reports whether the current slab has room for a record of n bytes.
func (f *front) fitsLocked(n int) bool {
	return f.cur != nil && f.cur.fits(n) && (f.conf.o.SlabRecords == 0 || f.cur.n < f.conf.o.SlabRecords)
}

// beganLocked is called when the first record of a piece was accepted. The reader may be waiting or
// busy.
func (f *front) beganLocked() {
	since, g := time.Since(f.conf.born), &f.store.gauge
	f.store.unread.first, f.store.unread.since = f.next, since
	now, total := f.conf.born.Add(since), f.acceptedBytesLocked()
	if f.store.bell.state == parked { // the rate of a burst must not include the idle time before it
		g.rate.idle(f.conf.born.Add(g.parkedAt), now, total)
	}
	g.rate.update(now, total)
}

// freeBytesLocked returns the number of free bytes, including those of the current slab.
func (f *front) freeBytesLocked() int {
	n := f.store.pool.free() * f.conf.o.SlabBytes
	if b := f.cur; b != nil {
		n += b.room()
	}
	return n
}

// fewLocked reports whether few slabs are free although some writes never wait. Their records are
// about to be dropped or to evict others.
func (s *store) fewLocked() bool {
	return (s.conf.usual.wait == 0 || s.conf.onImportant.wait == 0) && s.pool.free() <= s.conf.o.Reserve+s.conf.o.SlabCount/4
}

// pressLocked is called when the shortage has grown. It wakes the consumer if the consumer can
// help.
func (s *store) pressLocked() {
	if s.conf.consumer.Helps {
		s.bell.alarmLocked()
	}
}

// freedLocked is called when memory was freed. It stores the records of waiting calls. The consumer
// then looks for full slabs.
func (s *store) freedLocked() {
	// Log.End has already refused the waiting calls.
	if s.life == ended {
		return
	}
	s.front.rewindLocked()
	if s.callers.waitingLocked() > 0 {
		s.front.serveLocked()
		s.bell.wakeLocked()
	}
}

// serveLocked places the records of blocked writes, oldest first, while there is room. A record
// that finds no room stops the records after it, so that none overtakes it. Writes that wait for a
// slab do not stop writes that wait for a separate buffer, and vice versa.
func (f *front) serveLocked() {
	point(ptServeLocked)
	q := f.store.callers
	// This loop only reserves the budget. The waiting call then stores the record; see
	// storeOversizeLocked.
	for wt := q.bigs.first(); wt != nil && f.reserveOversizeLocked(len(wt.p), wt.m); wt = q.bigs.first() {
		wt.answerLocked(nil)
	}
	for wt := q.slabs.first(); wt != nil; wt = q.slabs.first() {
		if f.belowReserveLocked(wt.m) && !f.fitsLocked(len(wt.p)) {
			// This record must not use the reserve, but later waiters may.
			wt.answerLocked(f.store.dropLocked(batch.Full))
		} else if f.placeLocked(wt.p, wt.m) {
			wt.answerLocked(nil)
		} else {
			break
		}
	}
}

// reserveOversizeLocked reserves n bytes of the budget. With the policy DropOldest, it makes room
// for them.
func (f *front) reserveOversizeLocked(n int, m batch.Meta) bool {
	return f.store.pool.cedeLocked(n, f.reservedLocked(m)) || f.conf.policyFor(m.Level).evicts && f.store.evictForLocked(n, m)
}
