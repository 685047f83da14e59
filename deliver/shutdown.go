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

const (
	// primaryShare is the destination's share of the time to the deadline of Close.
	primaryShare = closetime.Destination
	// handlerShare is how much of the time is over when no handler is waited for any
	// more that the spool can stand in for.
	handlerShare = closetime.Handlers
	// closeGrace is how long Close waits, after its time is over, for a driver that was
	// told to give up.
	closeGrace = 50 * time.Millisecond
)

// Drain tells the outlet that its producer has begun to close and will have everything
// settled by deadline. Delays between attempts are short from now
// on. The destination has 70 % of the time; then the handler is offered what is left,
// whatever PendingLimit says, and after it the spool. A zero deadline means none; a later
// call may bring the deadline forward.
func (o *outlet) Drain(deadline time.Time) {
	o.drain(deadline, false)
}

func (o *outlet) drain(deadline time.Time, last bool) {
	hurried := !deadline.IsZero()
	o.post(func(now time.Time) { o.m.close(now, hurried, last) })
	o.shared.mu.Lock()
	earlier := hurried && (o.shared.deadline.IsZero() || deadline.Before(o.shared.deadline))
	if earlier {
		o.shared.deadline = deadline
	}
	o.shared.mu.Unlock()
	if earlier {
		o.schedule(deadline)
	}
}

// schedule ends the shares of the time until deadline, unless they have ended.
func (o *outlet) schedule(deadline time.Time) {
	left := time.Until(deadline)
	share := func(part float64, f func()) {
		t := time.AfterFunc(time.Duration(part*float64(left)), f)
		go func() { <-o.done; t.Stop() }()
	}
	if o.set.spool || o.hand.Load() != nil {
		share(primaryShare, func() { o.post(func(time.Time) { o.m.beLate(false) }) })
	}
	if o.set.spool {
		share(handlerShare, o.giveUp)
	}
}

// end ends everybody's share.
func (o *outlet) end() {
	o.post(func(time.Time) { o.m.beLate(true) })
	o.giveUp()
}

// Shutdown refuses further loans, settles what is in custody, closes the session and
// reports. It returns when that is done, or soon after ctx has ended, whatever the
// destination does.
//
// The destination has 70 % of the time to ctx's deadline. What is in flight then is
// settled without it: by the handler, where there is one, else by the spool. What
// nobody takes is dropped with [batch.Shutdown]; Report.Unknown says how much of that
// was sent and not answered. What is in the spool is delivered as long as the
// destination is well and has time, and stays there otherwise: pending, for the next
// process. The spool is not closed.
//
// The error says how many records were dropped by this Shutdown. Later calls wait for
// the first one and return the same.
func (o *outlet) Shutdown(ctx context.Context) (batch.Report, error) {
	first := false
	o.once.Do(func() { first = true })
	if !first {
		select {
		case <-o.ended:
			return o.report, o.closeErr
		case <-ctx.Done():
			a := o.led.account()
			return batch.Report{Account: a}, fmt.Errorf("deliver: close: %w", context.Cause(ctx))
		}
	}
	o.shared.mu.Lock()
	close(o.closed) // under mu: no Borrow gives the loop anything after that
	o.shared.mu.Unlock()
	before := o.led.account()
	deadline, _ := ctx.Deadline()
	o.drain(deadline, true)
	if o.inline {
		go o.loop()
	}
	o.await(ctx, deadline)
	o.led.close() // if the spool was too slow, something is left
	o.giveUp()
	o.dead.wait(ctx)
	o.ending = o.driver.end(ctx, is(o.done))
	o.brk.close()
	a := o.led.account()
	o.report = batch.Report{Account: a, Unknown: o.led.unknownNow()}
	if n := a.Dropped[batch.Shutdown] - before.Dropped[batch.Shutdown]; n > 0 {
		o.closeErr = fmt.Errorf("deliver: close: %s not delivered: %w", plural.Records(n), whyOver(ctx))
	}
	o.closeErr = errors.Join(o.closeErr, o.ending.err())
	o.events.run.WaitBriefly(context.WithoutCancel(ctx))
	close(o.ended)
	return o.report, o.closeErr
}

// whyOver returns why the time of Close was over.
func whyOver(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return context.DeadlineExceeded
}

// await waits until the loop has ended. A little before the deadline it has the rest
// dropped, so that there is time to account for it.
func (o *outlet) await(ctx context.Context, deadline time.Time) {
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
	o.end()
	if o.inline && !is(o.helm) { // whoever brought the last batch hangs in Borrow, and will account for it
		return
	}
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-o.done:
		return
	case <-grace.C:
	}
	o.post(func(time.Time) { o.abandon() })
	grace.Reset(closeGrace)
	select {
	case <-o.done:
	case <-grace.C: // the spool hangs
	}
}

// abandon ends the loop although a session has not closed: what it may read stays as
// it is until it has.
func (o *outlet) abandon() {
	tell := o.m.abandon()
	if l := o.life; l != nil {
		if tell {
			l.fence(errNoTime)
		}
		l.whenClosed(o.m.sess.closed)
	}
}
