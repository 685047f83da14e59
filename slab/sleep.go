package slab

import (
	"runtime"
	"sync"
	"sync/atomic"
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
func (w *Writer) parkLocked() {
	w.rewindLocked()
	if n := w.waitingLocked(); n > 0 { // what they waited for was lost with the mapped file
		w.serveLocked()
		if w.waitingLocked() < n {
			w.unlock()
			return
		}
	}
	w.sleep.lieDownLocked(parked)
	w.gauge.parkedAt = time.Since(w.born)
	w.restLocked()
	w.setRoomLocked()
	w.unlock()
	if w.crash != nil {
		w.crash.file.Big.Bury() // and truncates the file once none is pending
	}
	if points {
		point(ptPark)
	}
	<-w.sleep.bell
}

// patiently locks mu, or half of it, and looks again and again before it waits, if there
// is more than one processor. A critical section takes about 50 ns; to wait in a
// sync.Mutex takes a microsecond of whoever unlocks it, and puts a caller behind all
// goroutines that are ready: milliseconds in a program that uses its processors up, where
// a Mutex does not look twice. The pauses grow, because each look takes the cache line away
// from the holder. All of them together are some 50 µs.
func patiently(mu interface {
	sync.Locker
	TryLock() bool
}, spins bool) {
	if spins {
		n := firstPause
		for range looks {
			for range n {
				pause.Load()
			}
			if mu.TryLock() {
				return
			}
			n = min(2*n, lastPause)
		}
	}
	mu.Lock()
}

const (
	looks      = 64 // of patiently
	firstPause = 64 // readings of pause
	lastPause  = 4096
)

// pause is what patiently reads to pass the time: nobody writes to it.
var pause atomic.Uint32

// rewindLocked has the current block filled from its start again, if all that is in it is
// settled.
func (w *Writer) rewindLocked() {
	if b := w.cur; b != nil && b.refs == 0 && b.n == b.cut {
		w.gauge.rewound += uint64(w.o.SlabBytes - b.room())
		w.resetLocked(b, w.next+1)
	}
}

// restLocked is called when nothing is pending: a drop episode is over.
func (w *Writer) restLocked() {
	w.rewindLocked()
	if w.book.restLocked() {
		w.events.Post(batch.Event{Output: w.o.Name, Op: "drop-end", Count: w.book.Dropped.Total()})
	}
}

// spin looks for a sealed slab for a moment, with mu released, before the drain
// goes to sleep: a producer that fills slabs faster than a sleeping goroutine can
// be woken would otherwise pay for a wake-up (about a microsecond) per slab. It
// does so only while it pays, that is while the last such look found one. For more
// than one it waits no longer than such a wake-up is worth: others may want the
// processor, and a round can take as long as they run.
func (w *Writer) spin() bool {
	if !w.d.spinning {
		return false
	}
	before := w.sealed.Load()
	w.unlock()
	w.look(before)
	return true // look again, then sleep
}

// look is spin with mu released. before is how many slabs were sealed when the queue
// was found empty.
func (w *Writer) look(before uint32) {
	d := &w.d
	if points {
		point(ptSpin)
	}
	want, began := uint32(d.few), time.Now()
	for range spinRounds {
		if n := w.sealed.Load() - before; n >= want || n > 0 && time.Since(began) > spinWorth {
			return
		}
		runtime.Gosched()
	}
	d.spinning = w.sealed.Load() != before
}

// sleepTimed releases mu and sleeps until something is to be done, at the latest when
// what came at since has waited long enough.
func (w *Writer) sleepTimed(since time.Duration) {
	d := &w.d
	last := w.next
	w.sleep.lieDownLocked(timed)
	w.unlock()
	if points {
		point(ptSleep)
	}
	wait, idle := w.o.FlushInterval, w.o.FlushIdle
	if w.wants.Limits.Age > 0 {
		wait = w.wants.Limits.Age
	}
	if wait < 0 && idle <= 0 {
		<-w.sleep.bell
		return
	}
	asleep := time.Now()
	for {
		left := since + wait - time.Since(w.born)
		isLast := idle <= 0 || wait >= 0 && left <= idle
		if !isLast {
			left = idle
		}
		d.timer.Reset(left)
		select {
		case <-w.sleep.bell:
			d.timer.Stop()
			d.spinning = w.mu.spins && time.Since(asleep) < spinWorth
			return
		case <-d.timer.C:
		}
		if points {
			point(ptTimer)
		}
		w.mu.Lock()
		come := !isLast && w.next != last
		if come && w.sleep.state == timed {
			last = w.next
			w.mu.Unlock()
			continue
		}
		d.timerDue = !come // else somebody rings
		w.sleep.getUpLocked()
		w.mu.Unlock()
		return
	}
}
