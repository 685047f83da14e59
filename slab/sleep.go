package slab

import (
	"runtime"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// sleep is whether the drain sleeps, and how it is woken.
type sleep struct {
	state sleepState
	bell  chan struct{} // capacity 1
}

// sleepState is the sleep of the drain.
//
//	awake ──no slab is full──▶ timed ──something is due──┐
//	  ▲ └─────nothing─────────▶ parked ──any record──────▼
//	  │                                                woken
//	  └──────────────unlock rings the bell───────────────┘
//
// From all of them it gets up by itself, too: when its timer is over, or when the bell was
// rung before it lay down.
type sleepState uint8

const (
	awake  sleepState = iota // it will look at the state of the Writer by itself
	timed                    // until its timer, or a sealed slab
	parked                   // until there is a record
	woken                    // the bell is to be rung by whoever holds mu
)

// lieDownLocked is called by the drain before it sleeps, in the state timed or parked.
func (s *sleep) lieDownLocked(how sleepState) { s.state = how }

// getUpLocked is called by the drain when it looks at the state of the Writer.
func (s *sleep) getUpLocked() { s.state = awake }

// wakeLocked makes unlock wake the drain, if it sleeps.
func (s *sleep) wakeLocked() {
	if s.state == timed || s.state == parked {
		s.state = woken
	}
}

// toRingLocked reports whether the bell is to be rung now. The drain counts as awake
// from then on.
func (s *sleep) toRingLocked() bool {
	if s.state != woken {
		return false
	}
	s.state = awake
	return true
}

// ring wakes the drain. It is called without mu, and does not block.
func (s *sleep) ring() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// parkLocked lets go of mu and sleeps until it is woken: the slabs are empty.
func (d *drain) parkLocked() {
	d.store.front.rewindLocked()
	if n := d.store.callers.waitingLocked(); n > 0 { // what they waited for was lost with the mapped file
		d.store.front.serveLocked()
		if d.store.callers.waitingLocked() < n {
			d.store.unlock()
			return
		}
	}
	d.store.sleep.lieDownLocked(parked)
	d.store.gauge.parkedAt = time.Since(d.conf.born)
	d.store.restLocked()
	d.store.front.setRoomLocked()
	d.store.unlock()
	if d.store.crash != nil {
		d.store.crash.file.Big.Bury() // and truncates the file once none is pending
	}
	if points {
		point(ptPark)
	}
	<-d.store.sleep.bell
}

// rewindLocked has the current block filled from its start again, if all that is in it is
// settled.
func (f *front) rewindLocked() {
	if b := f.cur; b != nil && b.refs == 0 && b.n == b.cut {
		f.store.gauge.rewound += uint64(f.conf.o.SlabBytes - b.room())
		f.resetLocked(b, f.next+1)
	}
}

// restLocked is called when nothing is pending: a drop episode is over.
func (s *store) restLocked() {
	s.front.rewindLocked()
	if s.book.restLocked() {
		s.conf.events.Post(batch.Event{Output: s.conf.o.Name, Op: "drop-end", Count: s.book.Dropped.Total()})
	}
}

// spin looks for a sealed slab for a moment, with mu released, before the drain
// goes to sleep: a producer that fills slabs faster than a sleeping goroutine can
// be woken would otherwise pay for a wake-up (about a microsecond) per slab. It
// does so only while it pays, that is while the last such look found one. For more
// than one it waits no longer than such a wake-up is worth: others may want the
// processor, and a round can take as long as they run.
func (d *drain) spin() bool {
	if !d.spinning {
		return false
	}
	before := d.store.sealed.Load()
	d.store.unlock()
	d.look(before)
	return true // look again, then sleep
}

// look is spin with mu released. before is how many slabs were sealed when the queue
// was found empty.
func (d *drain) look(before uint32) {
	if points {
		point(ptSpin)
	}
	want, began := uint32(d.few), time.Now()
	for range spinRounds {
		if n := d.store.sealed.Load() - before; n >= want || n > 0 && time.Since(began) > spinWorth {
			return
		}
		runtime.Gosched()
	}
	d.spinning = d.store.sealed.Load() != before
}

// sleepTimed releases mu and sleeps until something is to be done, at the latest when
// what came at since has waited long enough.
func (d *drain) sleepTimed(since time.Duration) {
	last := d.store.front.next
	d.store.sleep.lieDownLocked(timed)
	d.store.unlock()
	if points {
		point(ptSleep)
	}
	wait, idle := d.conf.o.FlushInterval, d.conf.o.FlushIdle
	if d.wants.Limits.Age > 0 {
		wait = d.wants.Limits.Age
	}
	if wait < 0 && idle <= 0 {
		<-d.store.sleep.bell
		return
	}
	asleep := time.Now()
	for {
		left := since + wait - time.Since(d.conf.born)
		isLast := idle <= 0 || wait >= 0 && left <= idle
		if !isLast {
			left = idle
		}
		d.timer.Reset(left)
		select {
		case <-d.store.sleep.bell:
			d.timer.Stop()
			d.spinning = d.store.front.spins && time.Since(asleep) < spinWorth
			return
		case <-d.timer.C:
		}
		if points {
			point(ptTimer)
		}
		d.store.lock()
		come := !isLast && d.store.front.next != last
		if come && d.store.sleep.state == timed {
			last = d.store.front.next
			d.store.unlock()
			continue
		}
		d.timerDue = !come // else somebody rings
		d.store.sleep.getUpLocked()
		d.store.unlock()
		return
	}
}
