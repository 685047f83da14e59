// Package closetime divides the time of a Close: first the destination, then error
// handlers, then the disk.
//
//	begin ──────────── 70 % ─────── 85 % ────────── deadline ──── + Disk at most
//	  destination       │  handlers   │   disk          │  only if there was no time
package closetime

import (
	"context"
	"errors"
	"time"
)

const (
	// Default is the limit for a Close whose context has no deadline.
	Default = 5 * time.Second
	// Destination and Handlers are fractions of the time until the deadline. The destination is
	// abandoned after the first fraction, and the error handlers after the second.
	Destination, Handlers = 0.70, 0.85
	// Disk is the time for writing the remaining records to disk, if a Close begins after its
	// deadline or its context is canceled.
	Disk = 500 * time.Millisecond
)

// Reserve returns how much earlier than a Close its parts, such as the Close of each output, must
// end. The Close needs this time to count their results. left is the time that remains for the
// whole Close.
func Reserve(left time.Duration) time.Duration {
	return max(0, min(left/10, 100*time.Millisecond))
}

// Bounded returns ctx or, if ctx has no deadline, a context with a deadline after d. If d is zero,
// it is [Default].
func Bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if ctx == nil {
		ctx = context.Background()
	}
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	if d == 0 {
		d = Default
	}
	return context.WithTimeout(ctx, d)
}

// Sooner returns a context for the parts of a Close with the context ctx. It ends before ctx, by
// the time that [Reserve] returns.
func Sooner(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline.Add(-Reserve(time.Until(deadline))))
}

// OutOfTime reports whether err is the error of a context that has ended.
func OutOfTime(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Late returns the error for an operation that is abandoned because ctx has ended, or is about to
// end. The error wraps the cause of ctx. Its text is the text of the cause or, for a deadline, "not
// finished in time", so that messages need not add this.
func Late(ctx context.Context) error {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(cause, context.DeadlineExceeded) {
		return errLate
	}
	return cause
}

var errLate error = lateError{}

// lateError is the type of errLate.
type lateError struct{}

func (lateError) Error() string { return "not finished in time" }
func (lateError) Unwrap() error { return context.DeadlineExceeded }

// Hang is the additional time for a part of a Close if it must abandon operations that hang.
const Hang = 200 * time.Millisecond

// Later returns a context that ends d after ctx ends and has the same cause.
func Later(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(d, func() { cancel(context.Cause(ctx)) })
	})
	return longer, func() { stop(); cancel(nil) }
}

// WithDisk returns a context for a Close that may write records to disk. Its deadline is the
// deadline of ctx, but at least the duration disk from now. If ctx is canceled before its deadline,
// WithDisk calls hurry, and the context ends after the duration disk. Callers pass about [Disk]:
// slightly less for a part of a Close, and slightly more for the whole Close.
func WithDisk(ctx context.Context, disk time.Duration, hurry func()) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stopTimer := func() {}
	if deadline, ok := ctx.Deadline(); ok {
		if soon := time.Now().Add(disk); deadline.Before(soon) {
			deadline = soon
		}
		var withDeadline context.Context
		withDeadline, stopTimer = context.WithDeadline(longer, deadline)
		longer = withDeadline
	}
	stop := context.AfterFunc(ctx, func() {
		hurry()
		time.AfterFunc(disk, func() { cancel(context.Cause(ctx)) })
	})
	return longer, func() { stop(); stopTimer(); cancel(nil) }
}
