package slab

import (
	"time"

	"github.com/forebay-log/forebay/batch"
)

// Stats is a snapshot of the memory of a [Writer].
type Stats struct {
	Name string
	batch.Account
	Refused     uint64 // writes after Close, answered with ErrClosed; not part of the account
	SlabCount   int
	SlabBytes   int
	SlabsInUse  int // including leased slabs and slabs whose memory is used by larger records (OversizeMem)
	OversizeMem int // bytes held by records larger than a slab; part of SlabCount × SlabBytes
	Room        int // bytes that are free, slots included
	Waiting     int // callers blocked in a write
	// Waits is the number of writes that have waited for memory, and WaitTime their total waiting
	// time. Writes still counted in Waiting are not included.
	Waits    uint64
	WaitTime time.Duration
	// Rate is the number of accepted bytes per second, slots included, averaged over the last
	// seconds. BurstLeft is the time until the free slabs are full at that rate if the destination
	// accepts nothing (at most a day; 0 while writes wait or are dropped).
	Rate      float64
	BurstLeft time.Duration
	// OldestAge is the age of the oldest undelivered record, by its own time or, if it has none,
	// since it was accepted. It may be slightly too large: a lease counts until all its records are
	// settled. 0 if nothing is pending in the Log; records that only the consumer stores are not
	// considered.
	OldestAge time.Duration
	// OldestWait is the time since that record was accepted. It may be slightly too large, too.
	OldestWait time.Duration
	// CrashUnsafe is the reason why the slabs are on the heap although Options.Crash is set;
	// otherwise empty. HeapOnly is the number of pending oversize records that have no copy outside
	// this process.
	CrashUnsafe string
	HeapOnly    int
	// Recovery counts the records that New found in the files of dead processes.
	Recovery CrashRecovery
}

// Stats returns a snapshot. theirs is the account of the consumer; its Accepted is not used. During the
// call, the consumer holds the lock under which it also calls Settle and accounts for the records, so
// that each settled record is in exactly one of the two accounts.
func (l *Log) Stats(theirs batch.Account) Stats {
	s, now := l.reader.store, time.Now()
	s.lock()
	defer s.unlock()
	o := &s.conf.o
	st := Stats{
		Name: o.Name, Account: s.accountLocked(theirs), Refused: s.book.refused,
		SlabCount: o.SlabCount, SlabBytes: o.SlabBytes,
		SlabsInUse: o.SlabCount - len(s.pool.free), OversizeMem: s.pool.oversize,
		Waiting: s.callers.waitingLocked(), Waits: s.callers.calls, WaitTime: s.callers.time,
	}
	if b := s.front.cur; b != nil && b.n == b.cut && b.refs == 0 {
		st.SlabsInUse-- // attached, but empty
	}
	st.Recovery = s.found.stats
	if err := s.found.err; err != nil {
		st.CrashUnsafe = err.Error()
	}
	s.crash.statsLocked(&st)
	st.Rate = s.gauge.rate.update(now, s.front.acceptedBytesLocked())
	st.Room = s.front.freeBytesLocked()
	st.BurstLeft = s.burstLeftLocked(st.Rate)
	st.OldestAge, st.OldestWait = s.oldestLocked(now)
	return st
}

// Pending returns the number of records that are not settled.
func (l *Log) Pending() uint64 {
	p := l.Account(batch.Account{}).Pending
	return p.Total()
}

// Account returns the sum of the account of the log and of theirs: see [Log.Stats].
func (l *Log) Account(theirs batch.Account) batch.Account {
	s := l.reader.store
	s.lock()
	defer s.unlock()
	return s.accountLocked(theirs)
}

// Name returns Options.Name.
func (w *Writer) Name() string { return w.conf.o.Name }

// Codec returns Options.Codec.
func (w *Writer) Codec() batch.Codec { return w.conf.o.Codec }

// accountLocked returns the sum of the account of the store and of theirs.
func (s *store) accountLocked(theirs batch.Account) batch.Account {
	a := s.book.Account
	a.Accepted += s.front.next
	a.Pending.Slab = s.pendingSlabLocked() + uint64(s.found.left)
	a.Pending.Inflight = uint64(s.leases.openLocked() + s.last.pending)
	if s.life == retained {
		a.Pending = batch.Pending{Slab: uint64(s.book.retained + s.found.left)}
	}
	theirs.Accepted = 0 // the Writer has accepted it
	a.Add(theirs)
	return a
}

// pendingSlabLocked returns the number of unread records.
func (s *store) pendingSlabLocked() uint64 {
	n := s.pieces.records
	if b := s.front.cur; b != nil {
		n += b.n - b.cut
	}
	return uint64(n)
}
