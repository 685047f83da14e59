package deliver

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/plural"
)

// closeGrace is how long Close waits, after its time is over, for a driver that was
// asked to give up.
const closeGrace = 50 * time.Millisecond

// stopping ends an outlet within a deadline. The machine divides the time:
//
//	0 ── destination ── 70 % ── handler ── 85 % ── spool ── deadline ── dropped
type stopping struct {
	o     *outlet
	begun atomic.Bool
	ended chan struct{} // closed when report and err are set

	report batch.Report
	err    error
	driver endErrors // of the destination; err has it, too
}

// Drain announces Shutdown: everything must be settled by deadline, and delays between attempts are
// short from now on. After 70 % of the time the remaining records are offered to the handler,
// regardless of PendingLimit, and then to the spool. A zero deadline means none. A later call may bring
// the deadline forward.
func (o *outlet) Drain(deadline time.Time) {
	o.post(func(now time.Time) { o.m.close(now, deadline, false) })
}

// Shutdown closes the log, settles the records, closes the session and reports. It returns when that
// is done, or soon after ctx has ended, whatever the destination does.
//
// The destination has 70 % of the time to ctx's deadline. Then the records in flight go to the handler,
// if there is one, or to the spool. Records that neither accepts stay in crash-safe memory, or are
// dropped with [batch.Shutdown]; Report.Unknown is the number of those that were sent and not answered.
// Records in the spool are delivered as long as the destination works and has time. The others stay
// pending there for the next process. The spool is not closed.
//
// The error has the number of records dropped by this Shutdown. Later calls wait for the
// first one and return the same result.
func (o *outlet) Shutdown(ctx context.Context) (batch.Report, error) {
	s := o.stopping
	if s.begun.Swap(true) {
		select {
		case <-s.ended:
			return s.report, s.err
		case <-ctx.Done():
			return batch.Report{Account: o.Account()}, fmt.Errorf("deliver: close: another Close is in progress: %w", context.Cause(ctx))
		}
	}
	s.run(ctx)
	close(s.ended)
	return s.report, s.err
}

// run ends the outlet and sets the report.
func (s *stopping) run(ctx context.Context) {
	o := s.o
	o.intake.log.Close()
	before := o.Account()
	deadline, _ := ctx.Deadline()
	o.Drain(deadline) // until the log has ended
	s.await(ctx, deadline)
	o.led.close() // the loop may hang in the spool or, inline, in the driver
	unknown := o.intake.log.End(ctx, is(o.done))
	o.giveUp()
	o.dead.wait(ctx)
	s.driver = o.driver.end(ctx, is(o.done))
	o.brk.close()
	s.report = batch.Report{Account: o.Account(), Unknown: unknown + o.led.unknownNow()}
	if n := s.report.Dropped[batch.Shutdown] - before.Dropped[batch.Shutdown]; n > 0 {
		s.err = fmt.Errorf("deliver: close: %s not delivered: %w", plural.Records(n), whyOver(ctx))
	}
	s.err = errors.Join(s.err, s.driver.err())
	o.events.run.WaitBriefly(context.WithoutCancel(ctx))
}

// whyOver returns why the time of Close was over.
func whyOver(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return context.DeadlineExceeded
}

// await waits until the loop has ended. Shortly before the deadline it makes the machine drop the
// remaining records, so that there is time to account for them.
func (s *stopping) await(ctx context.Context, deadline time.Time) {
	o := s.o
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
	o.post(func(time.Time) { o.m.beLate(true) })
	o.giveUp()
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-o.done:
		return
	case <-grace.C:
	}
	if o.inline { // it ends when its call of the driver returns
		return
	}
	o.post(func(time.Time) { s.abandon() })
	grace.Reset(closeGrace)
	select {
	case <-o.done:
	case <-grace.C: // the spool hangs
	}
}

// abandon ends the loop although a session has not closed. The memory that the session may read stays
// unchanged until it has.
func (s *stopping) abandon() {
	open := s.o.m.abandon()
	if l := s.o.life; l != nil {
		if open {
			l.fence(errNoTime)
		}
		l.whenClosed(s.o.m.sess.closed)
	}
}
