package slablog

import (
	"log/slog"
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

// policyFor returns the when-full policy for a write of level l.
func (c *config) policyFor(l slog.Level) slab.WhenFull {
	if l >= c.important.Level() {
		return c.o.ImportantWhenFull
	}
	return c.o.WhenFull
}

// waitFor returns the maximum wait of a write of level l.
func (c *config) waitFor(l slog.Level) time.Duration {
	if l >= c.important.Level() {
		return c.importantWait
	}
	return c.wait
}

// spills reports whether a write may wait for the consumer to move records to disk.
func (c *config) spills() bool {
	return c.o.WhenFull == slab.Spill() || c.o.ImportantWhenFull == slab.Spill()
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

// pushLocked queues the records of b in [from, to) as a piece. Until the piece is released, the
// block is not reused.
func (s *store) pushLocked(b *block, from, to int, first uint64, size int, since time.Duration) {
	b.refs++
	s.pieces.push(b, from, to, first, size, since)
}

// releaseLocked releases a piece. Its block is freed with the last piece.
func (s *store) releaseLocked(p *piece) {
	b := p.blk
	s.pieces.put(p)
	s.dropRefLocked(b)
}

// dropRefLocked releases one reference to b. The last reference to a retired block frees its memory.
func (s *store) dropRefLocked(b *block) {
	if b.refs--; b.refs > 0 || !b.retired {
		return
	}
	// Later writes may wait again, because memory becomes free.
	s.callers.shortage = enough
	switch {
	case b.kind == oversize:
		s.pool.takeBackLocked(len(b.mem))
		if s.crash != nil {
			s.crash.leaveBigLocked(b)
		}
	case b.kind == rescued:
	case b.head != nil && s.crash.broken != nil && s.life != retained: // the mapping no longer exists
		k := len(s.crash.heapSpare) - 1
		s.pool.free = append(s.pool.free, s.crash.heapSpare[k])
		s.crash.heapSpare = s.crash.heapSpare[:k]
	default:
		s.pool.free = append(s.pool.free, b)
	}
}

// fewLocked reports whether few slabs are free although some writes never wait. Their records are
// about to be dropped or to evict others.
func (s *store) fewLocked() bool {
	return (s.conf.wait == 0 || s.conf.importantWait == 0) && len(s.pool.free) <= s.conf.o.Reserve+s.conf.o.SlabCount/4
}

// pressLocked is called when the shortage has grown. It wakes the consumer if the consumer can
// help.
func (s *store) pressLocked() {
	if s.conf.consumer.Helps {
		s.bell.alarmLocked()
	}
}
