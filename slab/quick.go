package slab

// While full slabs follow each other and nothing else is to be done, the drain needs
// nothing of what a call touches: neither the slab that is being filled, nor the
// next ticket. It then takes mu.slabs alone, and meets a caller only when that one
// changes slabs. Whatever is more than that (a flush, waiting writes, the end, a
// failure, a partial slab) is done with all of mu, by gather and settle.
//
// Without mu.put it must neither read nor write room, next, cur, or the payload end
// and slot count of any block that may be cur. Mapped slabs have more that goes
// together, and with Options.Crash what dead processes left comes first, also where the
// slabs are on the heap: such a Writer is not quick.

// held says which locks the drain holds.
type held uint8

const (
	heldNone held = iota
	heldSlabs
	heldAll
)

// A step is what gatherQuick has done.
type step uint8

const (
	stepUnable step = iota // all of mu is needed
	stepAgain              // look again
	stepTaken              // a batch is under way
)

// calmLocked reports whether nothing but records is to be dealt with.
func (w *Writer) calmLocked() bool {
	return w.life == accepting && len(w.ops) == 0 && w.waitingLocked() == 0 && !w.dropping
}

// gatherQuick is gather where half of mu does. It is called with that half, if the
// drain holds it, and returns with nothing held.
func (w *Writer) gatherQuick() step {
	d := &w.d
	if d.held == heldNone {
		patiently(&w.mu.slabs, w.spins)
	}
	d.held = heldNone
	if !w.calmLocked() || w.sleep == parked {
		w.mu.slabs.Unlock()
		return stepUnable
	}
	if w.queue.n == 0 {
		before, urgent := w.sealed.Load(), w.urgent > w.settled
		w.mu.slabs.Unlock()
		if !d.spinning || d.timerDue || urgent {
			return stepUnable
		}
		w.look(before)
		return stepAgain
	}
	w.settled = w.queue.at(0).first - 1
	if w.limited && (d.timerDue || w.urgent > w.settled || w.flushTarget > w.settled || !w.reachedLocked()) {
		w.mu.slabs.Unlock()
		return stepUnable
	}
	w.sleep = awake
	w.takeLocked()
	w.mu.slabs.Unlock()
	w.begin()
	return stepTaken
}

// settleQuick is the end of settle where half of mu does. It reports false if it has done
// nothing. Else the drain holds that half afterwards.
func (w *Writer) settleQuick(n int) bool {
	d := &w.d
	patiently(&w.mu.slabs, w.spins)
	if !w.calmLocked() || w.gauge.rate.due(d.since) {
		w.mu.slabs.Unlock()
		return false
	}
	if points {
		point(ptSettleLocked)
	}
	w.taken += uint64(n)
	w.inflight = 0
	w.sentTickets += uint64(d.all.Len())
	w.freeBatchLocked()
	d.waited = false
	d.held = heldSlabs
	return true
}
