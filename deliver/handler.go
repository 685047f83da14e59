package deliver

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/contain"
	"github.com/forebay-log/forebay/internal/layout"
)

// An ErrorHandler accepts records that a destination did not accept.
//
// HandleError receives the reason, a [*PendingError], and the records. Its result is an outcome
// like that of a Send:
//
//   - Settled records count as handled and are not sent again. With the zero Outcome, all
//     records are settled.
//   - Open records stay pending. They are offered again after the retry delay, and not before
//     Outcome.After. During Close, this delay is at most Retry.Min. Outcome.Advice is ignored. A
//     handler that accepted nothing because of err returns [batch.FailedOutcome](err).
//   - Refused records will never be accepted by the handler. They are dropped with
//     [batch.Poison] and become dead letters, like records that the destination refuses.
//     Otherwise all later records would wait for them while the destination is down.
//
// If the Outcome is invalid ([batch.Outcome.Check]), no record was accepted.
//
// The handler is called while the circuit is open. It is also called when the memory in front of
// the destination is about to drop records while the destination accepts none: either few slabs are
// free and writes do not wait for memory, or a write has waited for half of its time limit. If
// writes wait without a limit (slab.Block), the handler is called when a write has waited for 125
// ms while the destination is failing. These calls continue until the destination accepts records
// again.
//
// Waiting records are offered oldest first. Records in flight are not offered until their session
// has ended without an answer, because the destination may still accept them. While a destination
// hangs, the handler therefore gets the records in flight after later ones.
//
// b is a copy made for this call; the handler may read it until it returns.
//
// HandleError runs on a separate goroutine, one call at a time. If it panics, calls runtime.Goexit,
// or does not return within HandlerTimeout, it has accepted nothing. If there is a spool, a call
// that has not returned when [Output.Close] has used 85 % of its time has also accepted nothing. A
// call that timed out continues and keeps b; until it returns, every further offer fails without a
// call.
type ErrorHandler interface {
	HandleError(cause error, b *batch.Batch) batch.Outcome
}

// ErrorHandlerFunc makes a function an [ErrorHandler].
type ErrorHandlerFunc func(cause error, b *batch.Batch) batch.Outcome

// HandleError calls f.
func (f ErrorHandlerFunc) HandleError(cause error, b *batch.Batch) batch.Outcome {
	return f(cause, b)
}

// contextHandler is an ErrorHandler of this package that can be cancelled.
type contextHandler func(ctx context.Context, cause error, b *batch.Batch) batch.Outcome

// HandleError calls f without a way to cancel it.
func (f contextHandler) HandleError(cause error, b *batch.Batch) batch.Outcome {
	return f(context.Background(), cause, b)
}

// askHandler calls h. If the outcome of h is invalid, askHandler returns the outcome of a handler
// that accepted nothing.
func askHandler(ctx context.Context, h ErrorHandler, cause error, b *batch.Batch) (o batch.Outcome) {
	if c, ok := h.(contextHandler); ok {
		o = c(ctx, cause, b)
	} else {
		o = h.HandleError(cause, b)
	}
	if err := o.Check(b.Len()); err != nil {
		return acceptedNothing(err)
	}
	if o.Open.Len(b.Len()) == 0 { // a record set of the outcome begins after the last record of b
		o.Open = batch.Set{}
	}
	return o
}

// acceptedNothing is the outcome of a handler that accepted no record because of err. Unlike
// [batch.FailedOutcome], it ignores advice about retries in err, because err may come from a
// destination.
func acceptedNothing(err error) batch.Outcome { return batch.Outcome{Open: batch.All(), Why: err} }

// defaultHandlerTimeout is the default of Options.HandlerTimeout.
const defaultHandlerTimeout = 10 * time.Second

var (
	errHandlerTimeout = errors.New("handler did not return in time")
	errHandlerBusy    = errors.New("handler has not returned from an earlier call")
)

// guarded calls an ErrorHandler on a separate goroutine, with a time limit.
type guarded struct {
	h       ErrorHandler
	timeout time.Duration
	busy    ctxLock // held during a call, also after its time limit

	calls  atomic.Uint64
	errors atomic.Uint64
}

func newGuarded(h ErrorHandler, timeout time.Duration) *guarded {
	return &guarded{h: h, timeout: timeout, busy: newCtxLock()}
}

// copyOf returns a copy of b. Handlers and dead letters get copies, because their calls may outlive
// the lease. Parked records are copied, so that their slabs can be freed.
func copyOf(b *batch.Batch) *batch.Batch {
	data := make([]byte, 0, b.Bytes())
	slots := make([]layout.Slot, 0, b.Len())
	for i := range b.Runs {
		r := &b.Runs[i]
		slots = r.AppendSlots(slots, uint32(len(data)))
		data = append(data, r.Data()...)
	}
	c := &batch.Batch{Codec: b.Codec, Origin: b.Origin}
	c.Add(layout.NewRun(data, slots))
	return c
}

// call offers b to the handler and passes it the cause. From then on the handler owns the memory of
// b. Calls do not overlap: if an earlier call has not returned, call returns an error without
// calling the handler.
func (g *guarded) call(ctx context.Context, cause error, b *batch.Batch) (o batch.Outcome) {
	defer func() {
		if o.Err() != nil {
			g.errors.Add(1)
		}
	}()
	select {
	case g.busy <- struct{}{}:
	default:
		return acceptedNothing(errHandlerBusy)
	}
	g.calls.Add(1)
	ctx, cancel := context.WithTimeoutCause(ctx, g.timeout, errHandlerTimeout)
	defer cancel()
	ch := make(chan batch.Outcome, 1)
	err := within(ctx, func() error {
		defer g.busy.release()
		return contain.Call(func() { ch <- askHandler(ctx, g.h, cause, b) })
	})
	select {
	case o = <-ch: // perhaps just before the time limit
		return o
	default:
	}
	if ctx.Err() != nil {
		return acceptedNothing(errHandlerTimeout)
	}
	return acceptedNothing(fmt.Errorf("handler: %w", err))
}
