package deliver

import (
	"slices"
	"sync"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
)

// A ledger is the account of an outlet. It accounts for the settled records, and for the pending
// records in copies and in the spool; Accepted is the number of all these. A record moves from the
// account of the log to the ledger in one critical section, so that the sum of the two balances at
// any time.
type ledger struct {
	spill spill // nil: none

	// mu is held while a lease is settled or opened, and while the accounts of the log and the spool
	// are read. None of these calls waits for anything but its own lock.
	mu      sync.Mutex
	acc     batch.Account // Accepted, Delivered, Handled and Dropped, without the records of the spool
	bytes   uint64        // payload bytes of delivered records and gap markers
	unknown uint64        // number of dropped records that were sent and not answered
	spilled uint64        // number of records appended to the spool
	disk    batch.Account // account of the spool after the last call of the spool that was accounted for
	counted []*holder     // copies, and batches that the spool has handed out, that may have open records
	closed  bool          // the account is final
}

// withdrawLocked removes n records from the batch in which they are pending. It returns false if
// they are already accounted for, which is always the case after close.
func (l *ledger) withdrawLocked(from *holder, n uint64) bool {
	switch {
	case l.closed:
		return false
	case from.owner != ofLog:
		from.open -= int(n)
	case from.lease.Settle(int(n)):
		l.acc.Accepted += n
	default:
		return false
	}
	return true
}

// countLocked makes the ledger count the open records of h itself from now on. It forgets batches
// without open records.
func (l *ledger) countLocked(h *holder) {
	l.counted = append(slices.DeleteFunc(l.counted, func(c *holder) bool { return c.open == 0 }), h)
}

// settle moves records from the given batch to the ledger. The parameter a counts them as
// delivered, handled or dropped, and size is the number of delivered bytes, gap markers included.
// After close, settle does nothing.
func (l *ledger) settle(from *holder, a batch.Account, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.withdrawLocked(from, a.Delivered+a.Handled+a.Dropped.Total()) {
		l.acc.Add(a)
		l.bytes += uint64(size)
	}
}

// spillFrom is called when n records of a batch were appended to the spool. The parameter out is
// the batch that the spool has handed out afterwards, or nil. If the records are already accounted
// for, spillFrom does nothing, and the account does not show them in the spool.
func (l *ledger) spillFrom(from *holder, n uint64, out *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.withdrawLocked(from, n) {
		l.spilled += n
		l.readSpillLocked(out)
	}
}

// move moves the open records of the copy to, which were in the batch from, to the ledger.
func (l *ledger) move(from, to *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.withdrawLocked(from, uint64(to.open)) {
		l.countLocked(to)
	}
}

// readSpill stores the account of the spool after a call of the spool, which may have dropped
// records. The parameter out is the batch that the call has handed out, or nil. After close the
// stored account does not change, because the report was made before a late call returned.
func (l *ledger) readSpill(out *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.readSpillLocked(out)
	}
}

// readSpillLocked stores the account of the spool. From now on the ledger counts the records of out
// itself.
func (l *ledger) readSpillLocked(out *holder) {
	if l.disk = l.spill.Account(); out != nil {
		l.countLocked(out)
	}
}

// close makes the account final when the time of Close is over. A call that hangs may still settle
// records, but the account must agree with the report. Records in the spool stay pending there, and
// log.End accounts for the records of the log. Records in copies count as dropped, although they
// may be in the spool or may still arrive. The result is the number of dropped records that may
// have been sent and have no answer.
func (l *ledger) close() (unknown uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.counted {
		if n := uint64(c.open); c.owner == ofCopy && l.withdrawLocked(c, n) {
			l.acc.Dropped[batch.Shutdown] += n
			l.unknown += n
		}
	}
	l.closed = true
	return l.unknown
}

// loseUnknown counts n dropped records as unknown: a session got them and did not answer.
func (l *ledger) loseUnknown(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.unknown += n
	}
}

// read calls f with the account while holding the lock, so that no record moves from the log to the
// ledger during f. The function f may read the other counters.
func (l *ledger) read(f func(batch.Account)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l.accountLocked())
}

// account returns the account.
func (l *ledger) account() (a batch.Account) {
	l.read(func(now batch.Account) { a = now })
	return a
}

// accountLocked returns the account of the outlet, its copies and the spool. If the spool has
// handed out a batch, the open records of that batch are pending in the spool, and its remaining
// records are settled, even before the batch is acknowledged.
func (l *ledger) accountLocked() batch.Account {
	a := l.acc
	a.Add(batch.Account{Recovered: l.disk.Recovered, Dropped: l.disk.Dropped})
	a.Pending.Spill = l.disk.Pending.Spill
	for _, c := range l.counted {
		if c.owner == ofSpool {
			a.Pending.Spill += uint64(c.open)
		} else {
			a.Pending.Inflight += uint64(c.open)
		}
	}
	return a
}

// countable returns the number of records in b without gap markers, which were never accepted.
func countable(b *batch.Batch) (n uint64) {
	for i := range b.Runs {
		r := &b.Runs[i]
		for j := range r.Len() {
			if r.Slot(j).Flags&layout.FlagMarker == 0 {
				n++
			}
		}
	}
	return n
}
