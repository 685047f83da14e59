package deliver

import (
	"context"
	"errors"

	"github.com/forebay-log/forebay/batch"
)

// An Engine is the delivery of one destination: a [batch.Sink] around its Sink
// that retries, waits out an outage, hands records to an error handler or a
// spill, and buries what is refused. What happens in an outage, in this order:
//
//  1. [Retry]: the batch is sent again with full jitter, Retry-After as a floor,
//     a shared budget, and a limit by age.
//  2. The [Breaker] opens. From now on the destination is only probed.
//  3. Once more than PendingLimit records wait, the handler is offered them
//     ([Fallback]). What it takes is handled.
//  4. What is left goes into the spill ([Keeper]), and so does everything that
//     comes, until the destination is back and has got all of it, in order.
//  5. Without a spill, or when it fails, Send waits.
//
// Refused records (step aside: [Poison]) never hold up the others.
//
// If the Sink is a [batch.AsyncSink], batches are pipelined through a window; the
// Engine then takes them into its custody as it does with the spill.
//
// Send returns nil once all records are settled or in custody, or, when ctx ends
// before, an error that names those that are not. It may be called from several
// goroutines at once; they take turns, in the order of their calls. All other
// methods may be called beside it.
//
// Goroutines: one that delivers what is in custody, started on demand and ended
// when there is nothing left or by Close; one per call of a handler; one for
// events while there are any.
type Engine struct {
	keeper   *Keeper
	retry    *retrier
	breaker  *Breaker
	fallback *Fallback // nil: no handler
	poison   *Poison
	name     string
}

// New returns the Engine of a destination. o may be nil. If the spill holds
// batches of an earlier process, their delivery begins at once. Options that are
// out of range are named in the error, all of them.
func New(sink batch.Sink, o *Options) (*Engine, error) {
	if sink == nil {
		return nil, errNilSink
	}
	if o == nil {
		o = &Options{}
	}
	ev := newEvents(o.Name, o.OnError)
	c := newClosing()
	l := newLane(sink, ev, c, o.Spill != nil || o.Handler != nil)
	e := &Engine{name: ev.name}
	var errs [5]error
	if l.detached = o.SpillWhenFull; l.detached && o.Spill == nil {
		errs[4] = errNoSpill
	}
	e.retry, errs[0] = newRetrier(o.Retry, ev, c)
	e.breaker, errs[1] = NewBreaker(l, o.Breaker)
	e.poison, errs[2] = newPoison(l, PoisonOptions{DeadLetter: o.DeadLetter, HandlerTimeout: o.HandlerTimeout}, ev)
	if o.Handler != nil {
		e.fallback, errs[3] = newFallback(l, o.Handler, FallbackOptions{
			PendingLimit: o.PendingLimit, HandlerTimeout: o.HandlerTimeout, When: isOpen,
		}, ev)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	e.retry.elsewhere = l.elsewhere
	// Poison is within the breaker, so that a probe of which records are refused
	// is settled before anything behind it is sent.
	e.breaker.sink = e.poison
	top := batch.Sink(e.breaker)
	if e.fallback != nil {
		e.fallback.sink = e.breaker
		e.fallback.bury = e.poison.bury
		e.fallback.late = func() bool { return is(c.late) }
		if o.Spill != nil {
			e.fallback.g.scarce = c.scarce
		}
		top = e.fallback
	}
	k := newKeeper(top, l, o.Spill, isOpen, e.retry, ev, c)
	k.well = e.breaker.c.clear
	k.down = e.breaker.c.isOpen
	k.bound = e.poison.bound
	k.went = e.breaker.c.flowed
	e.keeper = k
	if e.fallback != nil {
		e.fallback.o.Pending = e.waiting(o.Pending)
	}
	k.begin()
	return e, nil
}

func isOpen(err error) bool { return errors.Is(err, ErrOpen) }

// waiting returns how many records wait beside those that are being offered.
func (e *Engine) waiting(outside func() uint64) func() uint64 {
	return func() (n uint64) {
		if outside != nil {
			n = outside()
		}
		return n + e.keeper.behind()
	}
}

// Send sends b, or takes it: see [Engine].
func (e *Engine) Send(ctx context.Context, b *batch.Batch) error {
	if err := e.keeper.enter(ctx); err != nil {
		return err
	}
	defer e.keeper.leave()
	return e.retry.send(ctx, direct{e.keeper}, b)
}

// direct is a Keeper whose turn is held already.
type direct struct{ k *Keeper }

func (d direct) Send(ctx context.Context, b *batch.Batch) error { return d.k.send(ctx, b) }
