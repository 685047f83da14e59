package slab

import "sync"

// As long as full slabs follow each other and nothing else happens, the drain needs
// neither the slab that callers fill nor the next ticket. It then takes mu.slabs alone,
// and meets a caller only when that one changes slabs. For everything else (a flush,
// waiting writes, the end, a failure, a partial slab) gather and settle take all of mu.
//
// Without mu.put the drain must not read or write anything in front, nor the payload end
// and slot count of a block that may be the current one. A Writer with Options.Crash
// always takes all of mu: in mapped slabs more fields belong together, and the records of
// dead processes come first, even if the slabs are on the heap.

// locks is a mutex of two halves. With both of them a goroutine may do anything. A call
// that finds room takes put alone. The drain takes slabs alone while it goes from one full
// slab to the next. So it meets the callers once per slab and not at every record.
type locks struct {
	put   sync.Mutex
	spins bool // there is a processor to spare for those who wait; set by New
	// The drain asks for slabs again and again: not in the cache line of put.
	_     [64]byte
	slabs sync.Mutex
}

func (l *locks) Lock() {
	l.lockPut()
	l.slabs.Lock()
}

// lockPut locks put, and looks several times before it waits: see patiently.
func (l *locks) lockPut() {
	if !l.put.TryLock() {
		l.waitPut()
	}
}

func (l *locks) waitPut() { patiently(&l.put, l.spins) }

func (l *locks) Unlock() {
	l.slabs.Unlock()
	l.put.Unlock()
}

func (l *locks) TryLock() bool {
	if !l.put.TryLock() {
		return false
	}
	l.slabs.Lock()
	return true
}

// held says which locks the drain holds.
type held uint8

const (
	heldNone held = iota
	heldSlabs
	heldAll
)

// A step is what gatherHalf has done.
type step uint8

const (
	stepUnable step = iota // all of mu is needed
	stepAgain              // look again
	stepTaken              // a batch is under way
)

// calmLocked reports whether nothing but records is to be dealt with.
func (w *Writer) calmLocked() bool {
	return w.life == accepting && len(w.ops) == 0 && w.waitingLocked() == 0
}

// gatherHalf is gather with half of mu. It is called with that half, if the
// drain holds it, and returns with nothing held.
func (w *Writer) gatherHalf() step {
	d := &w.d
	if d.held == heldNone {
		patiently(&w.mu.slabs, w.mu.spins)
	}
	d.held = heldNone
	if !w.calmLocked() || w.sleep.state == parked {
		w.mu.slabs.Unlock()
		return stepUnable
	}
	if w.queue.n == 0 {
		before, urgent := w.sealed.Load(), w.progress.urgent > w.progress.settled
		w.mu.slabs.Unlock()
		if !d.spinning || d.timerDue || urgent {
			return stepUnable
		}
		w.look(before)
		return stepAgain
	}
	w.progress.settled = w.queue.at(0).first - 1
	if w.limited && (d.timerDue || w.progress.pressing() || !w.reachedLocked()) {
		w.mu.slabs.Unlock()
		return stepUnable
	}
	w.sleep.getUpLocked()
	w.takeLocked()
	w.mu.slabs.Unlock()
	w.begin()
	return stepTaken
}

// settleHalf is the end of settle with half of mu. It reports false if it has done
// nothing. Else the drain holds that half afterwards.
func (w *Writer) settleHalf(n int) bool {
	d := &w.d
	patiently(&w.mu.slabs, w.mu.spins)
	if !w.calmLocked() || w.gauge.rate.due(d.since) {
		w.mu.slabs.Unlock()
		return false
	}
	if points {
		point(ptSettleLocked)
	}
	w.book.tookLocked(n, 0)
	w.progress.sent += uint64(d.all.Len())
	w.freeBatchLocked()
	d.waited = false
	d.held = heldSlabs
	return true
}
