package deliver

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/plural"
)

// A driver makes the calls of a [Destination], one at a time. A panic or runtime.Goexit of the
// destination ends in an error. Its methods may be called from any goroutine.
type driver struct {
	dest      Destination
	events    *callback.Reporter
	delivered func() uint64 // records, so far

	// calls is held during a call by the calling goroutine: the session, a Flush or Sync or, at an
	// inline outlet, the loop.
	calls turn

	panics  atomic.Uint64 // calls that panicked or called runtime.Goexit
	broken  atomic.Bool   // one was reported, and no batch was accepted since
	flushed atomic.Uint64 // of the records delivered, by the last Flush of the destination
}

func newDriver(dest Destination, ev *callback.Reporter, delivered func() uint64) *driver {
	return &driver{dest: dest, events: ev, delivered: delivered, calls: newTurn()}
}

// A turn is a lock for which a goroutine waits until a context ends. Waiters are served in order.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// acquire waits until no other goroutine has t. The caller must call release.
func (t turn) acquire(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	default:
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) release() { <-t }

// command calls f, which calls the destination, between two other calls. It does not wait beyond the end
// of ctx. If f hangs, it keeps the driver, which is then not called again; the goroutine is lost.
func (d *driver) command(ctx context.Context, f func() error) error {
	if err := d.calls.acquire(ctx); err != nil {
		return err
	}
	return within(ctx, func() error {
		defer d.calls.release()
		return d.contain(f)
	})
}

// within calls f, which does not panic, on a separate goroutine and waits for it, but not beyond the end
// of ctx. A call that hangs keeps its goroutine and what f refers to.
func within(ctx context.Context, f func() error) error {
	ch := make(chan error, 1)
	go func() {
		err := errGoexit
		defer func() { ch <- err }()
		err = f()
	}()
	select {
	case err := <-ch:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// contain calls f. A panic becomes a *panicError.
func (d *driver) contain(f func() error) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		e := errGoexit
		if r := recover(); r != nil {
			e = fmt.Errorf("destination panicked: %v", r)
			err = &panicError{e}
		}
		d.panics.Add(1)
		if !d.broken.Swap(true) {
			d.events.Post("panic", fmt.Errorf("%w\n%s", e, debug.Stack()), 0)
		}
	}()
	err = f()
	returned = true
	return err
}

// accepted notes that a batch was accepted: the next call that does not return is reported.
func (d *driver) accepted() {
	if d.broken.Load() {
		d.broken.Store(false)
	}
}

// panicError is the error that a panic or Goexit of a destination becomes.
type panicError struct{ err error }

func (p *panicError) Error() string { return p.err.Error() }
func (p *panicError) Unwrap() error { return p.err }

// flush calls the Flush of the destination, if it has one. Records delivered before the call are flushed
// if it succeeds.
func (d *driver) flush(ctx context.Context) error {
	f, ok := d.dest.(flusher)
	if !ok {
		return nil
	}
	return d.command(ctx, func() error {
		n := d.delivered()
		err := f.Flush(ctx)
		if err == nil {
			d.flushed.Store(n)
		}
		return err
	})
}

// sync calls the Sync of the destination, if it has one.
func (d *driver) sync(ctx context.Context) error {
	if s, ok := d.dest.(syncer); ok {
		return d.command(ctx, s.Sync)
	}
	return nil
}

// end ends the destination, after its last session. idle reports whether no call hangs. A call that does
// not return in time is abandoned, after closeGrace: a driver that obeys its context returns just then.
func (d *driver) end(ctx context.Context, idle bool) (e endErrors) {
	ch := make(chan endErrors, 1)
	go func() { ch <- d.endNow(ctx, idle) }()
	select {
	case e = <-ch:
	case <-ctx.Done():
		grace := time.NewTimer(closeGrace)
		defer grace.Stop()
		select {
		case e = <-ch:
		case <-grace.C:
			e.close = fmt.Errorf("deliver: close: the destination did not end in time: %w", context.Cause(ctx))
		}
	}
	if err := d.unflushed(e.flush); err != nil {
		e.flush = err
	}
	return e
}

// endNow calls Flush, Sync (if there is time) and Close of the destination, if it has them. While a
// call hangs it calls only Close, which may end that call.
func (d *driver) endNow(ctx context.Context, idle bool) (e endErrors) {
	call := func(f func() error) error {
		return within(context.Background(), func() error { return d.contain(f) })
	}
	if idle && d.calls.acquire(ctx) == nil {
		defer d.calls.release()
		n := d.delivered()
		if f, ok := d.dest.(flusher); ok {
			e.flush = call(func() error { return f.Flush(ctx) })
		}
		if e.flush == nil {
			d.flushed.Store(n)
		}
		if s, ok := d.dest.(syncer); ok && ctx.Err() == nil {
			e.sync = call(s.Sync)
		}
	}
	if c, ok := d.dest.(closer); ok {
		e.close = call(func() error { return c.Close(ctx) })
	}
	return e
}

// unflushed returns an error if the buffers of the destination may contain accepted records: those
// delivered since the last Flush that succeeded. why is the error of its last Flush, or nil.
func (d *driver) unflushed(why error) error {
	n := d.delivered() - d.flushed.Load()
	if _, ok := d.dest.(flusher); !ok || n == 0 {
		return nil
	}
	if w, ok := d.dest.(interface{ buffers() bool }); ok && !w.buffers() {
		return nil
	}
	text := "deliver: close: " + plural.Records(n) + " may be lost: the destination accepted them and did not flush them"
	if why == nil {
		why = context.DeadlineExceeded
	}
	return fmt.Errorf("%s: %w", text, why)
}

// endErrors are the errors of the last calls of a destination. They are kept apart because only an error
// of Flush means that records may be lost.
type endErrors struct{ flush, sync, close error }

func (e endErrors) err() error { return errors.Join(e.flush, e.sync, e.close) }

// fault is err, unless Close only ran out of time, which loses nothing.
func (e endErrors) fault() error {
	if closetime.OutOfTime(e.close) {
		e.close = nil
	}
	return e.err()
}
