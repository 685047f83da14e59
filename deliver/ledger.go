package deliver

import (
	"sync"

	"github.com/forebay-log/forebay/batch"
)

// A holder keeps the memory of a batch until everything in it is accounted for and
// nothing reads it. Entries refer to it; together they are what is open of it.
//
// Only the goroutine of the outlet touches a holder, but for left, which the mutex
// of the ledger guards.
type holder struct {
	custody custody
	no      uint64 // its place among the batches taken from callers
	seq     uint64 // its number in the spool, where custody is onDisk
	left    uint64 // records not accounted for; ledger.mu
	parts   int    // entries that refer to it
	pins    int    // of them, those that a session may still read
	aside   int    // of them, those set aside
	mem     copied // where custody is own
	loan    *loan  // where custody is lent
	small   bool   // a part of another that was set aside, or a copy
	copy    bool   // a copy of what is lent, for a session
}

// custody says where the memory of a holder is.
type custody uint8

const (
	own    custody = iota // the outlet's, a copy
	lent                  // the caller's, who waits in Send
	onDisk                // the spool's
)

// A loan is a batch whose Send waits until nothing is left of it.
type loan struct {
	tally batch.Tally    // what did not go to the destination; ledger.mu
	ended bool           // done is closed; the outlet's goroutine
	open  []*batch.Batch // given back to the caller
	done  chan struct{}  // closed when nothing is left and nothing reads it
}

// A ledger is the account of an outlet. Every change of it is one critical section,
// so that it balances at any moment.
type ledger struct {
	spill  Spill         // nil: none
	spill0 batch.Account // of it at the start

	// mu is a leaf: nothing is sent, called back or waited for under it, except
	// Spill.Account, which does not wait.
	mu       sync.Mutex
	acc      batch.Account // Accepted, Delivered, Handled, Dropped
	memory   []*holder     // own, with records that are not accounted for
	unknown  uint64
	spilled  uint64 // records put into the spool
	settled  uint64 // records that the spool handed out and that are accounted for
	pending0 uint64 // records that wait in Send, lent
	closed   bool   // the report is made: what was in memory is accounted for
}

// take notes that h is in the custody of the outlet.
func (l *ledger) take(h *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.custody == own {
		l.acc.Accepted += h.left
		l.memory = append(l.memory, h)
	} else if h.custody == lent {
		l.pending0 += h.left
	}
}

// settle accounts for records of h.
func (l *ledger) settle(h *holder, delivered, handled uint64, dropped batch.Drops) {
	n := delivered + handled + dropped.Total()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed && h.custody == own {
		return
	}
	h.left -= n
	if h.custody == lent {
		l.pending0 -= n
		h.loan.tally.Handled += handled
		h.loan.tally.Dropped.Add(dropped)
		return
	}
	l.acc.Delivered += delivered
	l.acc.Handled += handled
	l.acc.Dropped.Add(dropped)
	if h.custody == onDisk {
		l.settled += n
	} else if h.left == 0 {
		l.forgetLocked(h)
	}
}

// spillFrom notes that n records of h are in the spool now.
func (l *ledger) spillFrom(h *holder, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed && h.custody == own {
		return
	}
	h.left -= n
	l.spilled += n
	if h.custody == lent {
		l.pending0 -= n
		l.acc.Accepted += n
		h.loan.tally.Taken += n
	} else if h.left == 0 {
		l.forgetLocked(h)
	}
}

// close counts what is still in memory as dropped: the loop did not come to it in time.
// It may be in the spool all the same, or arrive.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, h := range l.memory {
		l.acc.Dropped[batch.Shutdown] += h.left
		l.unknown += h.left
		h.left = 0
	}
	l.memory = nil
}

// withdraw takes n records of the loan h back: they are the caller's.
func (l *ledger) withdraw(h *holder, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.left -= n
	l.pending0 -= n
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

// account returns the account of the records in the outlet's custody, and how many
// are lent to it besides.
func (l *ledger) account() (a batch.Account, lent uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accountLocked(), l.pending0
}

func (l *ledger) accountLocked() batch.Account {
	a := l.acc
	if l.spill != nil {
		s := l.spill.Account()
		a.Recovered = s.Recovered
		a.Dropped.Add(s.Dropped)
		// The spool counts as pending what it handed out and was not told to forget
		// yet, and what was appended before the outlet has booked it.
		forgotten, appended := s.Delivered-l.spill0.Delivered, s.Accepted-l.spill0.Accepted
		elsewhere := l.settled - min(forgotten, l.settled) + appended - min(l.spilled, appended)
		a.Pending.Spill = s.Pending.Spill - min(s.Pending.Spill, elsewhere)
	}
	for _, h := range l.memory {
		a.Pending.Inflight += h.left
	}
	return a
}

// countable returns the number of records of b that an account knows: gap
// markers are none.
func countable(b *batch.Batch) (n uint64) {
	for i := range b.Runs {
		r := &b.Runs[i]
		for j := range r.Len() {
			if r.Slot(j).Flags&batch.FlagMarker == 0 {
				n++
			}
		}
	}
	return n
}

// move makes n records of one holder those of another, in memory.
func (l *ledger) move(from, to *holder, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	to.left += n
	l.memory = append(l.memory, to)
	if from.left -= n; from.left == 0 {
		l.forgetLocked(from)
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
func (l *ledger) now() (batch.Account, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accountLocked(), l.spilled
}
