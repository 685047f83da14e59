package slablog

// A bell wakes the waiting consumer of a store.
type bell struct {
	state consumerState
	// ch has capacity 1, so ringing several times before the consumer looks has the effect of one.
	ch chan struct{}
}

// consumerState is the state of the consumer in the view of the store. A call that stores a record
// rings the bell only if the consumer waits for a record, so most calls wake no goroutine.
//
//	awake ──no slab is full──▶ timed ──something is due──┐
//	  ▲ └─────nothing─────────▶ parked ──any record──────▼
//	  │                                                woken
//	  └──────────────unlock rings the bell───────────────┘
//
// In each state, the consumer becomes awake when it examines the store. A shortage of memory, Flush
// and Close ring the bell in every state: a consumer that is awake may still be waiting for an
// answer of its destination.
type consumerState uint8

const (
	awake  consumerState = iota // the consumer will examine the store even if the bell does not ring
	timed                       // the consumer waits until a set time or for a sealed slab
	parked                      // the consumer waits for a record
	woken                       // the next unlock rings the bell
)

// wakeLocked makes unlock ring the bell if the consumer waits.
func (b *bell) wakeLocked() {
	if b.state == timed || b.state == parked {
		b.state = woken
	}
}

// alarmLocked makes unlock ring the bell.
func (b *bell) alarmLocked() { b.state = woken }

// toRingLocked reports whether the caller must ring the bell. If it returns true, the consumer
// counts as awake.
func (b *bell) toRingLocked() bool {
	if b.state != woken {
		return false
	}
	b.state = awake
	return true
}

// ring wakes the consumer. It is called without locks and does not block.
func (b *bell) ring() {
	select {
	case b.ch <- struct{}{}:
	default:
	}
}
