package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/outputhook"
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
		return batch.Report{Account: o.Account()}, fmt.Errorf("deliver: close: another Close is in progress: %w", err)
	}
	return s.report, s.err
}

// stop closes the log, settles the records, closes the session and reports. It returns when that is
// done, or soon after ctx has ended, whatever the destination does. The machine divides the time:
//
//	0 ── destination ── 70 % ── handler ── 85 % ── spool ── deadline ── dropped
//
// After the destination's share the records in flight go to the handler, if there is one, or to the
// spool. Records that neither accepts stay in crash-safe memory, or are dropped with [batch.Shutdown];
// Report.Unknown is the number of those that were sent and not answered. Records in the spool are
// delivered as long as the destination works and has time. The others stay pending there for the next
// process. The spool is not closed. The error has the number of records dropped by stop.
func (o *outlet) stop(ctx context.Context) (r batch.Report, err error) {
	o.intake.log.Close()
	before := o.Account()
	deadline, _ := ctx.Deadline()
	o.Drain(deadline) // shortens the delays before the machine learns that the log has ended
	o.awaitLoop(ctx, deadline)
	unknown := o.led.close() // not by the loop, which may hang in the spool or in an inline driver
	unknown += o.intake.log.End(ctx, isClosed(o.done))
	o.giveUp()
	o.dead.wait(ctx)
	o.end.driver = o.driver.end(ctx, isClosed(o.done))
	o.brk.subscribers.close()
	r = batch.Report{Account: o.Account(), Unknown: unknown}
	if n := r.Dropped[batch.Shutdown] - before.Dropped[batch.Shutdown]; n > 0 {
		err = fmt.Errorf("deliver: close: %s not delivered: %w", plural.Records(n), whyOver(ctx))
	}
	err = errors.Join(err, o.end.driver.err())
	o.events.Wait(context.WithoutCancel(ctx))
	return r, err
}

// whyOver returns the reason why the time of Close is over. If ctx has not ended, its deadline is
// so near that the remaining time is reserved for accounting.
func whyOver(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return context.DeadlineExceeded
}

// awaitLoop waits until the loop has ended. Shortly before the deadline it makes the machine drop
// the remaining records, so that time remains to account for them.
func (o *outlet) awaitLoop(ctx context.Context, deadline time.Time) {
	isOver := make(<-chan time.Time)
	if !deadline.IsZero() {
		left := time.Until(deadline)
		t := time.NewTimer(left - closetime.Reserve(left))
		defer t.Stop()
		isOver = t.C
	}
	select {
	case <-o.done:
		return
	case <-isOver:
	case <-ctx.Done():
	}
	o.intake.log.Refuse()
	o.post(func(time.Time) { o.m.beOver() })
	o.giveUp()
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-o.done:
		return
	case <-grace.C:
	}
	if o.inline { // the loop ends when its call of the driver returns
		return
	}
	o.post(func(time.Time) { o.abandon() })
	grace.Reset(closeGrace)
	select {
	case <-o.done:
	case <-grace.C: // the spool hangs
	}
}

// abandon ends the loop although a session has not closed. The memory that the session may read
// does not change until the session has closed. Only the loop calls abandon.
func (o *outlet) abandon() {
	if open := o.m.abandon(); open && o.life != nil {
		o.life.fence(outputhook.ErrClosing)
	}
}
