package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// closeGrace is how long Close waits, after its time is over, for a destination
// that was told to give up: what it says can still be accounted for.
const closeGrace = 50 * time.Millisecond

// Close is [Keeper.Shutdown] without the report.
func (k *Keeper) Close(ctx context.Context) error {
	_, err := k.Shutdown(ctx)
	return err
}

// Shutdown refuses further Sends, settles what is in custody, closes the sink
// within, and reports. It returns when that is done, or soon after ctx has ended,
// whatever the destination does.
//
// The destination has 70 % of the time to ctx's deadline. What is in flight then
// is settled without it: by an error handler, where there is one, else by the
// spill. What nobody takes is dropped with [batch.Shutdown]; Report.Unknown says
// how much of that was in a Send or Start that was not answered. What is in the
// spill is delivered as long as the destination is well and has time, and stays
// there otherwise: pending, for the next process. The spill is not closed.
//
// A Send that is under way returns with what it has achieved; its records are
// the caller's. Shutdown may be called beside Send, and more than once: later
// calls wait for the first one and return the same.
func (k *Keeper) Shutdown(ctx context.Context) (batch.Report, error) {
	first := false
	k.closeOnce.Do(func() { first = true })
	if !first {
		select {
		case <-k.reported:
			return k.report, k.closeErr
		case <-ctx.Done():
			return batch.Report{Account: k.Account()}, fmt.Errorf("deliver: close: %w", context.Cause(ctx))
		}
	}
	close(k.closed)
	deadline, _ := ctx.Deadline()
	k.closing.begin(deadline)
	// The destination is told to give up a little before the deadline, so that
	// what it says can still be accounted for.
	over := make(<-chan time.Time)
	if !deadline.IsZero() {
		left := time.Until(deadline)
		t := time.NewTimer(left - min(left/10, 100*time.Millisecond))
		defer t.Stop()
		over = t.C
	}
	turn := k.awaitTurn(ctx, over)
	k.awaitSettled(ctx, over)
	k.closing.end()
	close(k.stop)
	stopped := k.awaitStopped(ctx)
	if !turn {
		turn = k.awaitTurn(ctx, nil)
	}
	err := k.finalize(ctx, stopped)
	k.failFlushes(errClosed)
	err = errors.Join(err, k.inner.Close(ctx))
	if err != nil {
		err = fmt.Errorf("deliver: close: %w", err)
	}
	k.mu.Lock()
	k.report = batch.Report{Account: k.accountLocked(), Unknown: k.unknown}
	k.mu.Unlock()
	k.closeErr = err
	if turn {
		k.leave()
	}
	k.events.run.WaitBriefly(context.WithoutCancel(ctx))
	close(k.reported)
	return k.report, k.closeErr
}

// awaitTurn waits until no Send is under way, or the time is over.
func (k *Keeper) awaitTurn(ctx context.Context, over <-chan time.Time) bool {
	select {
	case k.turn <- struct{}{}:
		return true
	default:
	}
	var grace <-chan time.Time
	if is(k.closing.over) {
		grace = time.After(closeGrace)
	}
	select {
	case k.turn <- struct{}{}:
		return true
	case <-over:
		k.closing.end()
	case <-grace:
	case <-ctx.Done():
		k.closing.end()
		if grace == nil {
			return k.awaitTurn(ctx, nil)
		}
	}
	return false
}

// awaitSettled waits until nothing is left that can be settled in time.
func (k *Keeper) awaitSettled(ctx context.Context, over <-chan time.Time) {
	late := k.closing.late
	for {
		k.mu.Lock()
		memory, busy := len(k.live) > 0, k.working || k.under > 0
		k.mu.Unlock()
		if !busy && !memory || !memory && (k.down() || is(k.closing.late)) {
			return
		}
		select {
		case <-k.changed:
		case <-late:
			late = nil
		case <-over:
			return
		case <-ctx.Done():
			return
		case <-k.closing.over:
			return
		}
	}
}

// awaitStopped waits until the goroutine has ended and nothing is in flight, for
// as long as there is time.
func (k *Keeper) awaitStopped(ctx context.Context) bool {
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	done, expired := ctx.Done(), (<-chan time.Time)(nil)
	if ctx.Err() != nil {
		done, expired = nil, grace.C
	}
	for {
		k.mu.Lock()
		busy, idle := k.working || k.under > 0, k.idle
		if !k.working {
			idle = nil
		}
		k.mu.Unlock()
		if !busy {
			return true
		}
		select {
		case <-idle:
		case <-k.changed:
		case <-done:
			grace.Reset(closeGrace)
			done, expired = nil, grace.C
		case <-expired:
			return false
		}
	}
}

// finalize accounts for what is left. stopped says that nothing reads it any
// more.
func (k *Keeper) finalize(ctx context.Context, stopped bool) error {
	spilling := k.enterSpill(ctx)
	if spilling {
		defer func() { <-k.spillUse }()
	}
	k.mu.Lock()
	k.abandoned = true
	k.shut = true
	live, serving := k.live, k.serving
	k.live, k.leaving = nil, live
	k.mu.Unlock()

	var dropped, unknown uint64
	var cause error
	for _, e := range live {
		open := k.reckon(e)
		if open == nil {
			continue
		}
		if cause == nil {
			cause = e.err
		}
		n := countable(open)
		if spilling {
			if seq, err := k.store(open); err == nil {
				k.mu.Lock()
				k.lastSeq = max(k.lastSeq, seq)
				k.spilled += n
				e.over = e.n
				k.mu.Unlock()
				continue
			}
		}
		dropped += n
		if e.state == started || e == serving && !stopped && len(k.lane.use) > 0 { // else it waits for another attempt
			unknown += n
		}
	}
	if stopped {
		k.reapAll()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.acc.Dropped[batch.Shutdown] += dropped
	k.leaving, k.unknown = nil, unknown
	switch {
	case dropped > 0:
		return fmt.Errorf("%d records not delivered, %d of them unknown: %w", dropped, unknown,
			errors.Join(context.Cause(ctx), cause, k.retry.lastError()))
	case !stopped:
		return errors.New("the destination did not return in time")
	}
	return nil
}

// enterSpill reports whether the spill may be added to.
func (k *Keeper) enterSpill(ctx context.Context) bool {
	if k.spill == nil {
		return false
	}
	select {
	case k.spillUse <- struct{}{}:
		return true
	default:
	}
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case k.spillUse <- struct{}{}:
		return true
	case <-ctx.Done():
	}
	select {
	case k.spillUse <- struct{}{}:
		return true
	case <-grace.C:
		return false
	}
}

// reckon accounts for the records of e that its answer settled, and returns the
// others, nil if there are none.
func (k *Keeper) reckon(e *entry) *batch.Batch {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch e.state {
	case answered:
		k.settleLocked(e, tallied(e.b, e.b.Len()))
		return nil
	case failedEntry:
		n := e.b.Len()
		rest := left(n, e.err)
		if len(rest) < n {
			open := e.b.Select(nil, rest)
			k.countLocked(e, countable(e.b)-countable(open), tallied(e.b, n-len(rest)))
			return open
		}
	}
	return e.b
}

// reapAll settles what the spill handed out and was answered in order.
func (k *Keeper) reapAll() {
	for {
		k.mu.Lock()
		if len(k.back) == 0 || k.back[0].state != answered {
			k.mu.Unlock()
			return
		}
		e := k.back[0]
		k.settleLocked(e, tallied(e.b, e.b.Len()))
		k.mu.Unlock()
		k.acknowledge(e.seq)
		k.mu.Lock()
		popLocked(&k.back)
		k.mu.Unlock()
	}
}
