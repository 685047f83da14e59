package deliver

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/contain"
)

// A destination that answers within Send, such as a file, is not worth a goroutine: to
// hand each batch to another one and wait would cost half a write. Until Shutdown such
// an outlet has none. Whoever brings a batch takes the wheel, makes the decisions of the
// loop and the calls of the session, and is back when the batch is settled.
//
// A batch stays its producer's until then: the outlet accepts a record when it settles
// it, and what is open when the time is over goes back. So nothing is in question while
// the producer hangs in Send, and Close does not wait for it.

// atWheel makes sure that nobody else is the loop. The caller leaves the wheel.
func (o *Outlet) atWheel(ctx context.Context) error {
	select {
	case o.wheel <- struct{}{}:
		return nil
	default:
	}
	select {
	case o.wheel <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (o *Outlet) leaveWheel() { <-o.wheel }

// deliver is Borrow for a destination that answers within Send.
func (o *Outlet) deliver(ctx context.Context, l loan, b *batch.Batch) error {
	if err := o.atWheel(ctx); err != nil {
		return err
	}
	o.until = ctx
	returned := false
	defer func() {
		if !returned { // the driver called runtime.Goexit; l comes again
			o.life.failed(&panicError{errGoexit})
		}
		o.leaveWheel()
	}()
	if is(o.closed) {
		returned = true
		return errClosed
	}
	h := o.inHand(l)
	if h == nil {
		h = &holder{custody: producers, loan: l, left: countable(b)}
		if o.deliverCalmly(h, b) {
			returned = true
			return nil
		}
	}
	o.drive(ctx, h)
	returned = true
	return nil
}

// inHand returns the holder of l, if the goroutine that brought it has ended inside Send.
func (o *Outlet) inHand(l loan) *holder {
	for _, e := range slices.Concat(o.m.ring, o.m.aside) {
		if e.h.loan == l {
			return e.h
		}
	}
	return nil
}

// deliverCalmly gives b to the session, if there is nothing to decide. It reports true if
// that took all of it. Otherwise the machine has b, as if it had decided that.
func (o *Outlet) deliverCalmly(h *holder, b *batch.Batch) bool {
	o.collect()
	if !o.m.calm() {
		o.m.add(time.Now(), h, b)
		return false
	}
	l := o.life
	l.sending = nil
	err := l.contain(func() error { return l.sess.Send(b) })
	if err == nil && l.saidOnly(b) {
		o.m.pace.attempts++
		o.m.sess.answered = true
		o.m.set.retry.Budget.success()
		o.led.deliver(h)
		o.publish()
		h.loan.Settle(0)
		h.loan.Return()
		return true
	}
	o.m.add(time.Now(), h, b)
	e := o.m.ring[len(o.m.ring)-1]
	o.m.give(e)
	l.rename(b, e)
	l.sent(e, err)
	return false
}

// calm reports whether all that is to be done with one more batch is to send it.
func (m *machine) calm() bool {
	return m.stage == running && m.sess.state == live && m.sess.under == 0 && !m.sess.regroup &&
		len(m.ring) == 0 && len(m.aside) == 0 && len(m.held) == 0 && !m.search.on && m.trials.cur == nil &&
		m.size.bound == 0 && m.pace.failures == 0 && m.told == told{} && m.brk.calm() && !m.set.buried()
}

// drive is the loop until nothing is left of h, or ctx has ended: then what is open of it
// is its producer's again.
func (o *Outlet) drive(ctx context.Context, h *holder) {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer o.publish()
	for {
		o.collect()
		if h.settled && h.pins == 0 {
			return
		}
		if ctx.Err() != nil {
			o.endSession()
			o.m.takeOut(h)
			return
		}
		a := o.m.next(time.Now())
		if a.do != doWait {
			o.do(a, timer)
			continue
		}
		o.publish()
		o.rest(ctx, a.until, timer)
	}
}

// rest is sleep until ctx ends.
func (o *Outlet) rest(ctx context.Context, until time.Time, timer *time.Timer) {
	if !until.IsZero() {
		timer.Reset(time.Until(until))
		defer timer.Stop()
	}
	select {
	case <-o.wake:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// endSession closes a session that takes no more: nothing reads a batch after that.
func (o *Outlet) endSession() {
	if s := o.m.sess.state; s == lost || s == leaving {
		o.m.sess.state = ending
		o.do(action{do: doClose}, nil)
		o.collect()
	}
}

// takeOut gives what is open of h back to its producer.
func (m *machine) takeOut(h *holder) {
	var open []*entry
	for _, e := range slices.Concat(m.ring, m.aside) {
		if e.h == h {
			open = append(open, e)
			n := countable(e.b)
			h.back += n
			if e.unknown {
				m.led.loseUnknown(n)
			}
		}
	}
	for _, e := range open {
		m.remove(e)
	}
}

// ---- the session ----------------------------------------------------------

// hand is a Send whose answer comes within it.
func (l *life) hand(e *entry) {
	if !l.begin(e) {
		l.tell(report{kind: reportUnsent, e: e})
		return
	}
	l.sending = e
	l.sent(e, l.contain(l.send))
}

// sent notes the end of the Send of e.
func (l *life) sent(e *entry, err error) {
	l.mu.Lock()
	silent := !l.pass.over && !slices.ContainsFunc(l.queue, func(r report) bool { return r.kind == reportAnswer && r.b == e.out })
	l.mu.Unlock()
	l.sending = e
	if err == nil && silent {
		err = &panicError{errNoAnswer} // the outlet would wait for ever
	}
	if err != nil {
		l.failed(err)
	}
}

var errNoAnswer = errors.New("the destination promised to answer within Send, and did not")

// saidOnly reports whether the session has said that all of b is settled, and nothing
// else. Then that is heard.
func (l *life) saidOnly(b *batch.Batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) != 1 {
		return false
	}
	r := &l.queue[0]
	if r.kind != reportAnswer || r.b != b || !r.o.Open.Empty() || !r.o.Refused.Empty() {
		return false
	}
	*r = report{}
	l.queue = l.queue[:0]
	return true
}

// rename makes what the session has said of b an answer to e.
func (l *life) rename(b *batch.Batch, e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.queue {
		if l.queue[i].b == b {
			l.queue[i].b = e.out
		}
	}
}

// closeNow has the session close.
func (l *life) closeNow() {
	l.call = callClose
	l.step()
}

// ---- others who are the loop for a moment ---------------------------------

// sendInline is Send for a destination that answers within Send.
func (o *Outlet) sendInline(ctx context.Context, b *batch.Batch) error {
	p := new(parcel)
	p.mem.set(b)
	if err := o.deliver(context.WithoutCancel(ctx), p, &p.mem.b); err != nil {
		return err
	}
	b.Tally.Taken = countable(b) - p.left
	if p.left > 0 {
		return context.Cause(ctx)
	}
	return nil
}

// A parcel is a loan of a copy.
type parcel struct {
	mem  copied
	left uint64
}

func (p *parcel) Keeps() bool             { return false }
func (p *parcel) Pins() (slabs, most int) { return 0, 1 }
func (p *parcel) Settle(left uint64)      { p.left = left }
func (p *parcel) Return()                 {}

// flushInline has the destination pass on what it buffers and, if stable is set, put it
// on stable storage.
func (o *Outlet) flushInline(ctx context.Context, stable bool) error {
	if err := o.atWheel(ctx); err != nil {
		return err
	}
	defer o.leaveWheel()
	var err error
	gone := contain.Call(func() {
		if f, ok := o.dest.(batch.Flusher); ok {
			err = f.Flush(ctx)
		}
		if s, ok := o.dest.(batch.Syncer); ok && err == nil && stable {
			err = s.Sync()
		}
	})
	return errors.Join(err, gone)
}
