package slab

import (
	"time"

	"github.com/forebay-log/forebay/batch"
)

// Stats is a snapshot of a [Writer].
type Stats struct {
	Name string
	batch.Account
	Refused     uint64 // writes after Close, answered with ErrClosed; not part of the account
	SlabCount   int
	SlabBytes   int
	SlabsInUse  int // those that are lent, and those whose memory larger records have (OversizeMem), included
	OversizeMem int // bytes held by records larger than a slab; part of SlabCount × SlabBytes
	Room        int // bytes that are free, slots included
	Waiting     int // callers blocked in a write
	// Waits is how many writes have waited for memory, and WaitTime how long, all
	// together. Those in Waiting are not in it yet.
	Waits    uint64
	WaitTime time.Duration
	// Rate is the rate of acceptance in bytes per second, slots included, over
	// the last seconds; BurstLeft is how long the free slabs last at that rate if
	// the destination takes nothing (a day at most; 0 while writes wait or are
	// dropped).
	Rate      float64
	BurstLeft time.Duration
	// OldestAge is the age of the oldest undelivered record by its own time, or,
	// if it has none, by when it was accepted, or a little more. A batch in Borrow counts
	// until all of it is settled. 0 when nothing is pending here: what the borrower has is not
	// looked at.
	OldestAge time.Duration
	// OldestWait is how long ago that record was accepted, or a little more.
	OldestWait time.Duration
	// CrashUnsafe says why the slabs are on the heap although Options.Crash is set;
	// empty when all is well. HeapOnly is how many pending oversize records have no
	// copy outside this process.
	CrashUnsafe string
	HeapOnly    int
	// Recovery is what New found in the files of dead processes.
	Recovery CrashRecovery
}

// Stats returns a snapshot. It never waits for the destination.
func (w *Writer) Stats() Stats {
	now := time.Now()
	theirs := w.lockWithAccount()
	defer w.store.unlock()
	s := Stats{
		Name: w.conf.o.Name, Account: w.accountLocked(theirs), Refused: w.store.book.refused,
		SlabCount: w.conf.o.SlabCount, SlabBytes: w.conf.o.SlabBytes,
		SlabsInUse: w.conf.o.SlabCount - len(w.store.pool.free), OversizeMem: w.store.pool.oversize,
		Waiting: w.store.callers.waitingLocked(), Waits: w.store.callers.calls, WaitTime: w.store.callers.time,
	}
	if b := w.front.cur; b != nil && b.n == b.cut && b.refs == 0 {
		s.SlabsInUse-- // attached, but empty
	}
	s.Recovery = w.store.found.stats
	if err := w.store.found.err; err != nil {
		s.CrashUnsafe = err.Error()
	}
	w.store.crash.statsLocked(&s)
	s.Rate = w.store.gauge.rate.update(now, w.front.acceptedBytesLocked())
	s.Room = w.front.freeBytesLocked()
	s.BurstLeft = w.store.burstLeftLocked(s.Rate)
	s.OldestAge, s.OldestWait = w.store.oldestLocked(now)
	return s
}

// Account returns the account of the destination.
func (w *Writer) Account() batch.Account { return w.Stats().Account }

// Name returns Options.Name.
func (w *Writer) Name() string { return w.conf.o.Name }

// Codec returns Options.Codec.
func (w *Writer) Codec() batch.Codec { return w.conf.o.Codec }

// accountLocked merges the Writer's account with that of the borrower.
func (w *Writer) accountLocked(theirs batch.Account) batch.Account {
	a := w.store.book.Account
	a.Accepted += w.front.next
	a.Pending.Slab = w.store.pendingSlabLocked()
	a.Pending.Inflight = uint64(w.store.book.inflight + w.store.last.pending)
	a.Pending.Slab += uint64(w.store.found.left) + w.store.loans.back
	// What a Borrow that is under way has taken is in the borrower's account already.
	a.Pending.Inflight -= min(a.Pending.Inflight, theirs.Accepted-min(theirs.Accepted, w.store.book.taken))
	if w.store.life.cutShort() {
		a.Pending = batch.Pending{Slab: uint64(w.store.book.retained+w.store.found.left) + w.store.loans.back}
		late := w.store.book.lateLocked(theirs)
		lost := min(late, uint64(w.store.book.hungLost))
		a.Dropped[batch.Shutdown] -= lost
		a.Pending.Slab -= late - lost
	}
	theirs.Accepted = 0 // what the Writer handed over was accepted here already
	a.Add(theirs)
	return a
}

// pendingSlabLocked walks the slabs and counts what the drain has not taken.
func (s *store) pendingSlabLocked() uint64 {
	n := 0
	for i := range s.pieces.n {
		n += s.pieces.at(i).len()
	}
	if b := s.front.cur; b != nil {
		n += b.n - b.cut
	}
	return uint64(n)
}
