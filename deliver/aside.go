package deliver

import (
	"context"
	"errors"
	"slices"
	"time"
)

// A producer that is full has its batches put aside: into the spill, without
// waiting for the destination and whatever it is doing. What is in flight goes
// first, so that the order on disk is the order of acceptance. It stays in flight
// all the same: it is now what the spill has handed out, and its answer settles
// it there. So nothing is sent twice in this process, and if the process ends
// before the answer comes, the next one has it.
//
//	window  [a b]   in flight, from memory      ──aside──▶   handed out by the spill [a b]
//	spill   []                                               spill [a b c d …]
//	Send(c)         waits for room                           appended

var (
	errNoSpill  = errors.New("deliver: SpillWhenFull is set, but there is no Spill")
	errInFlight = errors.New("a batch is in flight that was accepted before")
)

// spillRetry is the delay after a spill has failed while the producer is full.
const spillRetry = time.Second

// SpillWhen makes the Keeper put batches into the spill also when the destination
// is slow, or hangs: whenever full reports that the producer has no room left.
// See [batch.Spiller]. It fails without a spill, and, for a destination that
// cannot pipeline, without KeeperOptions.SpillWhenFull.
func (k *Keeper) SpillWhen(full func() bool) (press func(), err error) {
	switch {
	case k.spill == nil:
		return nil, errors.New("deliver: there is no Spill to put records into")
	case !k.lane.flows():
		return nil, errors.New("deliver: Options.SpillWhenFull is not set")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.full = append(k.full, full)
	return k.press, nil
}

// SpillWhen makes the engine put batches into the spill also when the destination
// is slow, or hangs: whenever full reports that the producer has no room left.
// See [batch.Spiller]. It fails without Options.Spill, and, for a destination that
// cannot pipeline, without Options.SpillWhenFull.
func (e *Engine) SpillWhen(full func() bool) (press func(), err error) {
	return e.keeper.SpillWhen(full)
}

// press lets a Send that waits look whether the producer is full.
func (k *Keeper) press() { signal(k.pressed) }

// isFull reports whether a producer is full that would rather spill than wait.
func (k *Keeper) isFull() bool {
	k.mu.Lock()
	full := k.full
	k.mu.Unlock()
	return slices.ContainsFunc(full, func(full func() bool) bool { return full() })
}

// lateFor reports whether the close is so late that a Send must no longer wait
// for a batch that a goroutine of the lane's own sends, for that may never end;
// else it returns the channel that is closed then. It is nil where the
// destination itself ends what is under way.
func (k *Keeper) lateFor() (late chan struct{}, now bool) {
	switch {
	case k.spill == nil || !k.lane.detached:
		return nil, false
	case is(k.closing.late):
		return nil, true
	}
	return k.closing.late, false
}

// untilSafe waits until batch no of the window is settled, or in the spill. Only
// then does a Send return whose batch a goroutine of the lane's own sends: the
// memory of the producer may be all that survives the process.
func (k *Keeper) untilSafe(ctx context.Context, no uint64) {
	var again <-chan time.Time
	for {
		k.mu.Lock()
		safe := k.shut || len(k.live) == 0 || k.live[0].no > no
		k.mu.Unlock()
		if safe || k.awaitRoom(ctx, &again) != nil {
			return
		}
	}
}

// aside puts the window into the spill, whatever state its batches are in. On
// error what was put there before stays there.
func (k *Keeper) aside() error {
	k.spillUse <- struct{}{}
	defer func() { <-k.spillUse }()
	k.mu.Lock()
	if k.spilling || k.abandoned || len(k.live) == 0 {
		k.mu.Unlock()
		return nil
	}
	k.moving = true
	live := slices.Clone(k.live)
	k.mu.Unlock()

	var err error
	copies := make([]ceded, 0, len(live))
	out := true
	for _, e := range live {
		var c ceded
		if c.seq, err = k.store(e.b); err != nil {
			break
		}
		// The spill was empty, so what it hands out now is this batch, unless it
		// cannot read it (or has a gap marker of an earlier process): then its copy
		// counts, whatever is answered. So do those behind it, for what was handed
		// out here next would be a copy that nobody sends. Nobody else takes
		// anything out of it before spilling is set.
		if out {
			_, seq, bad := k.spill.Next()
			out = bad == nil && seq == c.seq
			c.out = out
		}
		copies = append(copies, c)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.moving = false
	if k.abandoned { // Close has counted them; this is too late
		return nil
	}
	for i, c := range copies {
		k.cedeLocked(live[i], c)
	}
	k.popAnsweredLocked()
	return err
}

// ceded is the copy of a batch in flight that is in the spill: batch seq, which
// the spill has handed out, or not.
type ceded struct {
	seq uint64
	out bool
}

// cedeLocked makes e, the first of the window, the batch of the spill that c says.
func (k *Keeper) cedeLocked(e *entry, c ceded) {
	k.leaveWindowLocked(e, c.seq)
	n := e.unsettled()
	if c.out {
		e.moved = false
		e.seq, e.n, e.over = c.seq, n, 0
		k.back = append(k.back, e)
		if e.state == queued || e.state == failedEntry {
			k.broken = true
		}
	} else {
		e.ceded = true
		k.broken = true // its copy is not sent before it is answered
	}
	k.beginSpillLocked(c.seq, n, ErrFull)
}

// ErrFull is the cause of the event "spill" when the spill begins because a
// producer is full: the destination is slow, or hangs.
var ErrFull = errors.New("the destination is too slow")

// lockStill locks mu when nothing is being put aside.
func (k *Keeper) lockStill() {
	k.mu.Lock()
	for k.moving {
		k.mu.Unlock()
		k.spillUse <- struct{}{}
		<-k.spillUse
		k.mu.Lock()
	}
}

// isInSpill reports whether e, which is being delivered, is in the spill.
func (k *Keeper) isInSpill(e *entry) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return e.seq != 0 || e.ceded
}

func (k *Keeper) isShut() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.shut
}
