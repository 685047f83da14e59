package slab

// As long as full slabs follow each other and nothing else happens, the drain needs neither
// the slab that callers fill nor the next ticket. It then locks store.mu alone, and meets a
// caller only when that one changes slabs. For everything else (a flush, waiting callers, the
// end, a failure, a partial slab) it locks both.
//
// Without front.mu it must not use the front, nor the payload end and slot count of a block
// that may be the current one. With Options.Crash it always locks both: in mapped slabs more
// fields belong together, and the records of dead processes come first, even if the slabs are
// on the heap.

// held names the locks that the drain holds.
type held uint8

const (
	heldNone held = iota
	heldSlabs
	heldAll
)

// A step is the result of gatherHalf.
type step uint8

const (
	stepUnable step = iota // both locks are needed
	stepAgain              // look again
	stepTaken              // a batch is under way
)

// calmLocked reports whether there is nothing but records to deliver.
func (s *store) calmLocked() bool {
	return s.life == accepting && len(s.ops) == 0 && s.callers.waitingLocked() == 0
}

// gatherHalf is gather with store.mu alone. It is called with store.mu locked, if held says
// so, and returns with nothing locked.
func (d *drain) gatherHalf() step {
	if d.held == heldNone {
		spinLock(&d.store.mu, d.store.front.spins)
	}
	d.held = heldNone
	if !d.store.calmLocked() || d.store.sleep.state == parked {
		d.store.mu.Unlock()
		return stepUnable
	}
	if d.store.pieces.n == 0 {
		before, urgent := d.store.sealed.Load(), d.store.progress.urgent > d.store.progress.settled
		d.store.mu.Unlock()
		if !d.spinning || d.timerDue || urgent {
			return stepUnable
		}
		d.look(before)
		return stepAgain
	}
	d.store.progress.settled = d.store.pieces.at(0).first - 1
	if d.limited && (d.timerDue || d.store.progress.pressing() || !d.reachedLocked()) {
		d.store.mu.Unlock()
		return stepUnable
	}
	d.store.sleep.getUpLocked()
	d.takeLocked()
	d.store.mu.Unlock()
	d.begin()
	return stepTaken
}

// settleHalf is the end of settle with store.mu alone. It reports false if it has done
// nothing. Otherwise store.mu is locked afterwards.
func (d *drain) settleHalf(n int) bool {
	spinLock(&d.store.mu, d.store.front.spins)
	if !d.store.calmLocked() || d.store.gauge.rate.due(d.since) {
		d.store.mu.Unlock()
		return false
	}
	if points {
		point(ptSettleLocked)
	}
	d.store.book.tookLocked(n, 0)
	d.store.progress.sent += uint64(d.all.Len())
	d.freeBatchLocked()
	d.waited = false
	d.held = heldSlabs
	return true
}
