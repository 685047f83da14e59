package slablog

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/slab"
)

// config contains the values that New sets and that do not change afterwards.
type config struct {
	o             slab.Options
	wait          time.Duration // maximum wait of o.WhenFull, see layout.MaxWait
	importantWait time.Duration // maximum wait of o.ImportantWhenFull
	consumer      Consumer
	id            [16]byte // identifies the records together with their tickets; see batch.Batch.Origin
	born          time.Time
	levels
	events callback.Reporter
}

// A store is the memory of a Writer except its front: sealed slabs, free slabs, leases, waiting
// callers, and the account. Its consumer uses it through a [Log].
//
// mu is a leaf lock: with it held, nothing sleeps, sends to a destination or calls back. It guards
// all fields below it. Most methods also use the front and are called with front.mu held, which is
// locked first (see lock). The consumer uses mu alone while full slabs follow each other.
type store struct {
	conf  *config
	front *front
	crash *crashSafe // nil if the slabs are on the heap; set by New

	sealed atomic.Uint32 // number of slabs sealed so far; the consumer reads it without a lock while it spins

	mu      sync.Mutex
	life    life
	pool    pool
	pieces  pieces // unread pieces, oldest first
	callers *callers
	found   *found

	leases   leases
	book     book
	progress progress
	gauge    gauge
	bell     bell
	last     lastResort
}

// init prepares s for the front f. It adds no slab; Writer.openSlabs does that afterwards.
func (s *store) init(c *config, f *front) {
	s.conf, s.front = c, f
	s.pieces = newPieces(c.o.SlabCount + 2)
	s.pool = pool{slab: c.o.SlabBytes, maxCeded: c.o.SlabCount - neverCeded}
	s.bell.ch = make(chan struct{}, 1)
	s.leases.store = s
	s.callers, s.found = &callers{store: s}, &found{store: s, conf: c}
}

// lock locks front.mu and mu.
func (s *store) lock() {
	s.front.lock()
	s.front.closeLocked()
	s.mu.Lock()
}

// unlock releases both locks, enables the fast path if possible, and wakes the consumer if
// requested.
func (s *store) unlock() {
	s.front.reopenLocked()
	ring := s.bell.toRingLocked()
	s.mu.Unlock()
	s.front.mu.Unlock()
	if ring {
		s.bell.ring()
	}
}

// progress is the progress of the records, in tickets.
type progress struct {
	read   uint64 // all records up to this ticket were leased
	urgent uint64 // ticket of the last record of at least FlushLevel
	flush  uint64 // a Flush waits for all records up to this ticket
}

// pressing reports whether unread records must not wait for a full slab.
func (p *progress) pressing() bool { return p.urgent > p.read || p.flush > p.read }

// readUpToLocked returns the last ticket before the oldest unread record.
func (s *store) readUpToLocked() uint64 {
	if len(s.pieces.queued) > 0 {
		return s.pieces.queued[0].first - 1
	}
	if b := s.front.cur; b != nil && b.n > b.cut {
		return b.cutTicket - 1
	}
	return s.front.next
}
