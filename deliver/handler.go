package deliver

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// An ErrorHandler takes records that a destination did not take.
//
// HandleError is given the reason and the records. What it returns is part of
// delivery:
//
//   - nil: the records count as handled and are not sent again.
//   - [batch.Prefix] or [batch.Partial]: so do some of them; the named rest
//     stays.
//   - [batch.Reject] with records: so do all but those, which the handler will never
//     take. They are dropped with [batch.Poison], as those are that the destination
//     refuses: nothing else would ever settle them while it is down, and everything
//     behind them would wait.
//   - any other error: all of them stay pending, and are offered again after the
//     retry delay.
//
// b is a copy made for this call; the handler may read it until it returns. It
// may set b.Tally.Dropped for records that it took but had to drop.
//
// HandleError runs on a goroutine of its own, one call at a time. If it panics,
// calls runtime.Goexit, or does not return within HandlerTimeout, that counts as
// an error, as it does while Close waits for it and a spill has to take the records in
// the rest of its time. A call that timed out goes on, with memory that nobody else
// uses; until it returns, every further offer fails without a call.
type ErrorHandler interface {
	HandleError(err error, b *batch.Batch) error
}

// ErrorHandlerFunc makes a function an [ErrorHandler].
type ErrorHandlerFunc func(err error, b *batch.Batch) error

// HandleError calls f.
func (f ErrorHandlerFunc) HandleError(err error, b *batch.Batch) error { return f(err, b) }

// contextHandler is an ErrorHandler of this package that can be told to stop.
type contextHandler interface {
	handle(ctx context.Context, err error, b *batch.Batch) error
}

// defaultHandlerTimeout is how long a handler may take.
const defaultHandlerTimeout = 10 * time.Second

var (
	errHandlerTimeout = errors.New("handler did not return in time")
	errHandlerBusy    = errors.New("handler has not returned from an earlier call")
	errHandlerGoexit  = errors.New("handler called runtime.Goexit")
)

// guarded calls an ErrorHandler apart from delivery.
type guarded struct {
	h       ErrorHandler
	timeout time.Duration
	scarce  <-chan struct{} // closed when a call has no more than handlerGrace; nil: never

	token chan struct{} // held during a call; capacity 1
	late  chan outcome  // of a call that timed out and has not returned; nil: none

	calls  atomic.Uint64
	errors atomic.Uint64
}

// outcome is what a call of a handler came to.
type outcome struct {
	err     error
	dropped batch.Drops
}

// copied is the memory of a batch that is copied for a handler.
type copied struct {
	b     batch.Batch
	data  []byte
	slots []batch.Slot
}

// keepCopy is the ceiling, in bytes, of a buffer kept for reuse.
const keepCopy = 4 << 20

// set makes c a copy of b.
func (c *copied) set(b *batch.Batch) {
	if cap(c.data) > keepCopy && b.Bytes() <= keepCopy {
		c.data, c.slots = nil, nil
	}
	c.data, c.slots = c.data[:0], c.slots[:0]
	for i := range b.Runs {
		r := &b.Runs[i]
		c.slots = r.AppendSlots(c.slots, uint32(len(c.data)))
		c.data = append(c.data, r.Data()...)
	}
	c.b.Reset()
	c.b.Codec, c.b.Origin = b.Codec, b.Origin
	c.b.Add(batch.NewRun(c.data, c.slots))
}

func newGuarded(h ErrorHandler, timeout time.Duration) *guarded {
	return &guarded{h: h, timeout: timeout, token: make(chan struct{}, 1)}
}

// call offers b to the handler because of cause. It returns the handler's error, and
// what it says it dropped. The memory of b is the handler's from now on.
func (g *guarded) call(ctx context.Context, cause error, b *batch.Batch) outcome {
	select {
	case g.token <- struct{}{}:
	case <-ctx.Done():
		return outcome{err: context.Cause(ctx)}
	}
	defer func() { <-g.token }()
	o := g.callLocked(ctx, cause, b)
	if o.err != nil {
		g.errors.Add(1)
	}
	return o
}

// callLocked is call with the token held.
func (g *guarded) callLocked(ctx context.Context, cause error, b *batch.Batch) outcome {
	if g.late != nil {
		select {
		case <-g.late: // too late: its records were offered again, or sent
			g.late = nil
		default:
			return outcome{err: errHandlerBusy}
		}
	}
	g.calls.Add(1)
	ctx, cancel := context.WithTimeoutCause(ctx, g.timeout, errHandlerTimeout)
	defer cancel()
	ch := make(chan outcome, 1)
	go runHandler(ctx, g.h, cause, b, ch)
	scarce := false
	select {
	case o := <-ch:
		return o
	case <-ctx.Done():
	case <-g.scarce:
		scarce = true
		t := time.NewTimer(handlerGrace)
		defer t.Stop()
		select {
		case o := <-ch:
			return o
		case <-ctx.Done():
		case <-t.C:
		}
	}
	select {
	case o := <-ch: // just in time
		return o
	default:
		g.late = ch
		if scarce {
			return outcome{err: errHandlerTimeout}
		}
		return outcome{err: context.Cause(ctx)}
	}
}

// runHandler calls h and answers on ch, whatever h does.
func runHandler(ctx context.Context, h ErrorHandler, cause error, b *batch.Batch, ch chan<- outcome) {
	o := outcome{err: errHandlerGoexit}
	defer func() {
		if r := recover(); r != nil {
			o.err = fmt.Errorf("handler panicked: %v\n%s", r, debug.Stack())
		}
		ch <- o
	}()
	if c, ok := h.(contextHandler); ok {
		o.err = c.handle(ctx, cause, b)
	} else {
		o.err = h.HandleError(cause, b)
	}
	o.dropped = b.Tally.Dropped
}
