package slab

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/forebay-log/forebay/batch"
)

// A Borrower is a destination that keeps batches beyond the call that hands them over,
// as deliver.Outlet does. [NewSink] hands it loans: no batch is copied, several are out
// at a time, and their slabs are in use until they are given back.
type Borrower interface {
	batch.Sink
	// Borrow takes the batch of l into its custody, and accounts for its records from
	// then on. It returns as soon as another batch may follow, and soon after ctx has
	// ended. If it returns an error it has taken nothing. It is called from one
	// goroutine.
	Borrow(ctx context.Context, l *Loan) error
}

// A Loan is a batch of a Writer in the custody of a [Borrower]. The borrower calls
// Settle, and then Return, each once and from any goroutine, but not while it holds a
// lock under which it answers Account.
//
// No more than half of the slabs are out in loans that are not settled: there is room
// for what callers bring, and for DropOldest to drop. Mapped slabs are lent as a copy:
// what the borrower reads must not be a file that somebody can truncate.
type Loan struct {
	w      *Writer
	b      batch.Batch
	mem    batchCopy // a copy, for b
	copied bool      // b is one: its slabs are free once the file says that it is settled
	found  bool      // b is of a dead process
	slabs  int       // that count against half of all

	// Writer.mu guards the rest.
	pieces   []*piece
	settled  bool          // Settle was called
	returned bool          // Return was
	left     uint64        // records that Settle gave back
	done     chan struct{} // closed by Settle; nil: nobody waits
}

// maxSpareLoans bounds the pool of loans.
const maxSpareLoans = 16

// Batch returns the records. They stay as they are until Return.
func (l *Loan) Batch() *batch.Batch { return &l.b }

// Keeps reports whether records that the borrower cannot deliver survive the process,
// because they are in crash-safe memory. The answer is always the same.
func (l *Loan) Keeps() bool { return l.copied || l.found }

// Pins returns how many slabs stay in use until Return, and how many the borrower may
// have read by something that may hang: there must be some for the others.
func (l *Loan) Pins() (slabs, most int) {
	if l.copied || l.found {
		return 0, 1
	}
	return l.slabs, l.w.maxLent()
}

// Settle says that the borrower has accounted for all records but left of them, which
// are the Writer's again. It keeps them for the next start, or drops what it cannot keep.
// Only the first call counts.
func (l *Loan) Settle(left uint64) {
	w := l.w
	patiently(&w.mu, w.spins)
	defer w.unlock()
	if l.settled {
		return
	}
	l.settled, l.left = true, left
	w.loans.slabs -= l.slabs
	if left > 0 {
		w.recallLocked(l)
	}
	if l.done != nil {
		close(l.done)
	}
	if l.copied {
		w.settleLoansLocked()
	}
	w.roomForLoans()
}

// Return says that nothing reads the records any more.
func (l *Loan) Return() {
	w := l.w
	patiently(&w.mu, w.spins)
	defer w.unlock()
	l.returned = true
	if !l.copied {
		w.freeLoanLocked(l)
	}
	w.reuseLocked(l)
}

// roomForLoans wakes the drain, if it waits until fewer slabs are out.
func (w *Writer) roomForLoans() {
	select {
	case w.loans.room <- struct{}{}:
	default:
	}
}

// settleLoansLocked frees the slabs of loans that are settled, oldest first, and says in
// the file that they are. Behind one that is not settled, or came back, they stay: what
// is in the file has no holes.
func (w *Writer) settleLoansLocked() {
	n := 0
	for n < len(w.loans.open) && w.loans.open[n].settled && w.loans.open[n].left == 0 {
		n++
	}
	if n == 0 {
		return
	}
	done := slices.Clone(w.loans.open[:n])
	w.loans.open = slices.Delete(w.loans.open, 0, n)
	if w.mapped() {
		for _, l := range done {
			w.forgetSettledLocked(l.pieces, l.b.Last())
		}
		w.ackLocked()
	}
	for _, l := range done {
		w.freeLoanLocked(l)
		w.reuseLocked(l)
	}
}

// freeLoanLocked gives up the slabs of a loan and serves those who wait for them.
func (w *Writer) freeLoanLocked(l *Loan) {
	w.loans.out--
	for i, p := range l.pieces {
		p.inflight = false
		w.releaseLocked(p)
		l.pieces[i] = nil
	}
	l.pieces = l.pieces[:0]
	if w.abandoned || w.retained {
		return
	}
	w.rewindLocked()
	if w.waitingLocked() > 0 {
		w.serveLocked()
		w.wakeLocked()
	}
	if w.sleep == parked && w.loans.out == 0 {
		w.restLocked()
	}
	w.setRoomLocked()
}

// reuseLocked keeps l for another batch, if it is done with.
func (w *Writer) reuseLocked(l *Loan) {
	if l.returned && len(l.pieces) == 0 && (!l.copied || l.left == 0) && len(w.loans.spare) < maxSpareLoans {
		w.loans.spare = append(w.loans.spare, l)
	}
}

// recallLocked takes back what a borrower could not account for.
func (w *Writer) recallLocked(l *Loan) {
	w.taken -= l.left
	lost := l.left
	if l.found || l.copied && w.crash.broken == nil {
		lost = min(uint64(w.keptNowhereLocked(l)), l.left)
	}
	w.acc.Dropped[batch.Shutdown] += lost
	w.loans.back += l.left - lost
}

// keptNowhereLocked returns how many records of l are larger than a slab and have no
// copy on disk.
func (w *Writer) keptNowhereLocked(l *Loan) (n int) {
	for _, p := range l.pieces {
		if b := p.blk; b.oversize && (b.unsafe || !w.crash.big.holds(b.slot(0).Ticket)) {
			n++
		}
	}
	return n
}

// ---- the drain ------------------------------------------------------------

// maxLent returns how many slabs may be out in loans that are not settled.
func (w *Writer) maxLent() int { return max(1, w.o.SlabCount/2) }

// lend hands the batch under way to the borrower.
func (w *Writer) lend() {
	d := &w.d
	l, ok := w.newLoan()
	if !ok {
		return
	}
	if !w.awaitLendable(l) {
		w.surrender()
		return
	}
	if points {
		point(ptSend)
	}
	err := w.borrow(l)
	if points {
		point(ptSent)
	}
	w.mu.Lock()
	if err != nil {
		w.loans.slabs -= l.slabs
		w.loans.out--
		w.d.pieces = append(w.d.pieces, l.pieces...)
		if i := slices.Index(w.loans.open, l); i >= 0 {
			w.loans.open = slices.Delete(w.loans.open, i, i+1)
			w.sentTickets -= uint64(l.b.Len())
		}
		w.unlock()
		d.sent = d.rest
		w.after(err)
		return
	}
	n := d.rest.Len()
	w.taken += uint64(n)
	w.inflight = 0
	w.sends++
	w.endBatchLocked()
	w.unlock()
	w.recovered()
	if l.found { // the file of a dead process says how far it is settled, batch by batch
		select {
		case <-l.done:
		case <-w.ctx.Done():
		}
		if w.ctx.Err() != nil || l.left > 0 {
			w.surrender()
		}
	}
}

// newLoan makes a loan of the batch under way. It reports false if its memory cannot be
// read: then it is settled.
func (w *Writer) newLoan() (*Loan, bool) {
	d := &w.d
	if w.crash != nil && !w.dead.sending {
		w.crash.watch.Reset(watchAfter)
		if !d.cloned && !w.copyOut() {
			w.corrupt()
			return nil, false
		}
	}
	w.mu.Lock()
	defer w.unlock()
	var l *Loan
	if k := len(w.loans.spare); k > 0 {
		l, w.loans.spare = w.loans.spare[k-1], w.loans.spare[:k-1]
	} else {
		l = &Loan{w: w}
	}
	l.copied, l.found = w.crash != nil && !w.dead.sending, w.dead.sending
	l.settled, l.returned, l.left, l.done = false, false, 0, nil
	l.b.Reset()
	l.b.Codec, l.b.Origin = d.rest.Codec, d.rest.Origin
	for _, r := range d.rest.Runs {
		l.b.Add(r)
	}
	if l.copied { // the memory of the copy is the loan's
		l.mem, d.copied = d.copied, l.mem
		d.rest = &l.b
	}
	if l.found {
		l.mem, d.copied = d.copied, l.mem
		l.done = make(chan struct{})
	}
	l.slabs = 0
	for i, p := range d.pieces {
		if i == 0 || p.blk != d.pieces[i-1].blk {
			l.slabs++
		}
	}
	return l, true
}

// awaitLendable waits until the slabs of l may be lent, and counts them. It reports
// false if Close gives up before.
func (w *Writer) awaitLendable(l *Loan) bool {
	for {
		w.mu.Lock()
		if w.loans.slabs == 0 || w.loans.slabs+l.slabs <= w.maxLent() {
			w.loans.slabs += l.slabs
			w.loans.out++
			l.pieces = append(l.pieces[:0], w.d.pieces...) // they are the loan's from now on
			clear(w.d.pieces)
			w.d.pieces = w.d.pieces[:0]
			if l.copied {
				w.loans.open = append(w.loans.open, l)
				w.sentTickets += uint64(l.b.Len())
			}
			w.unlock()
			return true
		}
		w.unlock()
		select {
		case <-w.loans.room:
		case <-w.ctx.Done():
			return false
		}
	}
}

// borrow calls the borrower. A panic becomes an error.
func (w *Writer) borrow(l *Loan) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("destination panicked: %v", r)
			w.events.Post(batch.Event{Output: w.o.Name, Op: "panic", Err: fmt.Errorf("%w\n%s", err, debug.Stack())})
		}
	}()
	return w.borrower.Borrow(w.ctx, l)
}
