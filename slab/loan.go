package slab

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
)

// A Borrower takes the batches of a [Writer] to their destination. deliver.NewOutput puts
// one behind its Writer. It is handed loans: no batch is copied, and the slabs of a loan
// are in use until it is given back.
//
// Borrow is called from one goroutine; the other methods may be called from any, beside
// it, and do not block unless they have a context.
type Borrower interface {
	// Wants says how batches are to be handed over. The answer is always the same.
	Wants() Wants
	// Borrow takes the batch of l into its custody, and accounts for its records from
	// then on. It returns as soon as another batch may follow, and soon after ctx has
	// ended. If it returns an error it has taken nothing.
	Borrow(ctx context.Context, l *Loan) error
	// Account says what became of the records of all loans: a record is accepted when
	// it is taken or, where Wants.Inline is set, when it is settled.
	Account() batch.Account
	// Held returns which records of origin with tickets from first to last are on the
	// borrower's disk, or were and have been settled since: a Writer that finds them in the
	// file of a dead process leaves them out. Ranges may come in any order and overlap. A
	// record that it may not have is not among them; one that it has may be missing.
	Held(origin [16]byte, first, last uint64) []batch.Tickets
	// SpillWhen is called once, before the first loan, by a Writer that would rather have
	// records put on disk than wait. full reports whether it has no room left; it is not
	// called under a lock that a method of the borrower takes. The Writer calls press
	// each time it becomes full. The error says that there is nowhere to put records.
	SpillWhen(full func() bool) (press func(), err error)
	// HelpWhen is called once, before the first loan. state reports whether records are
	// about to be dropped, because few slabs are free and calls do not wait, or one has
	// waited for half of its time; and whether a call that waits as long as it takes does so
	// for long. It is not called under a lock that a method of the borrower takes. The Writer
	// calls press each time one of them becomes true. A borrower that cannot settle records
	// without their destination returns nil.
	HelpWhen(state func() (drops, waits bool)) (press func())
	// Flush waits until everything taken before is delivered or accounted for, or ctx
	// ends. Sync puts it on stable storage, where that can be.
	Flush(ctx context.Context) error
	Sync(ctx context.Context) error
	// Drain says that the Writer has begun to close and will have everything settled by
	// deadline; zero: no deadline.
	Drain(deadline time.Time)
	// Shutdown settles what it has, closes the destination and reports. It is called once
	// all batches are handed over. It returns soon after ctx has ended.
	Shutdown(ctx context.Context) (batch.Report, error)
}

// Wants says how a [Borrower] wants its batches.
type Wants struct {
	// Limits are the largest batches. Where they are zero, a batch is a few slabs at most.
	Limits batch.Limits
	// Dictionary knows the streams of records; nil: none.
	Dictionary batch.Dictionary
	// Inline says that Borrow delivers: it returns when the loan is settled and given
	// back, or once ctx has ended.
	Inline bool
	// Vectors says that several slabs cost no more calls than one: a batch without limits
	// may have half of all.
	Vectors bool
}

// A Loan is a batch of a Writer in the custody of a [Borrower]. The borrower calls
// Settle, and then Return, each once and from any goroutine, but not while it holds a
// lock under which it answers Account. Where Wants.Inline is set it calls them within
// Borrow.
//
// No more than half of the slabs are out in loans that are not settled: there is room
// for what callers bring, and for DropOldest to drop. Mapped slabs are lent as a copy:
// what the borrower reads must not be a file that somebody can truncate.
type Loan struct {
	w     *Writer
	b     batch.Batch
	mem   crashfile.Copy // the memory of b, unless the slabs are lent
	kind  loanKind
	slabs int // that count against half of all

	// Writer.mu guards the rest.
	pieces   []*piece
	counted  bool          // its records are in taken
	settled  bool          // Settle was called
	returned bool          // Return was
	left     uint64        // records that Settle gave back
	behind   int           // records of later loans that are settled and closed, up to the next open one
	done     chan struct{} // closed by Settle; nil: nobody waits
}

// loanKind is what the batch of a loan is.
type loanKind uint8

const (
	lendsSlabs  loanKind = iota // records in slabs, which are free once it is returned
	lendsCopy                   // a copy of mapped slabs, which are free once the file says that it is settled
	lendsFound                  // records of a dead process
	lendsInline                 // records that only the drain and Borrow, on its goroutine, have: nothing is locked
	lendsMarker                 // a gap marker, which is in no slab
)

// survives reports whether the records are on disk, too.
func (k loanKind) survives() bool { return k == lendsCopy || k == lendsFound }

// unlocked reports whether only the drain and Borrow have the loan.
func (k loanKind) unlocked() bool { return k == lendsInline || k == lendsMarker }

// maxSpareLoans bounds the pool of loans.
const maxSpareLoans = 16

// loans are the batches that a borrower has.
type loans struct {
	room  chan struct{} // capacity 1: fewer slabs are out
	slabs int           // out in loans that are not settled
	out   int           // loans whose slabs are not free
	open  []*Loan       // copies of mapped slabs, oldest first, up to the first that is not settled
	spare []*Loan       // for reuse
	back  uint64        // records that the borrower did not account for; on disk
}

// Batch returns the records. They stay as they are until Return.
func (l *Loan) Batch() *batch.Batch { return &l.b }

// Keeps reports whether records that the borrower cannot deliver survive the process,
// because they are in crash-safe memory. The answer is always the same.
func (l *Loan) Keeps() bool { return l.kind.survives() }

// Pins returns how many slabs stay in use until Return, and how many the borrower may
// have read by something that may hang: there must be some for the others.
func (l *Loan) Pins() (slabs, limit int) {
	if l.kind.survives() {
		return 0, 1
	}
	return l.slabs, l.w.maxLent()
}

// Settle says that the borrower has accounted for all records but left of them, which
// are the Writer's again. It keeps them for the next start, or drops what it cannot keep.
// Only the first call counts.
func (l *Loan) Settle(left uint64) {
	if l.kind.unlocked() {
		if !l.settled {
			l.settled, l.left = true, left
		}
		return
	}
	w := l.w
	patiently(&w.mu, w.mu.spins)
	defer w.unlock()
	if l.settled {
		return
	}
	l.settled, l.left = true, left
	w.loans.slabs -= l.slabs
	if left > 0 && l.counted {
		w.recallLocked(l)
	}
	if l.done != nil {
		close(l.done)
	}
	if l.kind == lendsCopy {
		w.settleLoansLocked()
		w.settleAheadLocked(l)
	}
	w.roomForLoans()
}

// Return says that nothing reads the records any more.
func (l *Loan) Return() {
	if l.kind.unlocked() {
		return
	}
	w := l.w
	patiently(&w.mu, w.mu.spins)
	defer w.unlock()
	l.returned = true
	if l.kind != lendsCopy {
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
// the file that they are, up to one that is not settled, or came back.
func (w *Writer) settleLoansLocked() {
	n := 0
	for n < len(w.loans.open) && w.loans.open[n].over() {
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

// over reports whether all records of l are settled.
func (l *Loan) over() bool { return l.settled && l.left == 0 }

// settleAheadLocked frees the slabs of l, whose records are all settled behind a loan that
// is not. Records larger than a slab stay until that one is settled, too: there is no slab
// to free.
func (w *Writer) settleAheadLocked(l *Loan) {
	if !l.over() {
		return
	}
	for i := 0; i < len(l.pieces); {
		if !w.freeAheadLocked(l.pieces[i].blk) {
			i++
		}
	}
}

// freeAheadLocked frees b if it is a slab whose records are all settled, each with its
// loan. The current slab is filled from its start again.
func (w *Writer) freeAheadLocked(b *block) bool {
	if b.kind != isSlab || b.n > b.cut || !w.mapped() {
		return false
	}
	n := 0
	for _, l := range w.loans.open {
		if l.over() {
			n += l.piecesOf(b)
		}
	}
	if n == 0 || n < b.refs {
		return false
	}
	for _, l := range w.loans.open {
		l.pieces = slices.DeleteFunc(l.pieces, func(p *piece) bool {
			if p.blk != b {
				return false
			}
			p.inflight = false
			w.releaseLocked(p)
			return true
		})
	}
	w.guardLocked(func() { // before the slab is used again
		w.noteAheadLocked()
		if b != w.cur { // see rewindLocked
			b.reset(w.next + 1)
		}
	})
	for i := 1; i < len(w.loans.open); i++ {
		if o := w.loans.open[i]; o.over() && len(o.pieces) == 0 {
			w.loans.open = slices.Delete(w.loans.open, i, i+1)
			i--
			w.loans.open[i].behind += o.b.Len() + o.behind
			w.freeLoanLocked(o)
			w.reuseLocked(o)
		}
	}
	w.freedLocked()
	return true
}

// piecesOf returns how many pieces of b are lent with l.
func (l *Loan) piecesOf(b *block) (n int) {
	for _, p := range l.pieces {
		if p.blk == b {
			n++
		}
	}
	return n
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
	w.freedLocked()
}

// freedLocked serves those who wait for slabs that a loan had.
func (w *Writer) freedLocked() {
	if w.life.cutShort() {
		return
	}
	w.rewindLocked()
	if w.waitingLocked() > 0 {
		w.serveLocked()
		w.sleep.wakeLocked()
	}
	if w.sleep.state == parked && w.loans.out == 0 {
		w.restLocked()
	}
	w.setRoomLocked()
}

// reuseLocked keeps l for another batch, if it is done with.
func (w *Writer) reuseLocked(l *Loan) {
	if l.returned && len(l.pieces) == 0 && (l.kind != lendsCopy || l.left == 0) && len(w.loans.spare) < maxSpareLoans {
		w.loans.spare = append(w.loans.spare, l)
	}
}

// recallLocked takes back what a borrower could not account for.
func (w *Writer) recallLocked(l *Loan) {
	w.book.taken -= l.left
	switch w.loans.back += l.left; {
	case l.kind == lendsFound:
	case l.kind != lendsCopy || w.crash.broken != nil: // it is in no file
		w.loans.back -= l.left
		w.book.Dropped[batch.Shutdown] += l.left
	case w.life == retained:
		w.loseLocked(l)
	}
}

// loseLocked drops the records of l that came back and have no copy on disk.
func (w *Writer) loseLocked(l *Loan) {
	lost := min(uint64(w.nowhereLocked(l.pieces...)), l.left)
	w.loans.back -= lost
	w.book.Dropped[batch.Shutdown] += lost
}

// ---- the drain ------------------------------------------------------------

// maxLent returns how many slabs may be out in loans that are not settled.
func (w *Writer) maxLent() int { return max(1, w.o.SlabCount/2) }

// lend hands the batch under way to the borrower.
func (w *Writer) lend() {
	d := &w.d
	l := d.loan // not nil: the last goroutine has ended inside Borrow
	if l == nil {
		if l = w.newLoan(); l == nil {
			return
		}
		if l.kind != lendsInline && !w.awaitLendable(l) {
			w.surrender()
			return
		}
		d.loan = l
	}
	if w.end.ctx.Err() != nil { // for the last time: the borrower says what is left
		d.loan = nil
	}
	err := w.borrow(l)
	switch {
	case l.kind == lendsInline:
		w.lentInline(l)
	case err != nil:
		w.takeBack(l)
		w.pause()
	default:
		w.lent(l)
	}
}

// lent notes that the borrower has l.
func (w *Writer) lent(l *Loan) {
	n := l.b.Len()
	w.mu.Lock()
	if w.life.cutShort() { // Shutdown has accounted for it
		w.d.now = nil
		w.mu.Unlock()
		return
	}
	w.book.tookLocked(n, 0)
	if l.counted = true; l.left > 0 {
		w.recallLocked(l)
	}
	w.endBatchLocked()
	w.unlock()
	if l.kind != lendsFound {
		return
	}
	select { // the file of a dead process says how far it is settled, batch by batch
	case <-l.done:
	case <-w.end.ctx.Done():
	}
	if w.end.ctx.Err() != nil || l.left > 0 {
		w.surrender()
	}
}

// takeBack notes that the borrower has not taken l.
func (w *Writer) takeBack(l *Loan) {
	w.mu.Lock()
	defer w.unlock()
	w.loans.slabs -= l.slabs
	w.loans.out--
	w.d.pieces = append(w.d.pieces, l.pieces...)
	if i := slices.Index(w.loans.open, l); i >= 0 {
		w.loans.open = slices.Delete(w.loans.open, i, i+1)
		w.progress.sent -= uint64(l.b.Len())
	}
}

// lentInline deals with a loan that the borrower has settled or, because its time was
// over or it failed, given back in part.
func (w *Writer) lentInline(l *Loan) {
	n := l.b.Len()
	left := n
	if l.settled {
		left = int(min(l.left, uint64(n)))
	}
	if left == 0 {
		w.settle(n)
		return
	}
	w.mu.Lock()
	if !w.life.cutShort() {
		w.book.tookLocked(n-left, left)
	}
	w.unlock()
	w.pause()
}

// pause waits before the next attempt, until Close gives up: then nothing more is
// attempted.
func (w *Writer) pause() {
	if points {
		point(ptPause)
	}
	w.d.timer.Reset(pauseTime)
	select {
	case <-w.d.timer.C:
	case <-w.end.ctx.Done():
		w.d.timer.Stop()
		w.surrender()
	}
}

// pauseTime is how long the drain waits after a Borrow that has taken nothing.
const pauseTime = 100 * time.Millisecond

// newLoan makes a loan of the batch under way. It returns nil if its memory cannot be
// read: then it is settled.
func (w *Writer) newLoan() *Loan {
	d := &w.d
	mapped := w.crash != nil && !w.dead.sending
	if mapped && !w.copyOut() {
		w.corrupt()
		return nil
	}
	l := &d.inline
	if !w.wants.Inline {
		l = w.spareLoan()
		if l.kind = lendsSlabs; w.dead.sending {
			l.kind = lendsFound
		} else if mapped {
			l.kind = lendsCopy
		}
	}
	l.counted, l.settled, l.returned, l.left, l.behind, l.done = false, false, false, 0, 0, nil
	l.b.Reset()
	l.b.Codec, l.b.Origin = d.now.Codec, d.now.Origin
	for _, r := range d.now.Runs {
		l.b.Add(r)
	}
	if l.kind == lendsInline {
		return l
	}
	if l.kind.survives() { // the memory of the copy is the loan's
		l.mem, d.copied = d.copied, l.mem
		d.now = &l.b
	}
	if l.kind == lendsFound {
		l.done = make(chan struct{})
	}
	l.slabs = 0
	for i, p := range d.pieces {
		if i == 0 || p.blk != d.pieces[i-1].blk {
			l.slabs++
		}
	}
	return l
}

// spareLoan returns a loan to use.
func (w *Writer) spareLoan() *Loan {
	w.mu.Lock()
	defer w.unlock()
	if k := len(w.loans.spare); k > 0 {
		l := w.loans.spare[k-1]
		w.loans.spare = w.loans.spare[:k-1]
		return l
	}
	return &Loan{w: w}
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
			if l.kind == lendsCopy {
				w.loans.open = append(w.loans.open, l)
				w.progress.sent += uint64(l.b.Len())
			}
			w.unlock()
			return true
		}
		w.unlock()
		select {
		case <-w.loans.room:
		case <-w.end.ctx.Done():
			return false
		}
	}
}

// borrow calls the borrower. A panic becomes an error; a Goexit ends the goroutine, and
// the next one calls again.
func (w *Writer) borrow(l *Loan) (err error) {
	if points {
		point(ptSend)
	}
	if w.crash != nil {
		w.crash.watch.Reset(watchAfter)
	}
	defer func() {
		if r := recover(); r != nil {
			w.d.loan = nil
			err = fmt.Errorf("slab: Borrow panicked: %v", r)
			w.events.Post(batch.Event{Output: w.o.Name, Op: "panic", Err: fmt.Errorf("%w\n%s", err, debug.Stack())})
		}
	}()
	err = w.to.Borrow(w.end.ctx, l)
	w.d.loan = nil
	if points {
		point(ptSent)
	}
	return err
}
