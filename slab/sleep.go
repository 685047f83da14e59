package slab

import "github.com/forebay-log/forebay/batch"

// A sleep is how the consumer of a store waits, and how it is woken.
type sleep struct {
	state sleepState
	bell  chan struct{} // capacity 1
}

// sleepState is the sleep of the consumer.
//
//	awake ──no slab is full──▶ timed ──something is due──┐
//	  ▲ └─────nothing─────────▶ parked ──any record──────▼
//	  │                                                woken
//	  └──────────────unlock rings the bell───────────────┘
//
// From each state it is awake when it looks at the store again: when its time is over, or
// when the bell was rung before it began to wait.
type sleepState uint8

const (
	awake  sleepState = iota // it will look at the store without being told
	timed                    // until its time, or a sealed slab
	parked                   // until there is a record
	woken                    // the next unlock rings the bell
)

// lieDownLocked is called by the consumer before it waits, in the state timed or parked.
func (s *sleep) lieDownLocked(how sleepState) { s.state = how }

// getUpLocked is called by the consumer when it looks at the store.
func (s *sleep) getUpLocked() { s.state = awake }

// wakeLocked makes unlock wake the consumer, if it sleeps.
func (s *sleep) wakeLocked() {
	if s.state == timed || s.state == parked {
		s.state = woken
	}
}

// toRingLocked reports whether the bell is to be rung now. The consumer counts as awake from
// then on.
func (s *sleep) toRingLocked() bool {
	if s.state != woken {
		return false
	}
	s.state = awake
	return true
}

// ring wakes the consumer. It is called without locks, and does not block.
func (s *sleep) ring() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// rewindLocked has the current block filled from its start again, if all its records are
// settled.
func (f *front) rewindLocked() {
	if b := f.cur; b != nil && b.refs == 0 && b.n == b.cut {
		f.store.gauge.rewound += uint64(f.conf.o.SlabBytes - b.room())
		f.resetLocked(b, f.next+1)
	}
}

// restLocked is called when nothing is pending: an episode of drops is over.
func (s *store) restLocked() {
	s.front.rewindLocked()
	if s.book.restLocked() {
		s.conf.events.Post(batch.Event{Output: s.conf.o.Name, Op: "drop-end", Count: s.book.Dropped.Total()})
	}
}
