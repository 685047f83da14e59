package slablog

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/forebay-log/forebay/internal/layout"
)

// A front is the part of a Writer that every call uses: the free part of the current slab, and the
// next ticket. The fields up to mu are in one cache line, because with contention each call fetches
// each of its cache lines from another processor.
//
// A goroutine that changes the current block holds front.mu and store.mu; see [store]. During the
// change, the block itself has the end of its payload and the number of its slots, and end is
// noEnd.
type front struct {
	base unsafe.Pointer // start of the memory of cur
	off  int            // offset of the payload of the next record
	end  int            // end of the slot of the next record; noEnd forces the slow path
	next uint64         // number of tickets issued so far
	cur  *block
	mu   sync.Mutex
	_    [16]byte

	flush  *slog.LevelVar // lowest level at which a record is sent at once
	checks bool           // WriteRecord calls putChecked
	spins  bool           // the machine has more than one processor
	conf   *config
	store  *store
	_      [16]byte // pads a Writer to 128 bytes, so that the allocator aligns it to a cache line
}

// noEnd is a value of front.end with which no record fits.
const noEnd = -1

// fits reports whether the fast path may store a record of n bytes.
func (f *front) fits(n int) bool { return f.off+n+layout.SlotBytes <= f.end }

// closeLocked moves the sizes of the current block from the front to the block, and forces the slow
// path.
func (f *front) closeLocked() {
	if f.end != noEnd {
		f.cur.off, f.cur.n = f.off, (len(f.cur.mem)-f.end)/layout.SlotBytes
		f.end = noEnd
	}
}

// reopenLocked opens the fast path for the free part of the current block, unless the next write must
// use the slow path. Both locks are held.
func (f *front) reopenLocked() {
	b, s := f.cur, f.store
	if s.life == accepting && b != nil && b.n > b.cut && s.callers.slabs.n == 0 && s.bell.state != parked && f.conf.o.SlabRecords == 0 {
		f.base, f.off, f.end = b.base, b.off, len(b.mem)-b.n*layout.SlotBytes
	}
}

// lock locks mu.
func (f *front) lock() {
	if !f.mu.TryLock() {
		f.wait()
	}
}

// wait locks mu after a failed TryLock. It is a separate function, so that the compiler inlines
// lock.
func (f *front) wait() { spinLock(&f.mu, f.spins) }

// spinLock locks mu. With more than one processor, it retries before it waits. A critical section
// takes about 50 ns. If a caller waits in a sync.Mutex, unlocking costs a microsecond, and the
// caller then waits for all runnable goroutines. That takes milliseconds in a program that uses all
// its processors. The pauses grow, because each attempt moves the cache line away from the holder.
// In total they last about 50 µs.
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
	attempts   = 64 // maximum number of attempts of spinLock
	firstPause = 64 // number of reads of the variable pause
	lastPause  = 4096
)

// pause is read by spinLock to let time pass. It is never written.
var pause atomic.Uint32

// rewindLocked resets the current block if all its records are settled.
func (f *front) rewindLocked() {
	if b := f.cur; b != nil && b.refs == 0 && b.n == b.cut {
		f.store.gauge.rewound += uint64(f.conf.o.SlabBytes - b.room())
		if b.head == nil {
			b.reset(f.next + 1)
		} else {
			f.store.crash.guardLocked(func() { b.reset(f.next + 1) })
		}
	}
}
