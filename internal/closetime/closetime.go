// Package closetime says how long a Close may take and who gets which share of that
// time: first the destination, then error handlers, then the disk.
//
//	begin ──────────── 70 % ─────── 85 % ────────── deadline ──── + Disk at most
//	  destination       │  handlers   │   disk          │  only where there was no time
package closetime

import (
	"context"
	"errors"
	"time"
)

const (
	// Default bounds a Close whose context has no deadline.
	Default = 5 * time.Second
	// Destination and Handlers are the shares of the time to the deadline after which
	// the destination and error handlers are no longer waited for.
	Destination, Handlers = 0.70, 0.85
	// Disk is how long what is left may be put on disk where a Close had no time to
	// begin with, or its context was cancelled.
	Disk = 500 * time.Millisecond
)

// Reserve returns how much earlier than the end of a Close the parts of it are told
// to give up, so that their answers still count.
func Reserve(left time.Duration) time.Duration {
	return max(0, min(left/10, 100*time.Millisecond))
}

// Bounded returns ctx or, if it has no deadline, a context that ends after d. 0 stands
// for [Default].
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

// Sooner returns ctx with its deadline brought forward by [Reserve], for the parts of
// a Close that has until ctx's own.
func Sooner(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline.Add(-Reserve(time.Until(deadline))))
}

// OutOfTime reports whether err says no more than that a context has ended.
func OutOfTime(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Hang is how long after its time a part of a Close may take that leaves alone what hangs.
const Hang = 200 * time.Millisecond

// Later returns a context that ends d after ctx does, with its cause.
func Later(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(d, func() { cancel(context.Cause(ctx)) })
	})
	return longer, func() { stop(); cancel(nil) }
}

// WithDisk returns a context for a Close that may leave records on disk. It ends with
// ctx's deadline, but gives the disk at least some time from now. If ctx is cancelled
// before, hurry is called and the rest of the time is disk. That is a little less than
// [Disk] for a part of a Close and a little more for the whole.
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
