package slablog

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/internal/layout"
)

// A store is the memory of a Writer except its front: sealed slabs, free slabs, leases, waiting
// callers, and the account. Its consumer uses it through a [Log].
//
// mu is a leaf lock: with it held, nothing sleeps, sends to a destination or calls back. It guards
// all fields below it. Most methods also use the front and are called with front.mu held, which is
// locked first (see lock). The consumer uses mu alone while full slabs follow each other.
type store struct {
	conf  *config
	front *front
	// crash is nil if the slabs were on the heap from the start. New sets it. unsafe is the reason
	// why the slabs are on the heap despite Options.Crash; mu guards it.
	crash  *crashSafe
	unsafe error

	// sealed is the number of slabs sealed so far. The consumer reads it without a lock while it
	// spins.
	sealed atomic.Uint32

	mu   sync.Mutex
	life life
	pool pool
	// pieces are the unread records of sealed slabs, and those that were cut from the current one.
	// The records in unread follow them.
	pieces pieces
	unread unread
	leases leases
	// callers contains the calls that wait for room. found contains the files of dead processes,
	// whose records precede all others.
	callers *callers
	found   *found

	// due is a ticket, or 0. Records up to it must not wait for a full slab, because a Flush waits
	// for them, or the last of them is of FlushLevel.
	due uint64

	book  book
	gauge gauge
	bell  bell
	last  lastResort
}

// init prepares s for the front f. It adds no slab; Writer.openSlabs does that afterwards.
func (s *store) init(c *config, f *front) {
	s.conf, s.front = c, f
	s.pieces = newPieces(c.o.SlabCount + 2)
	s.pool = pool{slab: c.o.SlabBytes, maxCeded: c.o.SlabCount - neverCeded}
	s.bell.ch = make(chan struct{}, 1)
	s.leases.store = s
	s.book.series.Init(&s.mu, &s.book.Dropped, errDrops, c.events.PostEvent)
	s.callers, s.found = new(callers), &found{store: s}
}

// lock locks front.mu and mu.
func (s *store) lock() {
	s.front.lock()
	s.front.closeLocked()
	s.mu.Lock()
}

// unlock releases both locks and enables the fast path if possible. Then it wakes the consumer and
// updates the companion file if requested, since that may not be done with a lock held.
func (s *store) unlock() { s.unlockSome(false) }

// unread describes the records of the current block that are in no piece yet. They are younger than
// all pieces. Copies of values in their slots are here, because mapped memory may fault.
//
// It is valid if there is such a record. The first record is always stored on the slow path, which
// sets first and since; see reopenLocked.
type unread struct {
	from  int           // slot of the first one
	off   int           // offset of its payload
	first uint64        // its ticket
	since time.Duration // time since config.born at which it was accepted
}

// unreadLocked returns the number of records of the current block that are in no piece yet.
func (f *front) unreadLocked() int {
	if f.cur == nil {
		return 0
	}
	return f.cur.n - f.store.unread.from
}

// readUpToLocked returns the last ticket before the oldest unread record.
func (s *store) readUpToLocked() uint64 {
	if len(s.pieces.queued) > 0 {
		return s.pieces.queued[0].first - 1
	}
	if s.front.unreadLocked() > 0 {
		return s.unread.first - 1
	}
	return s.front.next
}

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
	cur  *block         // nil before the first record, and if no slab was free
	mu   sync.Mutex
	_    [16]byte

	// The fields below are set by New.

	// flush is the lowest level at which a record is sent at once.
	flush *slog.LevelVar
	// checks reports that a write must compare its record with MaxRecord, or uses mapped memory.
	checks bool
	// spins reports that the machine has more than one processor.
	spins bool
	conf  *config
	store *store
	// The padding makes a Writer 128 bytes large, so that the allocator aligns it to a cache line.
	_ [16]byte
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

// reopenLocked opens the fast path for the free part of the current block, unless the next write
// must use the slow path: because it is the first one after a cut, because it must wait in line,
// wake the consumer or be refused, or because the number of records in a slab is limited. Both
// locks are held.
func (f *front) reopenLocked() {
	b, s := f.cur, f.store
	if s.life == accepting && f.unreadLocked() > 0 && s.callers.slabs.n == 0 && s.bell.state != parked && f.conf.o.SlabRecords == 0 {
		f.base, f.off, f.end = b.base(), b.off, len(b.mem)-b.n*layout.SlotBytes
	}
}

// lock locks mu.
func (f *front) lock() {
	if !f.mu.TryLock() {
		f.wait()
	}
}

// wait locks mu after a failed TryLock. WriteRecord and Write contain the rest of lock, because the
// compiler does not inline lock.
func (f *front) wait() { spinLock(&f.mu, f.spins) }

const (
	attempts   = 64 // maximum number of attempts of spinLock
	firstPause = 64 // number of reads of the variable pause
	lastPause  = 4096
)

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

// pause is read by spinLock to let time pass. It is never written.
var pause atomic.Uint32

// calmLocked reports whether delivering records is the only work: no call waits, the log is not
// closing, and the consumer does not wait for a record.
func (s *store) calmLocked() bool {
	return s.life == accepting && s.callers.waitingLocked() == 0 && s.bell.state != parked
}

// lockSome locks only store.mu and returns true if the slabs are on the heap and calmLocked is
// true. If not, it locks both mutexes. A consumer that reads full slabs needs neither the current
// slab nor the next ticket, so it contends only with calls that change slabs. With store.mu alone,
// it must not use the front, nor the payload end and slot count of a block that may be the current
// one.
func (s *store) lockSome() (half bool) {
	if s.conf.o.Crash == nil {
		spinLock(&s.mu, s.front.spins)
		if s.calmLocked() {
			return true
		}
		s.mu.Unlock()
	}
	s.lock()
	return false
}

// unlockSome unlocks what lockSome has locked, see unlock.
func (s *store) unlockSome(half bool) {
	if !half {
		s.front.reopenLocked()
	}
	ring, notes := s.bell.toRingLocked(), s.crash != nil && s.crash.notesDue
	if notes {
		s.crash.notesDue = false
	}
	s.mu.Unlock()
	if !half {
		s.front.mu.Unlock()
	}
	if ring {
		s.bell.ring()
	}
	if notes {
		s.crash.file.Big.ApplyNotes()
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
