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
	s     *store
	b     batch.Batch
	mem   crashfile.Copy // the memory of b, unless the slabs are lent
	kind  loanKind
	slabs int // that count against half of all

	// store.mu guards the rest.
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
	return l.slabs, l.s.maxLent()
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
	s := l.s
	s.lock()
	defer s.unlock()
	if l.settled {
		return
	}
	l.settled, l.left = true, left
	s.loans.slabs -= l.slabs
	if left > 0 && l.counted {
		s.recallLocked(l)
	}
	if l.done != nil {
		close(l.done)
	}
	if l.kind == lendsCopy {
		s.settleLoansLocked()
		s.settleAheadLocked(l)
	}
	s.roomForLoans()
}

// Return says that nothing reads the records any more.
func (l *Loan) Return() {
	if l.kind.unlocked() {
		return
	}
	s := l.s
	s.lock()
	defer s.unlock()
	l.returned = true
	if l.kind != lendsCopy {
		s.freeLoanLocked(l)
	}
	s.reuseLocked(l)
}

// roomForLoans wakes the drain, if it waits until fewer slabs are out.
func (s *store) roomForLoans() {
	select {
	case s.loans.room <- struct{}{}:
	default:
	}
}

// settleLoansLocked frees the slabs of loans that are settled, oldest first, and says in
// the file that they are, up to one that is not settled, or came back.
func (s *store) settleLoansLocked() {
	n := 0
	for n < len(s.loans.open) && s.loans.open[n].over() {
		n++
	}
	if n == 0 {
		return
	}
	done := slices.Clone(s.loans.open[:n])
	s.loans.open = slices.Delete(s.loans.open, 0, n)
	if s.crash.mapped() {
		for _, l := range done {
			s.crash.forgetSettledLocked(l.pieces, l.b.Last())
		}
		s.crash.ackLocked()
	}
	for _, l := range done {
		s.freeLoanLocked(l)
		s.reuseLocked(l)
	}
}

// over reports whether all records of l are settled.
func (l *Loan) over() bool { return l.settled && l.left == 0 }

// settleAheadLocked frees the slabs of l, whose records are all settled behind a loan that
// is not. Records larger than a slab stay until that one is settled, too: there is no slab
// to free.
func (s *store) settleAheadLocked(l *Loan) {
	if !l.over() {
		return
	}
	for i := 0; i < len(l.pieces); {
		if !s.freeAheadLocked(l.pieces[i].blk) {
			i++
		}
	}
}

// freeAheadLocked frees b if it is a slab whose records are all settled, each with its
// loan. The current slab is filled from its start again.
func (s *store) freeAheadLocked(b *block) bool {
	if b.kind != isSlab || b.n > b.cut || !s.crash.mapped() {
		return false
	}
	n := 0
	for _, l := range s.loans.open {
		if l.over() {
			n += l.piecesOf(b)
		}
	}
	if n == 0 || n < b.refs {
		return false
	}
	for _, l := range s.loans.open {
		l.pieces = slices.DeleteFunc(l.pieces, func(p *piece) bool {
			if p.blk != b {
				return false
			}
			p.inflight = false
			s.releaseLocked(p)
			return true
		})
	}
	s.crash.guardLocked(func() { // before the slab is used again
		s.crash.noteAheadLocked()
		if b != s.front.cur { // see rewindLocked
			b.reset(s.front.next + 1)
		}
	})
	for i := 1; i < len(s.loans.open); i++ {
		if o := s.loans.open[i]; o.over() && len(o.pieces) == 0 {
			s.loans.open = slices.Delete(s.loans.open, i, i+1)
			i--
			s.loans.open[i].behind += o.b.Len() + o.behind
			s.freeLoanLocked(o)
			s.reuseLocked(o)
		}
	}
	s.freedLocked()
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
func (s *store) freeLoanLocked(l *Loan) {
	s.loans.out--
	for i, p := range l.pieces {
		p.inflight = false
		s.releaseLocked(p)
		l.pieces[i] = nil
	}
	l.pieces = l.pieces[:0]
	s.freedLocked()
}

// freedLocked serves those who wait for slabs that a loan had.
func (s *store) freedLocked() {
	if s.life.cutShort() {
		return
	}
	s.front.rewindLocked()
	if s.callers.waitingLocked() > 0 {
		s.front.serveLocked()
		s.sleep.wakeLocked()
	}
	if s.sleep.state == parked && s.loans.out == 0 {
		s.restLocked()
	}
	s.front.setRoomLocked()
}

// reuseLocked keeps l for another batch, if it is done with.
func (s *store) reuseLocked(l *Loan) {
	if l.returned && len(l.pieces) == 0 && (l.kind != lendsCopy || l.left == 0) && len(s.loans.spare) < maxSpareLoans {
		s.loans.spare = append(s.loans.spare, l)
	}
}

// recallLocked takes back what a borrower could not account for.
func (s *store) recallLocked(l *Loan) {
	s.book.taken -= l.left
	switch s.loans.back += l.left; {
	case l.kind == lendsFound:
	case l.kind != lendsCopy || s.crash.broken != nil: // it is in no file
		s.loans.back -= l.left
		s.book.Dropped[batch.Shutdown] += l.left
	case s.life == retained:
		s.loseLocked(l)
	}
}

// loseLocked drops the records of l that came back and have no copy on disk.
func (s *store) loseLocked(l *Loan) {
	lost := min(uint64(s.crash.nowhereLocked(l.pieces...)), l.left)
	s.loans.back -= lost
	s.book.Dropped[batch.Shutdown] += lost
}

// ---- the drain ------------------------------------------------------------

// maxLent returns how many slabs may be out in loans that are not settled.
func (s *store) maxLent() int { return max(1, s.conf.o.SlabCount/2) }

// lend hands the batch under way to the borrower.
func (d *drain) lend() {
	l := d.loan // not nil: the last goroutine has ended inside Borrow
	if l == nil {
		if l = d.newLoan(); l == nil {
			return
		}
		if l.kind != lendsInline && !d.awaitLendable(l) {
			d.surrender()
			return
		}
		d.loan = l
	}
	if d.end.ctx.Err() != nil { // for the last time: the borrower says what is left
		d.loan = nil
	}
	err := d.borrow(l)
	switch {
	case l.kind == lendsInline:
		d.lentInline(l)
	case err != nil:
		d.takeBack(l)
		d.pause()
	default:
		d.lent(l)
	}
}

// lent notes that the borrower has l.
func (d *drain) lent(l *Loan) {
	n := l.b.Len()
	d.store.lock()
	if d.store.life.cutShort() { // Shutdown has accounted for it
		d.now = nil
		d.store.unlock()
		return
	}
	d.store.book.tookLocked(n, 0)
	if l.counted = true; l.left > 0 {
		d.store.recallLocked(l)
	}
	d.endBatchLocked()
	d.store.unlock()
	if l.kind != lendsFound {
		return
	}
	select { // the file of a dead process says how far it is settled, batch by batch
	case <-l.done:
	case <-d.end.ctx.Done():
	}
	if d.end.ctx.Err() != nil || l.left > 0 {
		d.surrender()
	}
}

// takeBack notes that the borrower has not taken l.
func (d *drain) takeBack(l *Loan) {
	d.store.lock()
	defer d.store.unlock()
	d.store.loans.slabs -= l.slabs
	d.store.loans.out--
	d.pieces = append(d.pieces, l.pieces...)
	if i := slices.Index(d.store.loans.open, l); i >= 0 {
		d.store.loans.open = slices.Delete(d.store.loans.open, i, i+1)
		d.store.progress.sent -= uint64(l.b.Len())
	}
}

// lentInline deals with a loan that the borrower has settled or, because its time was
// over or it failed, given back in part.
func (d *drain) lentInline(l *Loan) {
	n := l.b.Len()
	left := n
	if l.settled {
		left = int(min(l.left, uint64(n)))
	}
	if left == 0 {
		d.settle(n)
		return
	}
	d.store.lock()
	if !d.store.life.cutShort() {
		d.store.book.tookLocked(n-left, left)
	}
	d.store.unlock()
	d.pause()
}

// pause waits before the next attempt, until Close gives up: then nothing more is
// attempted.
func (d *drain) pause() {
	if points {
		point(ptPause)
	}
	d.timer.Reset(pauseTime)
	select {
	case <-d.timer.C:
	case <-d.end.ctx.Done():
		d.timer.Stop()
		d.surrender()
	}
}

// pauseTime is how long the drain waits after a Borrow that has taken nothing.
const pauseTime = 100 * time.Millisecond

// newLoan makes a loan of the batch under way. It returns nil if its memory cannot be
// read: then it is settled.
func (d *drain) newLoan() *Loan {
	mapped := d.store.crash != nil && !d.store.found.sending
	if mapped && !d.copyOut() {
		d.corrupt()
		return nil
	}
	l := &d.inline
	if !d.wants.Inline {
		l = d.spareLoan()
		if l.kind = lendsSlabs; d.store.found.sending {
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
func (d *drain) spareLoan() *Loan {
	d.store.lock()
	defer d.store.unlock()
	if k := len(d.store.loans.spare); k > 0 {
		l := d.store.loans.spare[k-1]
		d.store.loans.spare = d.store.loans.spare[:k-1]
		return l
	}
	return &Loan{s: d.store}
}

// awaitLendable waits until the slabs of l may be lent, and counts them. It reports
// false if Close gives up before.
func (d *drain) awaitLendable(l *Loan) bool {
	for {
		d.store.lock()
		if d.store.loans.slabs == 0 || d.store.loans.slabs+l.slabs <= d.store.maxLent() {
			d.store.loans.slabs += l.slabs
			d.store.loans.out++
			l.pieces = append(l.pieces[:0], d.pieces...) // they are the loan's from now on
			clear(d.pieces)
			d.pieces = d.pieces[:0]
			if l.kind == lendsCopy {
				d.store.loans.open = append(d.store.loans.open, l)
				d.store.progress.sent += uint64(l.b.Len())
			}
			d.store.unlock()
			return true
		}
		d.store.unlock()
		select {
		case <-d.store.loans.room:
		case <-d.end.ctx.Done():
			return false
		}
	}
}

// borrow calls the borrower. A panic becomes an error; a Goexit ends the goroutine, and
// the next one calls again.
func (d *drain) borrow(l *Loan) (err error) {
	if points {
		point(ptSend)
	}
	if d.store.crash != nil {
		d.store.crash.watch.Reset(watchAfter)
	}
	defer func() {
		if r := recover(); r != nil {
			d.loan = nil
			err = fmt.Errorf("slab: Borrow panicked: %v", r)
			d.conf.events.Post(batch.Event{Output: d.conf.o.Name, Op: "panic", Err: fmt.Errorf("%w\n%s", err, debug.Stack())})
		}
	}()
	err = d.to.Borrow(d.end.ctx, l)
	d.loan = nil
	if points {
		point(ptSent)
	}
	return err
}
