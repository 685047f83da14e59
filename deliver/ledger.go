package deliver

import (
	"sync"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
)

// A holder keeps the memory of a batch until all its records are accounted for and no session reads
// it. The entries that refer to it have its open records.
//
// Only the loop uses a holder, except left, which ledger.mu guards.
type holder struct {
	custody custody
	no      uint64 // its place among the leases
	seq     uint64 // of onDisk: its number in the spool, or the last number of a combined batch
	first   uint64 // … and the first one, or an unused smaller one
	left    uint64 // records not accounted for, unless there is a lease; ledger.mu
	parts   int    // entries that refer to it
	pins    int    // of them, those that a session may still read
	parked  int    // of them, those that are parked
	mem     copied // of parked records; not where there is a lease
	lease   lease  // whose memory it is; nil: mem
	settled bool   // nothing is open
	small   bool   // parked records with separate memory
}

// keeps reports whether records that are not accounted for survive the process.
func (h *holder) keeps() bool { return h.lease != nil && h.lease.Keeps() }

// custody is the place of the memory of a holder.
type custody uint8

const (
	own      custody = iota // a lease, or a copy
	onDisk                  // the spool's
	nextLife                // the spool's, which had it when the account was made: it was kept, or counts as dropped
)

// isSpools reports whether the records are in the spool.
func (c custody) isSpools() bool { return c == onDisk || c == nextLife }

// A ledger is the account of an outlet. It has the settled records and the records in copies and in
// the spool; Accepted counts exactly these. A record leaves the account of the log and enters the
// ledger in one critical section, so that their sum balances at any moment.
type ledger struct {
	spill Spill // nil: none

	// mu is a leaf: nothing is sent, called back or waited for under it, except
	// Spill.Account, which does not wait.
	mu      sync.Mutex
	acc     batch.Account // Accepted, Delivered, Handled, Dropped
	memory  []*holder     // own, with records that may not be accounted for
	bytes   uint64        // of Delivered, and of gap markers
	unknown uint64
	spilled uint64        // records put into the spool
	disk    batch.Account // of the spool, when the outlet last accounted for a call of it
	paid    uint64        // records pending there that are accounted for and not yet acknowledged
	closed  bool          // Close has reported: the records in memory are accounted for
}

// add adds h to the batches in memory.
func (l *ledger) add(h *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memory = append(l.memory, h)
}

// payLocked removes n records of h from the account in which they are pending. It reports false if
// they are accounted for already.
func (l *ledger) payLocked(h *holder, n uint64) bool {
	switch {
	case l.closed && !h.custody.isSpools():
		return false
	case h.lease != nil:
		if !h.lease.Settle(int(n)) {
			return false
		}
		l.acc.Accepted += n
	default:
		h.left -= n
	}
	return true
}

// tally counts the records that a destination accepted of a batch.
type tally struct {
	records uint64
	bytes   int // gap markers included
}

func (t *tally) less(b *batch.Batch) {
	t.records -= countable(b)
	t.bytes -= b.Bytes()
}

// settle accounts for records of h.
func (l *ledger) settle(h *holder, t tally, handled uint64, dropped batch.Drops) {
	n := t.records + handled + dropped.Total()
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.custody == nextLife || !l.payLocked(h, n) {
		return
	}
	l.acc.Delivered += t.records
	l.bytes += uint64(t.bytes)
	l.acc.Handled += handled
	l.acc.Dropped.Add(dropped)
	if h.custody == onDisk {
		l.paid += n
	}
}

// deliver accounts for the records of a lease that never had a holder.
func (l *ledger) deliver(from lease, t tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !from.Settle(int(t.records)) {
		return
	}
	l.acc.Accepted += t.records
	l.acc.Delivered += t.records
	l.bytes += uint64(t.bytes)
}

// spillFrom notes that n records of h are in the spool now, and returns their custody there.
func (l *ledger) spillFrom(h *holder, n uint64) custody {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.payLocked(h, n) {
		return nextLife
	}
	l.spilled += n
	l.lookLocked()
	return onDisk
}

// look accounts for a call of the spool, which may have dropped records. It may also have acknowledged
// records although it returned an error, because it could not store the position.
func (l *ledger) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.lookLocked()
	}
}

func (l *ledger) lookLocked() {
	now := l.spill.Account()
	l.paid -= now.Delivered - l.disk.Delivered // the spool has forgotten them, and they were paid before
	l.disk = now
}

// close ends the account when the time of Close is over. Records in memory that the log keeps stay
// there. The others count as dropped, although they may be in the spool or arrive.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, h := range l.memory {
		n := h.left
		if h.lease != nil {
			if n = uint64(h.lease.Open()); h.keeps() || !h.lease.Settle(int(n)) {
				continue
			}
			l.acc.Accepted += n
		}
		l.acc.Dropped[batch.Shutdown] += n
		l.unknown += n
		h.left = 0
	}
	l.memory = nil
}

// forget removes h, which has no open records.
func (l *ledger) forget(h *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetLocked(h)
}

func (l *ledger) forgetLocked(h *holder) {
	for i, o := range l.memory {
		if o == h {
			copy(l.memory[i:], l.memory[i+1:])
			l.memory[len(l.memory)-1] = nil
			l.memory = l.memory[:len(l.memory)-1]
			return
		}
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
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accountLocked()
}

func (l *ledger) accountLocked() batch.Account {
	a := l.acc
	a.Recovered = l.disk.Recovered
	a.Dropped.Add(l.disk.Dropped)
	a.Pending.Spill = l.disk.Pending.Spill - l.paid
	for _, h := range l.memory { // leased records are pending in the log
		a.Pending.Inflight += h.left
	}
	return a
}

// countable returns the number of records in b without gap markers.
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

// move moves n records from a holder to another one, which is a copy.
func (l *ledger) move(from, to *holder, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.payLocked(from, n) {
		to.left += n
		l.memory = append(l.memory, to)
	}
}

// unknownNow returns how many of the records that were dropped at Close a session had
// without an answer.
func (l *ledger) unknownNow() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unknown
}

// now returns the account, and how many records were put into the spool.
func (l *ledger) now() (a batch.Account, spilled, bytes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accountLocked(), l.spilled, l.bytes
}
