package deliver

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
)

// work is the goroutine that delivers what is in custody and does not flow by
// itself: the spill, and what is left of the window after a failure. It is
// started when there is such work and ends when there is none. A sink or spill
// that calls runtime.Goexit ends it early; the next one goes on where it
// stopped.
func (k *Keeper) work() {
	finished := false
	defer func() {
		if !finished {
			go k.work()
		}
	}()
	for k.step() {
	}
	finished = true
}

// step does one piece of work. It reports false when there is none left, or the
// Keeper stops.
func (k *Keeper) step() bool {
	k.mu.Lock()
	switch {
	case k.abandoned || is(k.stop) || k.ctx.Err() != nil:
		k.endWorkLocked()
		k.mu.Unlock()
		return false
	case k.broken && k.under > 0:
		k.mu.Unlock()
		k.sleep()
	case k.broken && len(k.back) > 0:
		e := k.back[0]
		k.mu.Unlock()
		k.head(e)
	case k.broken && !k.spilling && len(k.live) > 0:
		e := k.live[0]
		k.mu.Unlock()
		k.head(e)
	case k.broken:
		k.broken = false
		k.mu.Unlock()
	case k.spilling:
		k.mu.Unlock()
		k.replay()
	default:
		k.endWorkLocked()
		k.mu.Unlock()
		return false
	}
	return true
}

func (k *Keeper) endWorkLocked() {
	k.working = false
	close(k.idle)
	k.tellChange()
}

// sleep waits until something changes.
func (k *Keeper) sleep() {
	select {
	case <-k.wake:
	case <-k.stop:
	case <-k.ctx.Done():
	}
}

// head delivers the first batch by itself, or starts it and all behind it again
// when all is well. Nothing is in flight.
func (k *Keeper) head(e *entry) {
	k.mu.Lock()
	state := e.state
	k.mu.Unlock()
	switch {
	case state == answered:
		k.closeHead(e, e.b.Tally)
	case state == queued && k.mayFlow(e.b):
		k.relaunch()
	default:
		k.single(e, state)
	}
}

// relaunch starts everything in order again, and what a Send adds meanwhile.
func (k *Keeper) relaunch() {
	k.mu.Lock()
	k.broken = false
	k.launching = true
	ring := k.ringLocked()
	for _, e := range *ring {
		e.state, e.err = queued, nil
	}
	for !k.broken {
		i := slices.IndexFunc(*ring, func(e *entry) bool { return e.state == queued })
		if i < 0 {
			break
		}
		e := (*ring)[i]
		if !k.fits(e.b) { // by itself, in smaller pieces
			k.broken = true
			break
		}
		e.state = started
		k.under++
		k.mu.Unlock()
		e.b.Tally = batch.Tally{}
		k.lane.start(k.ctx, e.b, e.done)
		k.mu.Lock()
	}
	k.launching = false
	k.mu.Unlock()
}

// mayFlow reports whether b may be started rather than sent by itself.
func (k *Keeper) mayFlow(b *batch.Batch) bool {
	return k.lane.flows() && k.fits(b) && k.well() && !k.lane.ended()
}

// fits reports whether b is no larger than the destination takes.
func (k *Keeper) fits(b *batch.Batch) bool {
	limit := k.bound()
	return limit == 0 || b.Bytes() <= limit || b.Len() == 1
}

// ringLocked returns what is to be delivered first: what the spill handed out,
// else the window.
func (k *Keeper) ringLocked() *[]*entry {
	if len(k.back) > 0 {
		return &k.back
	}
	return &k.live
}

// single delivers e, which is the first, for as long as it takes.
func (k *Keeper) single(e *entry, state entryState) {
	if state == failedEntry {
		k.lane.prime(e.b, e.err) // its answer is there: nothing is sent for it
	} else {
		e.b.Tally = batch.Tally{}
	}
	k.serve(e)
	returned := false
	defer func() {
		k.serve(nil)
		if !returned { // Goexit: the next goroutine begins with the delay
			k.mu.Lock()
			e.state, e.err, e.b.Tally = failedEntry, errNoReturn, batch.Tally{}
			k.mu.Unlock()
		}
	}()
	before := k.lane.sends.Load()
	err := k.retry.send(k.ctx, batch.SinkFunc(func(ctx context.Context, b *batch.Batch) error {
		return k.attempt(ctx, e, b)
	}), e.b)
	returned = true
	k.lane.prime(nil, nil)

	k.mu.Lock()
	if k.lane.sends.Load() != before {
		// Something of e was sent after those behind it: they must be sent again
		// for the last copies to be in order.
		for _, ring := range [][]*entry{k.back, k.live} {
			for _, o := range ring {
				if o != e {
					o.state, o.err = queued, nil
				}
			}
		}
	}
	k.mu.Unlock()
	k.conclude(e, err)
}

// serve notes what is delivered one by one.
func (k *Keeper) serve(e *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.serving = e
}

// attempt offers b, which is what is left of e, to the destination, and else to
// the spill.
func (k *Keeper) attempt(ctx context.Context, e *entry, b *batch.Batch) error {
	err := k.sink.Send(ctx, b)
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrOpen) {
		k.failFlushes(err)
		k.tellChange()
	}
	if !k.isInSpill(e) && k.spillable(ctx, err) {
		return k.divert(b, err, e)
	}
	if k.spill != nil {
		k.tryMove(err)
	}
	return err
}

// tryMove puts what waits behind the spill into it, if that works by now.
func (k *Keeper) tryMove(cause error) {
	k.mu.Lock()
	need := k.spilling && len(k.live) > 0
	k.mu.Unlock()
	if !need {
		return
	}
	k.spillUse <- struct{}{}
	defer func() { <-k.spillUse }()
	_ = k.moveLive(cause) // reported by store
}

// conclude accounts for e after its delivery came to err.
func (k *Keeper) conclude(e *entry, err error) {
	n := e.b.Len()
	rest := left(n, err)
	t := tallied(e.b, n-len(rest))
	if isRefusal(err) {
		t.Dropped[batch.Poison] += countSome(e.b, rest)
		k.events.post("poison", err, t.Dropped[batch.Poison])
		k.closeHead(e, t)
		return
	}
	if len(rest) == 0 {
		k.closeHead(e, t)
		return
	}
	// ctx has ended: Close decides about the rest.
	k.lockStill()
	defer k.mu.Unlock()
	if k.abandoned || e.ceded {
		return
	}
	if len(rest) < n {
		k.countLocked(e, countable(e.b)-countSome(e.b, rest), t)
		if e.seq == 0 {
			e.b = e.b.Select(nil, rest)
		}
	}
	e.b.Tally = batch.Tally{}
	e.state, e.err = queued, err
}

// closeHead accounts for e, which is the first, as t says, and lets go of it.
func (k *Keeper) closeHead(e *entry, t batch.Tally) {
	k.lockStill()
	if k.abandoned || e.ceded {
		k.mu.Unlock()
		return
	}
	k.settleLocked(e, t)
	if seq := e.seq; seq != 0 {
		k.mu.Unlock()
		k.acknowledge(seq)
		k.mu.Lock()
		popLocked(&k.back)
	} else if !e.moved {
		popLocked(&k.live)
		k.tellRoom()
	}
	k.recycleLocked(e)
	k.flushedLocked()
	k.mu.Unlock()
	k.tellChange()
}

// acknowledge settles batches of the spill up to number seq.
func (k *Keeper) acknowledge(seq uint64) {
	err := k.spill.Ack(seq)
	k.readResult(err)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ackedSeq = seq
}

// readResult reports the first failure to read the spill of a row.
func (k *Keeper) readResult(err error) {
	k.mu.Lock()
	first := false
	if err == nil {
		k.readBad.end()
	} else {
		first = k.readBad.begin()
	}
	k.mu.Unlock()
	if first {
		k.events.post("spill-error", err, 0)
	}
}

// replay takes one batch out of the spill, or waits until it makes sense to.
func (k *Keeper) replay() {
	k.tryMove(nil)
	if k.reap() {
		return
	}
	b, seq, err := k.spill.Next()
	if err == io.EOF {
		if k.endSpill() {
			k.sleep()
		}
		return
	}
	k.readResult(err)
	if err != nil {
		k.closing.sleep(k.ctx, backoff.Jitter(readRetry/2, readRetry), readRetry/10)
		return
	}
	k.handOut(b, seq)
}

// readRetry is the delay after a failed read of the spill.
const readRetry = time.Second

// reap settles what was answered in order. It reports false if there is room for
// another batch and nothing failed.
func (k *Keeper) reap() bool {
	k.mu.Lock()
	var e *entry
	if len(k.back) > 0 && k.back[0].state == answered {
		e = k.back[0]
	}
	busy := k.broken || len(k.back) >= k.window
	k.mu.Unlock()
	switch {
	case e != nil:
		k.closeHead(e, tallied(e.b, e.b.Len()))
		return true
	case busy:
		if !k.isBroken() {
			k.sleep()
		}
		return true
	}
	return false
}

func (k *Keeper) isBroken() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.broken
}

// handOut sends batch seq of the spill on its way.
func (k *Keeper) handOut(b *batch.Batch, seq uint64) {
	may := k.mayFlow(b)
	n := countable(b)
	k.mu.Lock()
	e := k.freeLocked()
	e.b, e.seq, e.n = b, seq, n
	k.back = append(k.back, e)
	if !may || k.broken {
		k.broken = true
		k.mu.Unlock()
		return
	}
	e.state = started
	k.under++
	k.mu.Unlock()
	b.Tally = batch.Tally{}
	k.lane.start(k.ctx, b, e.done)
}

// endSpill ends the spill if nothing is left of it. It reports true if batches
// of it are still in flight.
func (k *Keeper) endSpill() bool {
	k.mu.Lock()
	inFlight := len(k.back) > 0
	k.mu.Unlock()
	if inFlight {
		return true
	}
	k.spillUse <- struct{}{}
	defer func() { <-k.spillUse }()
	if b, seq, err := k.spill.Next(); err == nil { // appended meanwhile
		k.handOut(b, seq)
		return false
	} else if err != io.EOF {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spilling = false
	if len(k.live) > 0 {
		k.broken = true
	}
	k.flushedLocked()
	k.tellRoom()
	k.tellChange()
	k.events.post("spilled", nil, 0)
	return false
}
