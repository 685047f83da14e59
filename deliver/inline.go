package deliver

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/poison"
)

// A destination that answers within Send, such as a file, is not worth a goroutine: to
// hand each batch to another one and wait would cost half a write. Until Shutdown such
// an outlet has none. Whoever brings a batch takes the wheel, makes the decisions of the
// loop and the calls of the session, and is back when the batch is settled.
//
// A batch stays its producer's until then: the outlet accepts a record when it settles
// it, and what is open when the time is over goes back. So nothing is in question while
// the producer hangs in Borrow, and Close does not wait for it.

// deliver is Borrow for a destination that answers within Send.
func (o *outlet) deliver(ctx context.Context, l loan, b *batch.Batch) error {
	if err := o.driver.acquire(ctx); err != nil {
		return err
	}
	o.until = ctx
	returned := false
	defer func() {
		if !returned { // the driver called runtime.Goexit; l comes again, unless it is a marker
			o.life.failed(&panicError{errGoexit})
			if o.inHand(l) == nil {
				o.add(l, b)
			}
		}
		o.driver.release()
	}()
	if is(o.stopping.closed) {
		returned = true
		return errClosed
	}
	h := o.inHand(l)
	if h == nil {
		h = o.begin(l, b)
	}
	if h != nil {
		o.drive(ctx, h)
	}
	returned = true
	return nil
}

// add gives l to the machine.
func (o *outlet) add(l loan, b *batch.Batch) *holder {
	h := &holder{custody: producers, loan: l}
	o.m.add(time.Now(), h, b)
	return h
}

// inHand returns the holder of l, if the goroutine that brought it has ended inside Send.
func (o *outlet) inHand(l loan) *holder {
	for _, e := range o.m.queue.ring {
		if e.h.loan == l {
			return e.h
		}
	}
	return nil
}

// begin gives b to the session, if there is nothing to decide. It returns nil if that took
// all of it. Otherwise the machine has b, as if it had decided to send it.
func (o *outlet) begin(l loan, b *batch.Batch) *holder {
	o.collect()
	if !o.m.calm() {
		return o.add(l, b)
	}
	lf, size := o.life, b.Bytes()
	lf.sending, lf.direct = nil, b
	err := o.driver.contain(lf.sendDirect)
	if err == nil && lf.saidOnly(b) {
		o.m.sess.attempts++
		o.m.sess.answered = true
		o.m.health.budget.success()
		o.led.deliver(l, intake{lentRecords(b), size})
		o.publish()
		l.Release()
		return nil
	}
	h := o.add(l, b)
	e := o.m.queue.ring[len(o.m.queue.ring)-1]
	o.m.sess.give(time.Now(), e, poison.Queued)
	lf.rename(b, e)
	lf.sent(e, err)
	return h
}

// lentRecords is countable for a batch of a producer: a gap marker comes alone.
func lentRecords(b *batch.Batch) uint64 {
	if n := b.Len(); n > 1 {
		return uint64(n)
	}
	return countable(b)
}

func (l *life) sendDirect() error { return l.sess.Send(l.direct) }

// calm reports whether all that is to be done with one more batch is to send it.
func (m *machine) calm() bool {
	return m.end.stage == running && m.sess.state == live && m.sess.under == 0 && !m.sess.regroup &&
		len(m.queue.ring) == 0 && !m.streams.any() && m.poison.Phase() == poison.Usual && m.health.calm() && !m.set.lettersFull()
}

// drive is the loop until nothing is left of h, or ctx has ended: then what is open of it
// is its producer's again.
func (o *outlet) drive(ctx context.Context, h *holder) {
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

// rest waits until something happens, it is time, or ctx ends. A zero until is no time.
func (o *outlet) rest(ctx context.Context, until time.Time, timer *time.Timer) {
	if !until.IsZero() {
		left := time.Until(until)
		if left <= 0 {
			return
		}
		timer.Reset(left)
		defer timer.Stop()
	}
	select {
	case <-o.wake:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// endSession closes a session that takes no more: nothing reads a batch after that.
func (o *outlet) endSession() {
	if o.m.sess.end() {
		o.do(action{do: doClose}, nil)
		o.collect()
	}
}

// takeOut gives what is open of h back to its producer.
func (m *machine) takeOut(h *holder) {
	var open []*entry
	for _, e := range m.queue.ring {
		if e.h == h {
			open = append(open, e)
			if e.unknown {
				m.led.loseUnknown(countable(e.b))
			}
		}
	}
	for _, e := range open {
		m.queue.remove(e)
	}
}

// ---- the session ----------------------------------------------------------

// hand is a Send whose answer comes within it.
func (l *life) hand(e *entry) {
	l.sending = e
	if err := l.make(l.send); err == errUnsent {
		l.post(report{kind: reportUnsent, e: e})
	} else {
		l.sent(e, err)
	}
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

var errNoAnswer = errors.New("the destination declared that it answers within Send, but did not")

// saidOnly reports whether the session has said that all of b is settled, and nothing
// else. Then that is heard.
func (l *life) saidOnly(b *batch.Batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) != 1 {
		return false
	}
	r := &l.queue[0]
	if r.kind != reportAnswer || r.b != b || !r.o.Open.Empty() || !r.o.Refused.Empty() || r.o.Unnamed > 0 {
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
