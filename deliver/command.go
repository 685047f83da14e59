package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/plural"
)

// No two calls of a driver overlap. Who makes one has the wheel: the goroutine of the
// session, that of a Flush or Sync and, where the destination answers within Send, whoever
// is the loop.

// atWheel waits until nobody else has the wheel. The caller leaves it.
func (o *outlet) atWheel(ctx context.Context) error {
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

func (o *outlet) leaveWheel() { <-o.wheel }

// command calls f, which calls the driver, between two other calls. It does not wait
// beyond the end of ctx.
func (o *outlet) command(ctx context.Context, f func() error) error {
	if err := o.atWheel(ctx); err != nil {
		return err
	}
	return within(ctx, func() error {
		defer o.leaveWheel()
		return o.contain(f)
	})
}

// within calls f, which does not panic, on a goroutine of its own and waits for it, but
// not beyond the end of ctx.
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

// flushDestination has the destination pass on what it buffers, if it can.
func (o *outlet) flushDestination(ctx context.Context) error {
	if f, ok := o.dest.(flusher); ok {
		return o.command(ctx, func() error {
			n := o.led.account().Delivered
			err := f.Flush(ctx)
			if err == nil {
				o.passed.Store(n)
			}
			return err
		})
	}
	return nil
}

// Sync puts what is in the spool and what the destination has on stable storage, each if
// it can. It does not wait beyond the end of ctx.
func (o *outlet) Sync(ctx context.Context) error {
	var spool, dest error
	if s, ok := o.led.spill.(syncer); ok {
		spool = within(ctx, func() error { return o.inSpool(s.Sync) })
	}
	if s, ok := o.dest.(syncer); ok {
		dest = o.command(ctx, s.Sync)
	}
	return errors.Join(spool, dest)
}

// closeDestination ends the destination, behind its last session. A call that does not
// return in time is left alone.
func (o *outlet) closeDestination(ctx context.Context) (e farewell) {
	ch := make(chan farewell, 1)
	go func() { ch <- o.endDestination(ctx) }()
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
	if err := o.unflushed(e.flush); err != nil {
		e.flush = err
	}
	return e
}

func (o *outlet) endDestination(ctx context.Context) farewell {
	call := func(f func() error) error {
		return within(context.Background(), func() error { return o.contain(f) })
	}
	if is(o.done) && o.atWheel(ctx) == nil {
		defer o.leaveWheel()
		n := o.led.account().Delivered
		e := end(ctx, o.dest, call)
		if e.flush == nil {
			o.passed.Store(n)
		}
		return e
	}
	if c, ok := o.dest.(closer); ok { // a call hangs, and this may end it
		return farewell{close: call(func() error { return c.Close(ctx) })}
	}
	return farewell{}
}

// unflushed returns an error if the destination buffers, and may not have passed on all
// that it took; why is the error of its last Flush, nil if it did not return one.
func (o *outlet) unflushed(why error) error {
	n := o.led.account().Delivered - o.passed.Load()
	if _, ok := o.dest.(flusher); !ok || n == 0 {
		return nil
	}
	if w, ok := o.dest.(interface{ buffers() bool }); ok && !w.buffers() {
		return nil
	}
	text := "deliver: close: " + plural.Records(n) + " may be lost: the destination accepted them and did not flush them"
	if why == nil {
		return fmt.Errorf("%s: %w", text, context.DeadlineExceeded)
	}
	return fmt.Errorf("%s: %w", text, why)
}

// A farewell is what the last calls of a destination returned.
type farewell struct{ flush, sync, close error }

func (e farewell) err() error { return errors.Join(e.flush, e.sync, e.close) }

// fault is err without what is no loss: that Close was told to give up.
func (e farewell) fault() error {
	if closetime.OutOfTime(e.close) {
		e.close = nil
	}
	return e.err()
}

// end has dest pass on what it buffers, put what it has on stable storage unless there is
// no time, and free what it holds, each if it can.
func end(ctx context.Context, dest Destination, call func(f func() error) error) (e farewell) {
	if f, ok := dest.(flusher); ok {
		e.flush = call(func() error { return f.Flush(ctx) })
	}
	if s, ok := dest.(syncer); ok && ctx.Err() == nil {
		e.sync = call(s.Sync)
	}
	if c, ok := dest.(closer); ok {
		e.close = call(func() error { return c.Close(ctx) })
	}
	return e
}
