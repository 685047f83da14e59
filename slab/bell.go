package slab

// A bell wakes the consumer of a store, which waits for it.
type bell struct {
	state consumerState
	ch    chan struct{} // capacity 1
}

// consumerState is the state of the consumer, as far as a store knows it. A call that stores a
// record rings only if the consumer waits for that: the usual call wakes no goroutine.
//
//	awake ──no slab is full──▶ timed ──something is due──┐
//	  ▲ └─────nothing─────────▶ parked ──any record──────▼
//	  │                                                woken
//	  └──────────────unlock rings the bell───────────────┘
//
// From each state it is awake when it looks at the store again. A shortage of memory, Flush and
// Close ring in each state: the consumer may be waiting for something else.
type consumerState uint8

const (
	awake  consumerState = iota // it will look at the store without a bell
	timed                       // until its time, or a sealed slab
	parked                      // until there is a record
	woken                       // the next unlock rings the bell
)

// wakeLocked makes unlock ring if the consumer waits for the store.
func (b *bell) wakeLocked() {
	if b.state == timed || b.state == parked {
		b.state = woken
	}
}

// alarmLocked makes unlock ring.
func (b *bell) alarmLocked() { b.state = woken }

// toRingLocked reports whether the bell is to be rung now. The consumer counts as awake from
// then on.
func (b *bell) toRingLocked() bool {
	if b.state != woken {
		return false
	}
	b.state = awake
	return true
}

// ring wakes the consumer. It is called without locks, and does not block.
func (b *bell) ring() {
	select {
	case b.ch <- struct{}{}:
	default:
	}
}
