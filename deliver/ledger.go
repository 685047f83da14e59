package deliver

import (
	"slices"
	"sync"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
)

// A ledger is the account of an outlet. It has the settled records and the records in copies and in
// the spool; Accepted counts exactly these. A record leaves the account of the log and enters the
// ledger in one critical section, so that their sum balances at any moment.
type ledger struct {
	spill Spill // nil: none

	// mu is a leaf: nothing is sent, called back or waited for under it, except
	// Spill.Account, which does not wait.
	mu      sync.Mutex
	acc     batch.Account // Accepted, Delivered, Handled, Dropped; not the spool's
	memory  []lease       // of the log and of copies, with records that may not be accounted for
	bytes   uint64        // of Delivered, and of gap markers
	unknown uint64
	spilled uint64          // records put into the spool
	disk    batch.Account   // of the spool, when the outlet last accounted for a call of it
	out     []*countedLease // batches that the spool has handed out, with records that may be open
	closed  bool            // Close has reported: the records in memory are accounted for
}

// add adds a lease of the log.
func (l *ledger) add(from lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memory = append(l.memory, from)
}

// withdrawLocked removes n records from the source in which they are pending. It reports false if they are
// accounted for already.
func (l *ledger) withdrawLocked(from lease, n uint64) bool {
	_, counted := from.(*countedLease)
	if !counted && l.closed || !from.Settle(int(n)) {
		return false
	}
	if !counted {
		l.acc.Accepted += n
	}
	return true
}

// tally counts the records that a destination accepted of a batch. Gap markers are no records.
type tally struct {
	records uint64
	bytes   int // gap markers included
}

// less removes the records of b.
func (t *tally) less(b *batch.Batch) {
	t.records -= countable(b)
	t.bytes -= b.Bytes()
}

// settle accounts for records of a lease: t were delivered, the others handled or dropped. After close
// only records of the spool are accounted for.
func (l *ledger) settle(from lease, t tally, handled uint64, dropped batch.Drops) {
	n := t.records + handled + dropped.Total()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.withdrawLocked(from, n) {
		return
	}
	l.acc.Delivered += t.records
	l.bytes += uint64(t.bytes)
	l.acc.Handled += handled
	l.acc.Dropped.Add(dropped)
}

// spillFrom notes that n records of a lease are in the spool now, which may have handed out a batch
// since. If the records are accounted for already, the account does not see them in the spool.
func (l *ledger) spillFrom(from lease, n uint64, out *countedLease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.withdrawLocked(from, n) {
		l.spilled += n
		l.lookLocked(out)
	}
}

// move moves n records from a lease to a copy, which is then pending in the ledger.
func (l *ledger) move(from lease, to *countedLease, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.withdrawLocked(from, n) {
		to.count += int(n)
		l.memory = append(l.memory, to)
	}
}

// look accounts for a call of the spool, which may have dropped records, and has handed out the batch of
// out, unless that is nil. After close the account of the spool stays unchanged: a call that returns
// late belongs to no report.
func (l *ledger) look(out *countedLease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.lookLocked(out)
	}
}

// lookLocked stores the account of the spool. The records of out are open from now on.
func (l *ledger) lookLocked(out *countedLease) {
	l.disk = l.spill.Account()
	l.out = slices.DeleteFunc(l.out, func(c *countedLease) bool { return c.count == 0 })
	if out != nil {
		out.count = int(countable(out.b))
		l.out = append(l.out, out)
	}
}

// close ends the account when the time of Close is over. Records in memory that the log keeps stay
// there. The others count as dropped, although they may be in the spool or arrive. close returns how many
// of the dropped records a session has, or had, without an answer.
func (l *ledger) close() (unknown uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, from := range l.memory {
		if n := uint64(from.Open()); !from.Keeps() && l.withdrawLocked(from, n) {
			l.acc.Dropped[batch.Shutdown] += n
			l.unknown += n
		}
	}
	l.closed, l.memory = true, nil
	return l.unknown
}

// forget removes a lease without open records.
func (l *ledger) forget(from lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.memory, from); i >= 0 {
		l.memory = slices.Delete(l.memory, i, i+1)
	}
}

// loseUnknown counts n of the records that are being dropped as unknown: a session
// has them, and has not answered.
func (l *ledger) loseUnknown(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.unknown += n
	}
}

// read calls f with the account, while no record leaves the account of the log.
func (l *ledger) read(f func(batch.Account)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l.accountLocked())
}

// account returns the account.
func (l *ledger) account() batch.Account {
	a, _, _ := l.now()
	return a
}

// accountLocked returns the sum. Of a batch that the spool has handed out, the open records are pending
// there. The others are settled, although the batch may not be acknowledged yet.
func (l *ledger) accountLocked() batch.Account {
	a := l.acc
	a.Recovered = l.disk.Recovered
	a.Dropped.Add(l.disk.Dropped)
	a.Pending.Spill = l.disk.Pending.Spill
	for _, c := range l.out {
		a.Pending.Spill += uint64(c.count)
	}
	for _, from := range l.memory { // other records are pending in the log
		if c, ok := from.(*countedLease); ok {
			a.Pending.Inflight += uint64(c.count)
		}
	}
	return a
}

// countable returns the number of records in b without gap markers, which report dropped records to the
// destination and were never accepted.
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

// now returns the account, and how many records were put into the spool.
func (l *ledger) now() (a batch.Account, spilled, bytes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accountLocked(), l.spilled, l.bytes
}
