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

// theirEnd is the result of the Shutdown of the consumer.
type theirEnd struct {
	over    bool   // it has returned: the borrower settles nothing more
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
	theirs   theirEnd // store.mu
}

// Flush waits until everything accepted before the call, or found in the files of dead processes,
// is delivered or accounted for, or until ctx ends. It returns the error of ctx or of the
// consumer's Flush. It does not wait for the records of writes that are blocked.
func (w *Writer) Flush(ctx context.Context) error { return w.request(ctx, opFlush) }

// HandOver waits until everything accepted before the call, or found in the files of dead
// processes, is in the custody of the consumer or accounted for, or until ctx ends.
func (w *Writer) HandOver(ctx context.Context) error { return w.request(ctx, opHandOver) }

// Sync flushes and then makes the destination sync its data to stable storage, if it can. It fails
// after Options.CloseTimeout.
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
		if !w.drain.reader.wants.Inline && kind != opHandOver && err == nil {
			// Not on the drain: the delivery of all leased records may take long, and the slabs
			// must not wait for it.
			err = w.drain.flushBorrower(ctx, kind)
		}
		if err != nil {
			return fmt.Errorf("slab: %s: %w", kind, err)
		}
		return nil
	case <-ctx.Done():
		// No caller waits for the op any more: it is removed, so that ops do not pile up while
		// the destination hangs and are not performed when it has recovered.
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

// Shutdown refuses further writes, leases the accepted records to the consumer, shuts the consumer
// down and reports. It returns when that is done or when ctx ends, whatever the destination does;
// if ctx has no deadline, after Options.CloseTimeout. A consumer or callback that hangs is
// abandoned at most 0.2 s after the end of ctx. Records that are not delivered by then stay in
// crash-safe slabs for the next start ([batch.Report.Kept]), or count as dropped{shutdown}. Records
// in a Borrow call that has not returned are also counted in Report.Unknown, and its slabs are
// never reused. If records were dropped, the error has their number and wraps
// context.DeadlineExceeded if the time was too short. Otherwise it is the error of the consumer.
//
// Shutdown may be called concurrently with Write and more than once: later calls wait for the first
// one and return the same result.
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
	// The context of the consumer ends shortly before the deadline, so that its results can still
	// be accounted for.
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

// closeGrace is how long Shutdown waits, after its time is over, for a consumer whose context has
// ended.
const closeGrace = 10 * time.Millisecond

// reason returns the text and errors behind records that Shutdown dropped: the end of
// its time, and the error of the destination.
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

// settleLeftLocked accounts for the records that are left when Close ends. Those that the
// crash-safe file keeps stay there for the next process. The others are dropped, except records
// that the consumer may still settle. finished reports whether the drain has ended. The result is
// the number of records in a Borrow that has not returned: they may have been delivered.
func (w *Writer) settleLeftLocked(finished bool) (unknown uint64) {
	s := w.store
	s.found.unrecoverLocked()
	leased, slabs := s.leases.openLocked(), int(s.pendingSlabLocked())
	if leased+slabs == 0 {
		return 0
	}
	if lost, ok := s.crash.retainLocked(); ok && finished {
		return 0
	} else if ok {
		return uint64(lost)
	}
	if !finished {
		s.life.become(abandoned)
	}
	s.book.Dropped[batch.Shutdown] += uint64(slabs)
	s.front.cutLocked()
	for s.pieces.n > 0 {
		p := s.pieces.pop()
		if finished { // otherwise the slabs may be read for ever
			s.releaseLocked(p)
		}
	}
	over := w.end.theirs.over
	if !over && !w.drain.reader.wants.Inline { // the borrower may still settle them; see endBorrower
		return 0
	}
	s.dropLeasesLocked()
	if over { // the borrower has named them
		return 0
	}
	return uint64(leased)
}

// dropLeasesLocked drops the leased records that are not settled. The consumer has refused them,
// or its Settle comes too late.
func (s *store) dropLeasesLocked() {
	for _, l := range s.leases.list {
		s.book.Dropped[batch.Shutdown] += uint64(l.open)
		l.open = 0
	}
	s.leases.list = nil
}

// conclude accounts for what is left and makes the report.
func (w *Writer) conclude(ctx context.Context, finished bool) (err error) {
	if points {
		point(ptConclude)
	}
	s := w.store
	s.lock()
	s.refuseWaitersLocked()
	s.unlock()
	w.drain.to.Account(func(theirs batch.Account) {
		s.lock()
		defer s.unlock()
		if s.crash.mapped() {
			if err := s.crash.file.Intact(); err != nil {
				s.crash.toHeapLocked(err)
			}
		}
		unknown := w.settleLeftLocked(finished) + w.end.theirs.unknown
		s.book.Dropped[batch.Shutdown] += uint64(s.last.pending)
		s.last.pending = 0
		for _, o := range s.ops {
			o.ch <- ErrClosed
		}
		s.ops = nil
		w.end.report = batch.Report{Account: s.accountLocked(theirs), Unknown: unknown}
		s.crash.endCrashLocked()
		if s.life == closing {
			s.life.become(closed)
		}
		err = w.end.theirs.err
	})
	late := !finished || closetime.OutOfTime(err)
	if n := w.end.report.Dropped[batch.Shutdown]; n > 0 {
		err = fmt.Errorf("slab: close: %s not delivered, %d of them unknown: %w", plural.Records(n), w.end.report.Unknown, reason(ctx, err))
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
