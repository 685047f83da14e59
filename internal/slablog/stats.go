package slablog

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/slab"
)

// Stats returns a snapshot. The parameter theirs is the account of the consumer; its field Accepted
// is ignored. The consumer must hold the lock under which it calls Settle and accounts for records,
// so that each settled record is in exactly one of the two accounts.
func (l *Log) Stats(theirs batch.Account) slab.Stats {
	s, now := l.reader.store, time.Now()
	s.lock()
	defer s.unlock()
	o := &s.conf.o
	st := slab.Stats{
		Name: o.Name, Account: s.accountLocked(theirs), Refused: s.book.refused,
		SlabCount: o.SlabCount, SlabBytes: o.SlabBytes,
		SlabsInUse: o.SlabCount - s.pool.free(), OversizeMem: s.pool.oversize,
		Waiting: s.callers.waitingLocked(), Waits: s.callers.calls, WaitTime: s.callers.time,
	}
	// A current slab without records is not in use, although it is not in the pool.
	if b := s.front.cur; b != nil && s.front.unreadLocked() == 0 && b.refs == 0 {
		st.SlabsInUse--
	}
	st.Recovery = s.found.stats
	if s.crash != nil {
		st.HeapOnly = s.crash.heapOnly
	}
	if s.unsafe != nil {
		st.CrashUnsafe = s.unsafe.Error()
	}
	st.Rate = s.gauge.rate.update(now, s.front.acceptedBytesLocked())
	st.Room = s.front.freeBytesLocked()
	st.BurstLeft = s.burstLeftLocked(st.Rate)
	st.OldestAge, st.OldestWait = s.oldestLocked(now)
	return st
}

// Account adds the account of the consumer, which is passed in theirs, to the account of the log.
// See [Log.Stats].
func (l *Log) Account(theirs batch.Account) batch.Account {
	s := l.reader.store
	s.lock()
	defer s.unlock()
	return s.accountLocked(theirs)
}

// accountLocked adds the account of the consumer, which is passed in theirs, to the account of the
// store.
func (s *store) accountLocked(theirs batch.Account) batch.Account {
	a := s.book.Account
	a.Accepted += s.front.next
	a.Pending.Slab = s.pendingSlabLocked() + uint64(s.book.retained+s.found.left)
	a.Pending.Inflight = uint64(s.leases.openLocked() + s.last.pending)
	theirs.Accepted = 0 // the Writer has already counted these records
	a.Add(theirs)
	return a
}

// pendingSlabLocked returns the number of unread records. It is not derived from the totals of
// accepted and settled records, so that Account.Check is a real check.
func (s *store) pendingSlabLocked() uint64 {
	return uint64(s.pieces.records + s.front.unreadLocked())
}

// maxBurst limits BurstLeft, which would be huge with a rate near zero.
const maxBurst = 24 * time.Hour

// burstLeftLocked returns the time in which callers fill the free memory at the given rate, in
// bytes per second, if the destination accepts nothing.
func (s *store) burstLeftLocked(rate float64) time.Duration {
	if s.pool.free() == 0 && (s.callers.slabs.n > 0 || s.book.series.Lasting()) {
		return 0 // calls already wait for a slab, or records are already being dropped
	}
	free := float64(s.front.freeBytesLocked())
	if rate <= 0 || free/rate > maxBurst.Seconds() {
		return maxBurst
	}
	return time.Duration(free / rate * float64(time.Second))
}

// oldestLocked returns the age of the oldest unsettled record, and how long ago it was accepted. It
// looks for that record in leases, in the queue and in the current block, which follow each other
// in the order of acceptance. The age counts from the time of the record. If that time is 0
// (unknown), or in mapped memory, which is not read here, the age counts from the acceptance.
func (s *store) oldestLocked(now time.Time) (age, wait time.Duration) {
	var t int64
	since := s.unread.since
	switch i := slices.IndexFunc(s.leases.list, func(l *Lease) bool { return l.open > 0 }); {
	case i >= 0:
		t, since = s.leases.list[i].at, s.leases.list[i].since
	case len(s.pieces.queued) > 0:
		p := s.pieces.queued[0]
		if since = p.since; p.blk.head == nil {
			t = p.blk.slot(p.from).Time
		}
	case s.front.unreadLocked() > 0:
		if b := s.front.cur; b.head == nil {
			t = b.slot(s.unread.from).Time
		}
	default:
		return 0, 0
	}
	wait = max(0, now.Sub(s.conf.born)-since)
	if t == 0 || s.crash != nil {
		return wait, wait
	}
	return max(0, time.Duration(now.UnixNano()-t)), wait
}
