package slab

import (
	"log/slog"
	"time"
)

// config is set by New, and not changed after.
type config struct {
	o         Options
	id        [16]byte // names the records, together with their tickets: batch.Batch.Origin
	born      time.Time
	to        Borrower
	wants     Wants  // of it
	press     func() // tells the borrower that writes wait for room; nil: it does not care
	help      func() // tells it that records are about to be dropped; nil: it does not care
	reserve   *slog.LevelVar
	important *slog.LevelVar
	limited   bool  // the borrower has limits for a batch
	gatherMax int   // slabs per batch where there are no limits
	halfLock  bool  // the drain may go from slab to slab with half of mu
	crashErr  error // why the slabs are on the heap although Options.Crash is set
}

// state is what callers and the drain share, and the lock of it.
type state struct {
	front

	// mu is a leaf lock: nothing sleeps, sends to a destination or calls back while
	// holding it. Its half mu.put guards front, and the payload end and the number of slots
	// of the current block. Its half mu.slabs guards everything else. To change the current
	// block takes both, and all code but the fast path and half.go does.
	mu locks

	life     life
	pool     pool
	queue    queue // pieces waiting for the drain, oldest first
	waiting  waiting
	dead     dead
	loans    loans
	ops      []*op
	book     book
	progress progress
	gauge    gauge
	sleep    sleep
	last     lastResort
	crash    *crashSafe // nil: heap slabs. It is set by New
	theirEnd theirEnd
}

// front is what every call touches. With the first half of mu behind it, it lies in one
// cache line. New sets flush and checks.
type front struct {
	flush  *slog.LevelVar // the level from which a record is sent at once
	checks bool           // WriteRecord goes through putChecked
	room   int            // bytes the fast path may still put into cur; -1 forces the slow path
	next   uint64         // tickets given out so far
	cur    *block
}

// progress is how far the records have come, in tickets.
type progress struct {
	settled uint64 // every ticket up to it is accounted for
	urgent  uint64 // the last record of FlushLevel
	flush   uint64 // a Flush wants everything up to this ticket
	sent    uint64 // how many tickets went through the drain
}

// pressing reports whether something that is not settled must not wait for a full slab.
func (p *progress) pressing() bool { return p.urgent > p.settled || p.flush > p.settled }
