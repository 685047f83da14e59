package slab

import (
	"log/slog"
	"sync"
	"sync/atomic"
)

// A front is the part of a Writer that every call uses: the slab that is filled, and the next
// ticket. The fields up to mu fit one cache line. New sets flush, spins, conf, store and stages.
//
// mu also guards the payload end and the number of slots of the current block. To change the
// current block, a goroutine holds front.mu and store.mu: see [store].
type front struct {
	flush *slog.LevelVar // the level from which a record is sent at once
	room  int            // bytes the fast path may still store in cur; -1 forces the slow path
	next  uint64         // tickets issued so far; while the stages are open, up to the last sweep
	cur   *block
	mu    sync.Mutex
	_     [24]byte

	// The second line is read without mu and rarely changes.
	mode   atomic.Uint32 // a frontMode
	spins  bool          // there is more than one processor
	stages *stages       // nil: writes never contend enough
	conf   *config
	store  *store
	_      [16]byte // a Writer has 128 bytes: the allocator aligns it to a cache line
}

// The values of front.mode.
const (
	plain   = iota // the fast path
	checked        // putChecked: mapped slabs, or a MaxRecord below the size of a slab; it does not change
	staged         // contended writes go to the stages
)

// lock locks mu.
func (f *front) lock() {
	if !f.mu.TryLock() {
		f.wait(false)
	}
}

// wait locks mu. If unlessStaged is set, it returns false without the lock once the stages are open.
func (f *front) wait(unlessStaged bool) (locked bool) {
	if f.spins && spin(func() bool {
		if unlessStaged && f.mode.Load() == staged {
			return true
		}
		locked = f.mu.TryLock()
		return locked
	}) {
		if !locked {
			return false
		}
	} else {
		f.mu.Lock()
	}
	if f.stages != nil {
		f.stages.contendedLocked(f.next)
	}
	return true
}

// spinLock locks mu. If there is more than one processor, it retries the lock before it
// waits. A critical section takes about 50 ns. Waiting in a sync.Mutex costs the goroutine
// that unlocks it a microsecond, and the caller then waits for all goroutines that are ready:
// milliseconds in a program that uses all its processors, where a Mutex does not retry.
func spinLock(mu *sync.Mutex, spins bool) {
	if !spins || !spin(mu.TryLock) {
		mu.Lock()
	}
}

// spin calls done until it returns true, for about 50 µs, and reports whether it did. The pauses
// grow, because each attempt moves the cache line away from the goroutine that works on it.
func spin(done func() bool) bool {
	n := firstPause
	for range attempts {
		for range n {
			pause.Load()
		}
		if done() {
			return true
		}
		n = min(2*n, lastPause)
	}
	return false
}

const (
	attempts   = 64 // of spin
	firstPause = 64 // readings of pause
	lastPause  = 4096
)

// pause is read by spin to pass the time. It is never written.
var pause atomic.Uint32

// rewindLocked resets the current block if all its records are settled.
func (f *front) rewindLocked() {
	if b := f.cur; b != nil && b.refs == 0 && b.n == b.cut {
		f.store.gauge.rewound += uint64(f.conf.o.SlabBytes - b.room())
		f.resetLocked(b, f.next+1)
	}
}
