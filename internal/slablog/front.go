package slablog

import (
	"log/slog"
	"sync"
	"sync/atomic"
)

// A front is the part of a Writer that every call uses: the slab that is filled, and the next
// ticket. It fits one cache line. New sets flush, checks, spins, conf and store.
//
// mu also guards the payload end and the number of slots of the current block. To change the
// current block, a goroutine holds front.mu and store.mu: see [store].
type front struct {
	flush  *slog.LevelVar // the level from which a record is sent at once
	checks bool           // WriteRecord goes through putChecked
	spins  bool           // there is more than one processor
	room   int            // bytes the fast path may still store in cur; -1 forces the slow path
	next   uint64         // tickets issued so far
	cur    *block
	mu     sync.Mutex

	conf  *config
	store *store
}

// lock locks mu.
func (f *front) lock() {
	if !f.mu.TryLock() {
		f.wait()
	}
}

func (f *front) wait() { spinLock(&f.mu, f.spins) }

// spinLock locks mu. If there is more than one processor, it retries the lock before it
// waits. A critical section takes about 50 ns. Waiting in a sync.Mutex costs the goroutine
// that unlocks it a microsecond, and the caller then waits for all goroutines that are ready:
// milliseconds in a program that uses all its processors, where a Mutex does not retry. The pauses
// grow, because each attempt moves the cache line away from the holder. In total they last about
// 50 µs.
func spinLock(mu *sync.Mutex, spins bool) {
	if spins {
		n := firstPause
		for range attempts {
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
	attempts   = 64 // of spinLock
	firstPause = 64 // readings of pause
	lastPause  = 4096
)

// pause is read by spinLock to pass the time. It is never written.
var pause atomic.Uint32

// rewindLocked resets the current block if all its records are settled.
func (f *front) rewindLocked() {
	if b := f.cur; b != nil && b.refs == 0 && b.n == b.cut {
		f.store.gauge.rewound += uint64(f.conf.o.SlabBytes - b.room())
		f.resetLocked(b, f.next+1)
	}
}
