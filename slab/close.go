package slab

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/plural"
)

// theirEnd is what the Shutdown of the borrower returned.
type theirEnd struct {
	unknown uint64 // of its report
	err     error
}

// ending is the Shutdown of the Writer.
type ending struct {
	once     sync.Once
	ctx      context.Context
	giveUp   context.CancelFunc // ends ctx: no more attempts
	done     chan struct{}      // closed when the drain has ended
	reported chan struct{}      // closed when Shutdown is done; the answer is not written after
	report   batch.Report
	answer   error
}

// Flush waits until everything accepted before the call, or found in the files of
// dead processes, is delivered or accounted for, or ctx ends. It returns ctx's error,
// or that of the borrower's Flush. A record that a blocked write
// has not handed over yet is not waited for.
func (w *Writer) Flush(ctx context.Context) error { return w.request(ctx, opFlush) }

// HandOver waits until everything accepted before the call, or found in the files of dead
// processes, is in the custody of the borrower or accounted for, or ctx ends.
func (w *Writer) HandOver(ctx context.Context) error { return w.request(ctx, opHandOver) }

// Sync flushes and then has the destination put what it got on stable storage, if it
// can. It gives up after Options.CloseTimeout.
func (w *Writer) Sync() error {
	ctx, cancel := context.WithTimeout(context.Background(), w.conf.o.CloseTimeout)
	defer cancel()
	return w.request(ctx, opSync)
}

func (w *Writer) request(ctx context.Context, kind opKind) error {
	if points {
		point(ptFlush)
	}
	w.store.lock()
	if w.store.life != accepting {
		w.store.unlock()
		if !w.hasReported(ctx) { // Close does all that Flush and Sync do
			return fmt.Errorf("slab: %s: %w", kind, context.Cause(ctx))
		}
		return nil
	}
	o := &op{target: w.front.next, kind: kind, ch: make(chan error, 1)}
	w.store.ops = append(w.store.ops, o)
	w.store.progress.flush = max(w.store.progress.flush, o.target)
	w.store.sleep.wakeLocked()
	w.store.unlock()
	if points {
		point(ptFlushQueued)
	}
	select {
	case err := <-o.ch:
		if !w.drain.wants.Inline && kind != opHandOver && err == nil {
			// Not on the drain: to deliver all that was lent may take long, and the slabs must
			// not wait for that.
			err = w.drain.flushBorrower(ctx, kind)
		}
		if err != nil {
			return fmt.Errorf("slab: %s: %w", kind, err)
		}
		return nil
	case <-ctx.Done():
		// Nobody waits for it any more: it must not pile up while the destination
		// hangs, nor be performed once that is well again.
		w.store.lock()
		w.store.ops = slices.DeleteFunc(w.store.ops, func(other *op) bool { return other == o })
		w.store.unlock()
		return fmt.Errorf("slab: %s: %w", kind, context.Cause(ctx))
	}
}

// hasReported waits until Shutdown is done, and reports false if ctx ends before.
func (w *Writer) hasReported(ctx context.Context) bool {
	select {
	case <-w.end.reported:
		return true
	default:
	}
	select {
	case <-w.end.reported:
		return true
	case <-ctx.Done():
		return false
	}
}

// Close is [Writer.Shutdown] within Options.CloseTimeout, without the report.
func (w *Writer) Close() error {
	_, err := w.Shutdown(context.Background())
	return err
}

// Shutdown refuses further writes, lends what was accepted, shuts the borrower down and
// reports. It returns when that is done or when ctx ends, whatever the destination does; if
// ctx has no deadline, after Options.CloseTimeout. A borrower or callback that hangs is left
// alone no later than 0.2 s after the end of ctx. Records that are not delivered by then stay in
// crash-safe slabs for the next start ([batch.Report.Kept]), or count as
// dropped{shutdown}; those of them in a Borrow that has not returned are also named in
// Report.Unknown, and the slabs it reads are never used again. The error says how
// many were dropped, and wraps context.DeadlineExceeded if the time was too short; or
// it is what the borrower returned.
//
// Shutdown may be called beside Write and more than once: later calls wait for
// the first one and return the same.
func (w *Writer) Shutdown(ctx context.Context) (batch.Report, error) {
	ctx, cancel := closetime.Bounded(ctx, w.conf.o.CloseTimeout)
	defer cancel()
	first := false
	w.end.once.Do(func() { first = true })
	if !first {
		if !w.hasReported(ctx) {
			return batch.Report{Account: w.Account()}, fmt.Errorf("slab: close: %w", context.Cause(ctx))
		}
		return w.end.report, w.end.answer
	}

	if points {
		point(ptClose)
	}
	w.store.lock()
	w.store.life.become(closing)
	w.front.setRoomLocked()
	w.store.sleep.wakeLocked()
	w.store.unlock()
	if points {
		point(ptClosed)
	}

	deadline, ok := ctx.Deadline()
	w.drain.to.Drain(deadline)
	// A borrower is told to give up a little before the deadline, so that what it says can
	// still be accounted for.
	if ok {
		left := time.Until(deadline)
		t := time.AfterFunc(left-closetime.Reserve(left), w.end.giveUp)
		defer t.Stop()
	}
	finished := true
	select {
	case <-w.end.done:
	case <-ctx.Done():
		w.end.giveUp()
		grace := time.NewTimer(closeGrace)
		select {
		case <-w.end.done:
		case <-grace.C:
			finished = false
		}
		grace.Stop()
	}
	_ = w.store.last.writes.Wait(ctx) // what it has not written by then is accounted for
	err := w.conclude(ctx, finished)
	w.end.giveUp()
	w.conf.events.WaitBriefly(ctx)
	close(w.end.reported)
	return w.end.report, err
}

// closeGrace is how long Shutdown waits, after its time is over, for a borrower that was
// told to give up.
const closeGrace = 10 * time.Millisecond

// reason returns the text and errors behind records that Shutdown dropped: the end of
// its time, and what the destination said.
func reason(ctx context.Context, err error) error {
	why := context.Cause(ctx)
	if why == nil { // a part of the time is kept back
		why = context.DeadlineExceeded
	}
	if err != nil && !closetime.OutOfTime(err) {
		why = fmt.Errorf("%w; the destination: %w", why, err)
	}
	return why
}

// lockWithAccount locks mu and returns the account of the borrower, as of a moment when
// everything that a Borrow which has returned gave it was counted here.
func (w *Writer) lockWithAccount() (theirs batch.Account) {
	w.store.lock()
	for range 1000 { // a Borrow takes longer than to look: two or three will do
		taken := w.store.book.taken
		w.store.unlock()
		theirs = w.drain.to.Account()
		w.store.lock()
		if w.store.book.taken == taken {
			break
		}
	}
	return theirs
}

// abandonLocked accounts for all that a drain which hangs has not settled. It returns how
// many records the borrower may have got.
func (d *drain) abandonLocked(theirs batch.Account) (unknown uint64) {
	unknown = uint64(d.store.book.inflight)
	d.store.book.hung = d.store.book.inflight
	d.store.found.unrecoverLocked()
	unknown -= min(unknown, d.store.book.lateLocked(theirs))
	if d.store.crash.retainLocked() {
		return unknown
	}
	d.store.life.become(abandoned)
	d.store.book.Dropped[batch.Shutdown] += uint64(d.store.book.inflight) + d.store.pendingSlabLocked()
	d.store.book.hungLost, d.store.book.inflight = d.store.book.inflight, 0
	d.store.discardLocked()
	return unknown
}

// conclude accounts for what is left and makes the report.
func (w *Writer) conclude(ctx context.Context, finished bool) error {
	if points {
		point(ptConclude)
	}
	// Blocked writes return first: the account may need several looks while Borrows return.
	w.store.lock()
	w.store.refuseWaitersLocked()
	w.store.unlock()
	theirs := w.lockWithAccount()
	defer w.store.unlock()
	if w.store.crash.mapped() {
		if err := w.store.crash.file.Intact(); err != nil {
			w.store.crash.toHeapLocked(err)
		}
	}
	var unknown uint64
	if !finished && !w.store.life.cutShort() {
		unknown = w.drain.abandonLocked(theirs)
	}
	if w.store.loans.back > 0 || len(w.store.loans.open) > 0 {
		w.store.crash.retainLocked()
	}
	w.store.book.Dropped[batch.Shutdown] += uint64(w.store.last.pending)
	w.store.last.pending = 0
	for _, o := range w.store.ops {
		o.ch <- ErrClosed
	}
	w.store.ops = nil
	unknown += w.drain.theirEnd.unknown
	w.end.report = batch.Report{Account: w.accountLocked(theirs), Unknown: unknown}

	w.store.crash.endCrashLocked()
	if w.store.life == closing {
		w.store.life.become(closed)
	}
	err := w.drain.theirEnd.err
	late := !finished || closetime.OutOfTime(err)
	if n := w.end.report.Dropped[batch.Shutdown]; n > 0 {
		err = fmt.Errorf("slab: close: %s not delivered, %d of them unknown: %w", plural.Records(n), unknown, reason(ctx, err))
	} else if late && w.end.report.Pending.Inflight > 0 { // with the borrower
		err = fmt.Errorf("slab: close: %w", reason(ctx, err))
	} else if late {
		err = nil // nothing is lost
	} else if err != nil {
		err = fmt.Errorf("slab: close: %w", err)
	}
	w.end.answer = err
	return err
}
