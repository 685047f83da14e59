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

// A driver calls the methods of a [Destination], one call at a time. A panic or runtime.Goexit of
// the destination becomes an error. Any goroutine may call the methods of a driver.
type driver struct {
	dest      Destination
	events    *callback.Reporter
	delivered func() uint64 // number of records delivered so far

	// calls is a lock that is held during each call of the destination. The call is made by the
	// goroutine of the session or by that of a Flush or Sync. If the outlet is inline, the loop
	// makes the calls of the session.
	calls ctxLock

	ended   atomic.Bool   // Close of the destination was or is about to be called; no Flush or Sync follows
	panics  atomic.Uint64 // number of calls that panicked or called runtime.Goexit
	broken  atomic.Bool   // a panic was reported, and no batch was accepted since
	flushed atomic.Uint64 // value of delivered before the last successful Flush of the destination
}

func newDriver(dest Destination, ev *callback.Reporter, delivered func() uint64) *driver {
	return &driver{dest: dest, events: ev, delivered: delivered, calls: newCtxLock()}
}

// command waits until no call is in progress and then calls f, which calls the destination. It
// returns when f has returned or ctx has ended. If f hangs, the lock stays acquired, so that the
// destination is not called again. After the last calls of the destination (see end), command
// returns errClosed.
func (d *driver) command(ctx context.Context, f func() error) error {
	if err := d.calls.acquire(ctx); err != nil {
		return err
	}
	return within(ctx, func() error {
		defer d.calls.release()
		if d.ended.Load() {
			return errClosed
		}
		return d.contain(f)
	})
}

var errGoexit = errors.New("destination called runtime.Goexit")

// within calls f on a separate goroutine and waits until f has returned or ctx has ended. f must
// not panic. If f hangs, its goroutine and everything that f refers to stay in memory.
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

// contain calls f and converts a panic into a *panicError. A panic or runtime.Goexit is reported
// once; the next one is reported only after a batch was accepted.
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

// accepted is called when a batch was accepted. The next panic or runtime.Goexit is then reported
// again.
func (d *driver) accepted() {
	if d.broken.Load() {
		d.broken.Store(false)
	}
}

// panicError is the error returned for a panic or runtime.Goexit in a call of the destination.
type panicError struct{ err error }

func (p *panicError) Error() string { return p.err.Error() }
func (p *panicError) Unwrap() error { return p.err }

// flush calls the method Flush of the destination, if it has one. After success, all records
// delivered before the call are flushed.
func (d *driver) flush(ctx context.Context) error {
	if _, ok := d.dest.(flusher); !ok {
		return nil
	}
	return d.command(ctx, func() error { return d.flushNow(ctx) })
}

// flushNow is like flush, but the caller must hold d.calls.
func (d *driver) flushNow(ctx context.Context) error {
	n := d.delivered()
	if f, ok := d.dest.(flusher); ok {
		if err := f.Flush(ctx); err != nil {
			return err
		}
	}
	d.flushed.Store(n)
	return nil
}

// sync calls the method Sync of the destination, if it has one.
func (d *driver) sync(ctx context.Context) error {
	if s, ok := d.dest.(syncer); ok {
		return d.command(ctx, s.Sync)
	}
	return nil
}

// end makes the last calls of the destination, after its last session. idle is set if no call of
// the destination hangs. After the end of ctx, end waits for closeGrace, because a driver that
// obeys ctx returns shortly afterwards. A call that takes longer is abandoned.
func (d *driver) end(ctx context.Context, idle bool) (e endErrors) {
	longer, cancel := closetime.Later(ctx, closeGrace)
	defer cancel()
	ch := make(chan endErrors, 1)
	if within(longer, func() error { ch <- d.endNow(ctx, idle); return nil }) == nil {
		e = <-ch
	} else {
		e.close = fmt.Errorf("deliver: close: the destination: %w", closetime.Late(ctx))
	}
	if err := d.unflushed(ctx, e.flush); err != nil {
		e.flush = err
	}
	return e
}

// endNow calls the destination's methods Flush, Sync (unless ctx has ended) and Close, as far as
// they exist. If a call hangs, endNow calls only Close, which may end the hanging call. A call hangs
// if it has not returned within half of closeGrace after the end of ctx.
func (d *driver) endNow(ctx context.Context, idle bool) (e endErrors) {
	call := func(f func() error) error {
		return within(context.Background(), func() error { return d.contain(f) })
	}
	patient, cancel := closetime.Later(ctx, closeGrace/2)
	defer cancel()
	if idle && d.calls.acquire(patient) == nil {
		defer d.calls.release()
		e.flush = call(func() error { return d.flushNow(ctx) })
		if s, ok := d.dest.(syncer); ok && ctx.Err() == nil {
			e.sync = call(s.Sync)
		}
	}
	d.ended.Store(true)
	if c, ok := d.dest.(closer); ok {
		e.close = call(func() error { return c.Close(ctx) })
	}
	return e
}

// unflushed returns an error if the destination may still buffer accepted records: those delivered
// since its last successful Flush. The parameter why is the error of its last Flush, or nil.
func (d *driver) unflushed(ctx context.Context, why error) error {
	n := d.delivered() - d.flushed.Load()
	if _, ok := d.dest.(flusher); !ok || n == 0 {
		return nil
	}
	if w, ok := d.dest.(interface{ buffers() bool }); ok && !w.buffers() {
		return nil
	}
	if why == nil || ctx.Err() != nil && closetime.OutOfTime(why) {
		why = closetime.Late(ctx)
	}
	return fmt.Errorf("deliver: close: %s may be lost: the destination accepted them and did not flush them: %w", plural.Records(n), why)
}

// endErrors are the errors of the last calls of a destination. Only an error of Flush means that
// records may be lost.
type endErrors struct{ flush, sync, close error }

func (e endErrors) err() error { return errors.Join(e.flush, e.sync, e.close) }

// fault joins the errors. It omits the error of a Close that only ran out of time, because no
// record is lost.
func (e endErrors) fault() error {
	if closetime.OutOfTime(e.close) {
		e.close = nil
	}
	return e.err()
}

// closeGrace is how long Close waits, after the end of its time, for a driver whose context has
// ended. Close may wait that long twice: for the driver and for the spool.
const closeGrace = 50 * time.Millisecond
