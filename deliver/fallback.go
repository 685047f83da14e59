package deliver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// FallbackOptions configures a [Fallback]. The zero value is useful: each field
// states its default and unit.
type FallbackOptions struct {
	// Name stands in events. Default "deliver".
	Name string
	// PendingLimit is how many records may wait before the handler is asked: it
	// is, once strictly more than PendingLimit do. Default 0: at once.
	PendingLimit int
	// Pending returns how many records wait elsewhere, such as in the slabs in
	// front of this Sink; they count towards PendingLimit. It is called from
	// Send and must not wait for it. Default nil: none.
	Pending func() uint64
	// HandlerTimeout is how long the handler may take. Default 10 s.
	HandlerTimeout time.Duration
	// When says for which errors the handler is asked, apart from those that
	// refuse records (Reject, TooLarge), for which it never is. Default nil: for
	// all.
	When func(err error) bool
	// OnError is told of the first error of the handler of a row ("handler") and
	// of the end of the row ("handler-recovered"). It runs on a goroutine of its
	// own behind a bounded queue. Default nil: a line on standard error.
	OnError func(batch.Event)
}

// A Fallback is a [batch.Sink] that offers an [ErrorHandler] what another Sink
// could not take.
//
//	Send ─▶ sink ──nil──▶ delivered
//	          │
//	          │ error, and more than PendingLimit records wait
//	          ▼
//	        handler ──nil──▶ handled (Tally.Handled)
//	          │
//	          │ error
//	          ▼
//	        the sink's error is returned: the records stay pending
//
// Once the limit is passed, all records that wait at that moment are offered,
// batch by batch, before the limit counts again: a handler that is asked at the
// eleventh record gets all eleven.
//
// Send may be called from several goroutines at once if the Sink within allows
// that; calls of the handler come one at a time.
type Fallback struct {
	inner
	o      FallbackOptions
	g      *guarded
	events *events

	handled atomic.Uint64

	due     atomic.Uint64 // records to offer before the limit counts again
	mu      sync.Mutex    // leaf; guards failing
	failing episode
	// bury drops records that the handler will never take and returns how many count.
	bury func(context.Context, *batch.Batch, error) uint64
	// late makes the limit and When not count: the producer is closing and
	// nothing will be sent to the sink any more.
	late func() bool
}

// NewFallback returns a Fallback around sink. o may be nil.
func NewFallback(sink batch.Sink, h ErrorHandler, o *FallbackOptions) (*Fallback, error) {
	if o == nil {
		o = &FallbackOptions{}
	}
	return newFallback(sink, h, *o, newEvents(o.Name, o.OnError))
}

func newFallback(sink batch.Sink, h ErrorHandler, o FallbackOptions, ev *events) (*Fallback, error) {
	setDefault(&o.HandlerTimeout, DefaultHandlerTimeout)
	switch {
	case sink == nil:
		return nil, errNilSink
	case h == nil:
		return nil, errors.New("deliver: fallback: handler is nil")
	case o.PendingLimit < 0:
		return nil, fmt.Errorf("deliver: fallback: PendingLimit is %d: want 0 or more records", o.PendingLimit)
	case o.HandlerTimeout < 0:
		return nil, fmt.Errorf("deliver: fallback: HandlerTimeout is %s: want more than 0", o.HandlerTimeout)
	}
	return &Fallback{
		inner: inner{sink}, o: o, g: newGuarded(h, o.HandlerTimeout), events: ev,
		late: func() bool { return false },
		bury: func(_ context.Context, b *batch.Batch, _ error) uint64 { return countable(b) },
	}, nil
}

// Send sends b and offers the handler what the sink did not take, see
// [Fallback].
func (f *Fallback) Send(ctx context.Context, b *batch.Batch) error {
	err := f.sink.Send(ctx, b)
	if err != nil {
		return f.offer(ctx, b, err)
	}
	if f.due.Load() != 0 {
		f.due.Store(0) // the sink takes records again: what waits is its own
	}
	return nil
}

// offer offers what a Send of b that returned err left.
func (f *Fallback) offer(ctx context.Context, b *batch.Batch, err error) error {
	late := f.late()
	if isRefusal(err) || ctx.Err() != nil || !late && f.o.When != nil && !f.o.When(err) {
		return err
	}
	var p progress
	p.begin(b)
	p.settle(err)
	waiting := countable(p.cur)
	if p.done() || !f.reached(waiting, late) {
		return p.result(err)
	}
	o := f.g.call(ctx, whole(err), p.cur)
	f.note(o.err, waiting)
	f.account(ctx, &p, o)
	return p.result(err)
}

// whole returns err without the positions it names: they mean nothing to a
// handler, which is given the rest only, and handlers that return the error they
// were given must not seem to name records.
func whole(err error) error {
	e := restate(err)
	if e.Kind != batch.KindPrefix && e.Kind != batch.KindPartial {
		return err
	}
	e.Kind, e.Acked, e.Records = batch.KindRetry, 0, nil
	return &e
}

// reached reports whether the handler is to be asked now that n records wait
// here.
func (f *Fallback) reached(n uint64, late bool) bool {
	if f.due.Load() > 0 || late {
		return true
	}
	if f.o.Pending != nil {
		n += f.o.Pending()
	}
	if n <= uint64(f.o.PendingLimit) {
		return false
	}
	f.due.Store(n)
	return true
}

// account settles what the handler took of the open records of p, and what it will
// never take.
func (f *Fallback) account(ctx context.Context, p *progress, o outcome) {
	rest := left(p.cur.Len(), o.err)
	var refused []int
	if o.err != nil {
		switch e := batch.Inspect(o.err); {
		case e.Kind == batch.KindPrefix, e.Kind == batch.KindPartial:
		case refusesSome(&e, p.cur.Len()):
			refused, rest = rest, nil
		default:
			return
		}
	}
	taken := countable(p.cur) - countSome(p.cur, rest) - countSome(p.cur, refused)
	dropped := o.dropped.Total()
	if dropped > taken {
		o.dropped, dropped = batch.Drops{}, 0
	}
	p.tally.Dropped.Add(o.dropped)
	p.tally.Handled += taken - dropped
	f.handled.Add(taken - dropped)
	if len(refused) > 0 {
		n := f.bury(ctx, p.cur.Select(nil, refused), o.err)
		p.tally.Dropped[batch.Poison] += n
		taken += n
	}
	p.keep(rest)
	due := f.due.Load()
	f.due.Store(due - min(due, taken))
}

// refusesSome reports whether e refuses records among n by name, and settles the
// others.
func refusesSome(e *batch.SendError, n int) bool {
	return e.Kind == batch.KindReject && e.Records != nil && batch.ValidIndexes(e.Records, n)
}

// note reports the first error of the handler of a row, and the end of the row.
func (f *Fallback) note(err error, n uint64) {
	f.mu.Lock()
	var first, last bool
	if err != nil {
		first = f.failing.begin()
	} else {
		last = f.failing.end()
	}
	f.mu.Unlock()
	switch {
	case first:
		f.events.post("handler", err, n)
	case last:
		f.events.post("handler-recovered", nil, 0)
	}
}

// Handled returns how many records the handler took.
func (f *Fallback) Handled() uint64 { return f.handled.Load() }
