package slablog

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

// A front is the part of a Writer that every call uses: the free part of the current slab, and the
// next ticket. The fields up to mu are in one cache line, because with contention each call fetches
// each of its cache lines from another processor.
//
// A goroutine that changes the current block holds front.mu and store.mu; see [store]. During the
// change, the block itself has the end of its payload and the number of its slots, and end is
// noEnd.
type front struct {
	base unsafe.Pointer // start of the memory of cur
	off  int            // offset of the payload of the next record
	end  int            // end of the slot of the next record; noEnd forces the slow path
	next uint64         // number of tickets issued so far
	cur  *block
	mu   sync.Mutex
	_    [16]byte

	flush  *slog.LevelVar // lowest level at which a record is sent at once
	checks bool           // WriteRecord calls putChecked
	spins  bool           // the machine has more than one processor
	conf   *config
	store  *store
	_      [16]byte // pads a Writer to 128 bytes, so that the allocator aligns it to a cache line
}

// noEnd is a value of front.end with which no record fits.
const noEnd = -1

// fits reports whether the fast path may store a record of n bytes.
func (f *front) fits(n int) bool { return f.off+n+layout.SlotBytes <= f.end }

// closeLocked moves the sizes of the current block from the front to the block, and forces the slow
// path.
func (f *front) closeLocked() {
	if f.end != noEnd {
		f.cur.off, f.cur.n = f.off, (len(f.cur.mem)-f.end)/layout.SlotBytes
		f.end = noEnd
	}
}

// reopenLocked opens the fast path for the free part of the current block, unless the next write must
// use the slow path. Both locks are held.
func (f *front) reopenLocked() {
	b, s := f.cur, f.store
	if s.life == accepting && b != nil && b.n > b.cut && s.callers.slabs.n == 0 && s.bell.state != parked && f.conf.o.SlabRecords == 0 {
		f.base, f.off, f.end = b.base, b.off, len(b.mem)-b.n*layout.SlotBytes
	}
}

// lock locks mu.
func (f *front) lock() {
	if !f.mu.TryLock() {
		f.wait()
	}
}

// wait locks mu after a failed TryLock. It is a separate function, so that the compiler inlines
// lock.
func (f *front) wait() { spinLock(&f.mu, f.spins) }

// spinLock locks mu. With more than one processor, it retries before it waits. A critical section
// takes about 50 ns. If a caller waits in a sync.Mutex, unlocking costs a microsecond, and the
// caller then waits for all runnable goroutines. That takes milliseconds in a program that uses all
// its processors. The pauses grow, because each attempt moves the cache line away from the holder.
// In total they last about 50 µs.
func spinLock(mu *sync.Mutex, spins bool) {
	if spins {
		n := firstPause
		for range attempts {
			for range n {
				pause.Load()
			}
			if mu.TryLock() {
				return
			}
			n = min(2*n, lastPause)
		}
	}
	mu.Lock()
}

const (
	attempts   = 64 // maximum number of attempts of spinLock
	firstPause = 64 // number of reads of the variable pause
	lastPause  = 4096
)

// pause is read by spinLock to let time pass. It is never written.
var pause atomic.Uint32

// rewindLocked resets the current block if all its records are settled.
func (f *front) rewindLocked() {
	if b := f.cur; b != nil && b.refs == 0 && b.n == b.cut {
		f.store.gauge.rewound += uint64(f.conf.o.SlabBytes - b.room())
		if b.head == nil {
			b.reset(f.next + 1)
		} else {
			f.store.crash.guardLocked(func() { b.reset(f.next + 1) })
		}
	}
}

// storeFast implements block.store for a record on the heap that is not the first of its piece. It
// is most of the cost of a call. It is inlined, and the copy comes last, so that few registers must
// be saved across it.
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

// place stores p if a slab has room for it. It is called with front.mu held.
func (f *front) place(p []byte, m batch.Meta) bool {
	if f.store.crash.mapped() {
		return f.placeGuardedLocked(p, m)
	}
	return f.placeLocked(p, m)
}

// placeLocked stores p if a slab has room for it.
func (f *front) placeLocked(p []byte, m batch.Meta) bool {
	if !f.roomLocked(len(p), m) {
		return false
	}
	f.cur.store(p, m, f.ticketLocked())
	f.storedLocked(m)
	return true
}

// roomLocked makes room for n bytes in the current block. It returns false if that is impossible.
func (f *front) roomLocked(n int, m batch.Meta) bool {
	return f.fitsLocked(n) || f.openLocked(m)
}

// storedLocked is called after a record with the metadata m was stored. It updates the gauges and
// wakes the consumer if necessary.
func (f *front) storedLocked(m batch.Meta) {
	if b := f.cur; b.n == b.cut+1 { // runs once per slab and flush, so its cost does not matter
		f.beganLocked(time.Since(f.conf.born))
	}
	if f.store.bell.state == parked {
		f.store.bell.wakeLocked()
	}
	if m.Level >= f.flush.Level() {
		f.store.progress.urgent = f.next
		f.store.bell.wakeLocked()
	}
}

// openLocked makes an empty block the current one. It returns false if no block is available.
func (f *front) openLocked(m batch.Meta) bool {
	point(ptOpenLocked)
	if f.belowReserveLocked(m) {
		return false
	}
	// Only DropOldest evicts, and only if no slab is free.
	if len(f.store.pool.free) == 0 && (f.conf.policyFor(m.Level) != slab.DropOldest() || !f.store.evictLocked()) {
		return false
	}
	// The current block is sealed only when a free block is certain. If there is none, a smaller
	// record may still fit into it.
	f.sealLocked()
	f.cur = f.store.pool.takeLocked()
	f.cur.reset(f.next + 1)
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
	return n > 0 && len(f.store.pool.free) <= n
}

// ticketLocked returns the next ticket.
func (f *front) ticketLocked() uint64 {
	f.next++
	return f.next
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
	// Without pieces in the queue or in flight, nobody reads the block, and it is free at once.
	if b.refs == 0 {
		f.store.pool.free = append(f.store.pool.free, b)
	} else {
		f.store.bell.wakeLocked()
	}
}

// cutLocked queues the records of the current block that belong to no piece yet.
// The block stays current.
func (f *front) cutLocked() {
	if b := f.cur; b != nil && b.n > b.cut {
		f.store.pushLocked(b, b.cut, b.n, b.cutTicket, b.off-b.cutOff, f.store.gauge.curSince)
		b.cut, b.cutOff = b.n, b.off
	}
}

// fitsLocked reports whether the current slab has room for a record of n bytes.
func (f *front) fitsLocked(n int) bool {
	return f.cur != nil && f.cur.fits(n) && (f.conf.o.SlabRecords == 0 || f.cur.n < f.conf.o.SlabRecords)
}

// beganLocked is called when the first record of a piece was accepted, at the time since. The
// reader may be waiting or busy.
func (f *front) beganLocked(since time.Duration) {
	f.store.gauge.curSince = since
	now := f.conf.born.Add(since)
	if f.store.bell.state == parked { // the rate of a burst must not include the idle time before it
		f.store.gauge.rate.idle(f.conf.born.Add(f.store.gauge.parkedAt), now, f.acceptedBytesLocked())
	}
	if f.store.gauge.rate.due(now) {
		f.store.gauge.rate.update(now, f.acceptedBytesLocked())
	}
}

// acceptedBytesLocked returns the number of slab bytes used so far, to within one slab.
func (f *front) acceptedBytesLocked() uint64 {
	n := uint64(f.store.sealed.Load()) * uint64(f.conf.o.SlabBytes)
	if b := f.cur; b != nil {
		n += uint64(f.conf.o.SlabBytes - b.room())
	}
	return n + f.store.gauge.rewound
}

// freeBytesLocked returns the number of free bytes, including those of the current slab.
func (f *front) freeBytesLocked() int {
	n := len(f.store.pool.free) * f.conf.o.SlabBytes
	if b := f.cur; b != nil {
		n += b.room()
	}
	return n
}
