package slab

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
)

// config is set by New and does not change.
type config struct {
	o         Options
	id        [16]byte // names the records, together with their tickets: batch.Batch.Origin
	born      time.Time
	reserve   *slog.LevelVar
	important *slog.LevelVar
	events    *callback.Runner[batch.Event]
}

// A store is the memory of a Writer behind its front: sealed slabs, free slabs, leases, the
// callers that wait for room, and the account.
//
// mu is a leaf lock: nothing sleeps, sends to a destination or calls back while holding it. It
// guards all fields below it. Most methods also use the front; they are called with front.mu
// held, which is locked first (see lock). The drain uses mu alone while full slabs follow each
// other.
type store struct {
	conf  *config
	front *front
	crash *crashSafe // nil: heap slabs; set by New
	drain *drain

	sealed atomic.Uint32 // slabs sealed so far; the drain watches it while it spins

	mu       sync.Mutex
	life     life
	pool     pool
	pieces   pieces // pieces waiting for the drain, oldest first
	callers  *callers
	found    *found
	loans    loans
	ops      []*op
	book     book
	progress progress
	gauge    gauge
	sleep    sleep
	last     lastResort
}

func (s *store) init(c *config, f *front, d *drain) {
	s.conf, s.front, s.drain = c, f, d
	s.pieces, s.pool = newPieces(c.o.SlabCount+2), newPool(&c.o)
	s.loans.room, s.sleep.bell = make(chan struct{}, 1), make(chan struct{}, 1)
	s.callers, s.found = &callers{store: s}, &found{store: s, conf: c}
}

// lock locks front.mu and mu.
func (s *store) lock() {
	s.front.lock()
	s.mu.Lock()
}

// unlock unlocks both, and wakes the drain or calls for help if that was requested. Neither
// blocks, and both happen outside the critical section.
func (s *store) unlock() {
	ring, help := s.sleep.toRingLocked(), s.callers.needHelp
	s.callers.needHelp = false
	s.mu.Unlock()
	s.front.mu.Unlock()
	if help {
		s.callers.help()
	}
	if ring {
		s.sleep.ring()
	}
}

// progress is the progress of the records, in tickets.
type progress struct {
	settled uint64 // every ticket up to it is accounted for
	urgent  uint64 // the last record of FlushLevel
	flush   uint64 // a Flush waits for everything up to this ticket
	sent    uint64 // number of tickets that passed the drain
}

// pressing reports whether a record that is not settled must not wait for a full slab.
func (p *progress) pressing() bool { return p.urgent > p.settled || p.flush > p.settled }
