package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/plural"
)

// Drain announces Shutdown: everything must be settled by deadline, and delays between attempts are
// short from now on. After 70 % of the time the remaining records are offered to the handler,
// regardless of PendingLimit, and then to the spool. A zero deadline means none. A later call may
// move the deadline to an earlier time.
func (o *outlet) Drain(deadline time.Time) {
	o.post(func(now time.Time) { o.m.endBy(now, deadline) })
}

// once calls the function end in its first call. Later calls wait for the result of that call, but
// not beyond the end of ctx.
func (o *outlet) once(ctx context.Context, end func(context.Context) (batch.Report, error)) (batch.Report, error) {
	s := o.end
	if !s.begun.Swap(true) {
		s.report, s.err = end(ctx)
		close(s.ended)
	} else if err := o.awaitEnd(ctx); err != nil {
		return batch.Report{Account: o.Account()}, fmt.Errorf("deliver: close: another Close: %w", closetime.Late(ctx))
	}
	return s.report, s.err
}

// stop closes the log, settles the records, closes the session and reports. It returns when that is
// done, or soon after ctx has ended, whatever the destination does. The machine divides the time:
//
//	0 ── destination ── 70 % ── handler ── 85 % ── spool ── deadline ── dropped
//
// After 70 % of the time the records in flight go to the handler, if there is one, or to the spool.
// Records that neither the handler nor the spool accepts stay in crash-safe memory, or are dropped
// with [batch.Shutdown]. Report.Unknown is the number of dropped records that were sent and not
// answered. Records in the spool are delivered in the first 70 % of the time, if the destination
// works. The other records stay in the spool for the next process. The spool is not closed. The
// error has the number of records lost by stop.
func (o *outlet) stop(ctx context.Context) (batch.Report, error) {
	before := o.Account().Dropped
	failed, _ := o.dead.lost()
	o.intake.log.Close()
	deadline, _ := ctx.Deadline()
	o.Drain(deadline) // shortens the delays before the machine learns that the log has ended
	o.awaitLoop(ctx)
	done := isClosed(o.done) // read first: if a Send returns after led.close, its records count as unknown
	unknown := o.led.close() // not by the loop, which may hang in the spool or in an inline driver
	unknown += o.intake.log.End(ctx, done)
	o.giveUp()
	_ = o.dead.queue.Wait(ctx)
	last := o.driver.end(ctx, isClosed(o.done))
	o.brk.subscribers.close()
	r := batch.Report{Account: o.Account(), Unknown: unknown}
	err := errors.Join(o.lossError(ctx, &before, failed, &r), last.fault())
	o.events.Wait(context.WithoutCancel(ctx))
	return r, err
}

// lossError returns the error of a Close that lost records, or nil if it lost none. The parameter
// before has the records dropped before Close, and failed is the number of dead letters that had
// failed before Close. If dead letters are written, a refused record is lost only if its dead
// letter is missing. Records dropped by Slab.WhenFull are not included.
func (o *outlet) lossError(ctx context.Context, before *batch.Drops, failed uint64, r *batch.Report) error {
	var lost batch.Drops
	for _, why := range []batch.Reason{batch.Poison, batch.Expired, batch.Quota, batch.Shutdown, batch.Corrupt, batch.Failed} {
		lost[why] = r.Dropped[why] - min(before[why], r.Dropped[why])
	}
	var waiting uint64 // number of refused records whose dead letter is not written yet
	if o.set.opt.DeadLetter != nil {
		now, unsent := o.dead.lost()
		lost[batch.Poison], waiting = now-failed+unsent, unsent
	}
	n := lost.Total()
	if n == 0 {
		return nil
	}
	text := fmt.Sprintf("deliver: close: %s lost (%s)", plural.Records(n), lost)
	if r.Unknown > 0 {
		text += fmt.Sprintf(", %d of them sent and not acknowledged", r.Unknown)
	}
	if waiting > 0 {
		text += fmt.Sprintf(", %d of them refused with no time for a dead letter", waiting)
	}
	reason := o.Stats().LastError
	if reason != "" {
		reason = ": " + reason
	}
	if lost[batch.Shutdown] == 0 {
		return errors.New(text + reason)
	}
	if !o.set.spools() {
		reason += "; give Close more time (its context, or CloseTimeout), or use a spool (forebay.Spool)"
	}
	return fmt.Errorf("%s: %w%s", text, closetime.Late(ctx), reason)
}

// awaitLoop waits until the loop has ended. Shortly before the deadline it makes the machine drop
// the remaining records, so that there is time to account for them.
func (o *outlet) awaitLoop(ctx context.Context) {
	sooner, cancel := closetime.Sooner(ctx)
	defer cancel()
	select {
	case <-o.done:
		return
	case <-sooner.Done():
	}
	o.intake.log.Refuse()
	sessionUntil := time.Now().Add(closeGrace)
	o.post(func(time.Time) { o.m.beOver(sessionUntil) })
	o.giveUp()
	grace := closeGrace
	if !o.inline { // the loop first waits for the session
		grace += closeGrace
	}
	select {
	case <-o.done:
	case <-time.After(grace): // a call of the spool or of an inline driver hangs
	}
}
