package slablog

import (
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/slab"
)

// Stats returns a snapshot. theirs is the account of the consumer, without its field Accepted. The
// consumer holds the lock under which it calls Settle and accounts for records, so each settled
// record is in exactly one of the two accounts.
func (l *Log) Stats(theirs batch.Account) slab.Stats {
	s, now := l.reader.store, time.Now()
	s.lock()
	defer s.unlock()
	o := &s.conf.o
	st := slab.Stats{
		Name: o.Name, Account: s.accountLocked(theirs), Refused: s.book.refused,
		SlabCount: o.SlabCount, SlabBytes: o.SlabBytes,
		SlabsInUse: o.SlabCount - len(s.pool.free), OversizeMem: s.pool.oversize,
		Waiting: s.callers.waitingLocked(), Waits: s.callers.calls, WaitTime: s.callers.time,
	}
	if b := s.front.cur; b != nil && b.n == b.cut && b.refs == 0 {
		st.SlabsInUse-- // the current slab is empty
	}
	st.Recovery = s.found.stats
	unsafe := s.found.err
	if c := s.crash; c != nil {
		st.HeapOnly, unsafe = c.heapOnly, c.broken
	}
	if unsafe != nil {
		st.CrashUnsafe = unsafe.Error()
	}
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

// Account returns the sum of the log's account and theirs, the consumer's account. See [Log.Stats].
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

// accountLocked returns the sum of the store's account and theirs, the consumer's account.
func (s *store) accountLocked(theirs batch.Account) batch.Account {
	a := s.book.Account
	a.Accepted += s.front.next
	a.Pending.Slab = s.pendingSlabLocked() + uint64(s.found.left)
	a.Pending.Inflight = uint64(s.leases.openLocked() + s.last.pending)
	if s.life == retained {
		a.Pending = batch.Pending{Slab: uint64(s.book.retained + s.found.left)}
	}
	theirs.Accepted = 0 // the Writer has already counted these records
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
