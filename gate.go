package forebay

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A gate is the lock of one direct output. A critical section is the time during which one caller
// holds the gate, usually for one write. A gate differs from sync.Mutex in three ways. It detects
// a critical section that does not end. The atomic operation that ends a successful critical
// section also counts it, so accounting costs nothing extra per record. Callers wait on a channel,
// so the gate can turn waiting callers away.
//
// An uncontended gate costs two compare-and-swaps. If the gate is held, a caller spins briefly
// and then waits for a token. The end of each critical section sends a token if there are
// waiters. After a long wait, a waiter prevents newcomers from overtaking it.
//
// A gate is stuck if a critical section has not ended after about the time in the field busy, and
// callers are waiting. Then all waiters leave, and later callers are turned away at once until the
// critical section ends. As long as critical sections end, however slowly, callers wait.
type gate struct {
	// state packs the flags below, the number of waiters and the number of successful critical
	// sections into one word, so that one atomic operation changes all of them.
	state atomic.Uint64
	wake  chan struct{} // holds the token that wakes one waiter; capacity 1
	busy  time.Duration

	onStuck func() // called with mu held when the gate is found stuck; may be nil
	onFree  func() // called with mu held when the gate is no longer stuck; may be nil

	// mu is held for a few instructions. Under it, only the lock of the event queue is acquired.
	mu     sync.Mutex
	folded uint64 // successful critical sections that no longer fit into state
	failed uint64 // failed critical sections
	turned uint64 // callers turned away
	// freed is closed by the method released at the end of the current critical section. It is nil
	// unless a call of lockCtx waits.
	freed chan struct{}
	// watch is the timer that checks whether the gate is stuck. It is nil if there was no recent
	// waiter.
	watch   *time.Timer
	watchID uint64    // number of the timer, to ignore ticks of an earlier timer
	ticked  time.Time // time of the last tick
	seen    uint64    // ended critical sections at the last tick
	idle    int       // ticks in which no critical section has ended
}

const (
	gateHeld    = 1 << iota // a caller holds the gate
	gateStarved             // a waiter has waited longer than gateStarve: only waiters may enter
	gateStuck               // the current critical section does not end; implies gateHeld
	gateClosed              // no writer may enter again
	gateWatched             // the end of the critical section must close freed
	gateNoWrite             // the gate is held for a flush or close, which is not counted as a write

	gateWaiter    = 1 << 6 // unit of the number of waiters, which has 24 bits
	gateWaiters   = (1<<24 - 1) * gateWaiter
	gateDone      = 1 << 30 // unit of the number of successful critical sections, which has 33 bits
	gateFold      = 1 << 63 // flag: the count must be moved to the field folded
	gateFoldCount = gateFold / gateDone

	gateBarred = gateHeld | gateStarved | gateStuck | gateClosed // flags that keep newcomers out
	gateSlow   = gateStarved | gateStuck | gateClosed | gateWatched | gateNoWrite | gateWaiters | gateFold
)

// These constants determine how long a caller that finds the gate held spins before it waits for
// a token. A critical section is usually a write of about half a microsecond.
const (
	gateSpins  = 8  // number of attempts to enter without yielding
	gatePause  = 16 // loads of the state between two of these attempts
	gateYields = 2  // number of further attempts, each after runtime.Gosched
)

// gateStarve is the time after which a waiter prevents newcomers from overtaking it.
const gateStarve = time.Millisecond

// gateTicks is the number of times that a timer checks the gate within the time in gate.busy, while
// there are waiters. After gateTicks-1 checks in which no critical section has ended the gate counts
// as stuck, so no caller waits longer than that time for one critical section.
const gateTicks = 8

// init sets the time after which the gate is stuck. The zero gate is not usable.
func (g *gate) init(busy time.Duration) {
	g.busy = busy
	g.wake = make(chan struct{}, 1)
}

// An entry is the result of an attempt to enter a gate.
type entry uint8

const (
	entered entry = iota
	turnedAway
	foundClosed
)

// tryLock acquires the gate if that is possible without waiting.
func (g *gate) tryLock() bool {
	s := g.state.Load()
	return s&gateBarred == 0 && g.state.CompareAndSwap(s, s|gateHeld)
}

// unlock releases the gate after tryLock or lock, and counts one successful critical section.
func (g *gate) unlock() {
	s := g.state.Load()
	if s&gateSlow != 0 || !g.state.CompareAndSwap(s, s-gateHeld+gateDone) {
		g.leave(gateDone, 0)
	}
}

// unlockFailed is like unlock, for a critical section that has failed.
func (g *gate) unlockFailed() {
	g.mu.Lock()
	g.failed++
	s := g.release(0, 0)
	g.mu.Unlock()
	g.released(s)
}

// lock waits until the caller holds the gate, is turned away because the gate is stuck, or finds
// the gate closed. Callers try tryLock first.
func (g *gate) lock() entry {
	for i := range gateSpins + gateYields {
		s := g.state.Load()
		if s&(gateClosed|gateStuck) != 0 {
			return g.refuse(s, false)
		}
		if s&gateStarved != 0 {
			break
		}
		if s&gateHeld == 0 {
			if g.state.CompareAndSwap(s, s|gateHeld) {
				return entered
			}
			continue
		}
		if i >= gateSpins {
			runtime.Gosched()
			continue
		}
		for range gatePause {
			if g.state.Load()&gateHeld == 0 {
				break
			}
		}
	}
	return g.queue()
}

// refuse returns the reason why a caller cannot enter a gate in state s: the gate is stuck or
// closed. It counts the caller as turned away if the gate is stuck. waiting reports whether the
// caller is one of the waiters, which refuse then leaves in the same critical section.
func (g *gate) refuse(s uint64, waiting bool) entry {
	g.mu.Lock()
	e := foundClosed
	if s&gateClosed == 0 {
		e = turnedAway
		g.turned++
	}
	others := waiting && g.resign()
	g.mu.Unlock()
	if others {
		g.token()
	}
	return e
}

// resign removes a waiter, and reports whether others remain.
func (g *gate) resign() bool {
	for {
		s := g.state.Load()
		n := s - gateWaiter
		if n&gateWaiters == 0 {
			n &^= gateStarved
		}
		if g.state.CompareAndSwap(s, n) {
			return n&gateWaiters != 0
		}
	}
}

// queue adds the caller to the waiters and waits for tokens until the caller holds the gate or is
// turned away.
func (g *gate) queue() entry {
	for { // until the caller is a waiter
		s := g.state.Load()
		switch {
		case s&(gateClosed|gateStuck) != 0:
			return g.refuse(s, false)
		case s&(gateHeld|gateStarved) == 0:
			if g.state.CompareAndSwap(s, s|gateHeld) {
				return entered
			}
			continue
		}
		// The waiter is added in the same atomic operation that verifies that the gate is held,
		// so the end of the critical section finds the waiter and sends a token.
		if g.state.CompareAndSwap(s, s+gateWaiter) {
			break
		}
	}
	begun := time.Now()
	g.arm(begun)
	for {
		<-g.wake
		for {
			s := g.state.Load()
			if s&(gateClosed|gateStuck) != 0 {
				return g.refuse(s, true)
			}
			if s&gateHeld == 0 {
				if g.state.CompareAndSwap(s, (s|gateHeld)&^gateStarved-gateWaiter) {
					return entered
				}
				continue
			}
			// Another caller has acquired the gate. When that caller releases the gate, it sends
			// a token again.
			if s&gateStarved == 0 && time.Since(begun) > gateStarve {
				if !g.state.CompareAndSwap(s, s|gateStarved) {
					continue
				}
			}
			break
		}
	}
}

// token wakes one waiter.
func (g *gate) token() {
	select {
	case g.wake <- struct{}{}:
	default: // a token is already pending; its receiver reads the new state
	}
}

// leave releases the gate in any state. It adds delta to the state, sets the given flags, and
// wakes waiting callers.
func (g *gate) leave(delta, flags uint64) { g.released(g.release(delta, flags)) }

// release changes the state as described at leave, and returns the previous state. If delta is 0,
// the caller may hold mu.
func (g *gate) release(delta, flags uint64) uint64 {
	for {
		s := g.state.Load()
		n := s&^(gateHeld|gateStuck|gateWatched|gateNoWrite) + delta | flags
		if s&gateFold != 0 && delta != 0 {
			if g.fold(s, n&^gateFold) {
				return s
			}
		} else if g.state.CompareAndSwap(s, n) {
			return s
		}
	}
}

// released wakes waiting callers after release, which has returned s.
func (g *gate) released(s uint64) {
	if s&gateWatched != 0 {
		g.mu.Lock()
		if g.freed != nil {
			close(g.freed)
			g.freed = nil
		}
		g.mu.Unlock()
	}
	if s&gateWaiters != 0 {
		g.token()
	}
	if s&gateStuck != 0 && g.onFree != nil {
		g.mu.Lock() // wait until onStuck has returned
		g.onFree()
		g.mu.Unlock()
	}
}

// fold prevents an overflow of the count of critical sections in the state. It replaces the state
// s by n, which lacks the top bit of the count, and adds the value of that bit to g.folded. It
// returns false if the state has changed.
func (g *gate) fold(s, n uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.state.CompareAndSwap(s, n) {
		return false
	}
	g.folded += gateFoldCount
	return true
}

// lockCtx acquires the gate for a flush or close, or returns an error if ctx ends first. It waits
// even while the gate is stuck, and it also acquires a closed gate.
func (g *gate) lockCtx(ctx context.Context) error {
	for {
		s := g.state.Load()
		if s&gateHeld == 0 {
			if g.state.CompareAndSwap(s, s|gateHeld|gateNoWrite) {
				return nil
			}
			continue
		}
		g.mu.Lock()
		if g.freed == nil {
			g.freed = make(chan struct{})
		}
		freed := g.freed
		// The method released acquires mu before it closes the channel. mu is held here, so
		// released finds the channel.
		ok := g.state.CompareAndSwap(s, s|gateWatched)
		g.mu.Unlock()
		if !ok {
			continue
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unlockCtx releases the gate after lockCtx. If closed is set, no writer can acquire the gate
// again.
func (g *gate) unlockCtx(closed bool) {
	if closed {
		g.leave(0, gateClosed)
		return
	}
	g.leave(0, 0)
}

// gateCount holds the numbers of writes through a gate.
type gateCount struct {
	done    uint64 // successful critical sections
	failed  uint64 // failed critical sections
	turned  uint64 // callers turned away
	pending uint64 // critical sections begun or waited for
	stuck   bool
}

// count returns the counts of the gate at one moment. It does not wait for the current critical
// section.
func (g *gate) count() gateCount {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.state.Load()
	c := gateCount{
		done: g.folded + s/gateDone, failed: g.failed, turned: g.turned, pending: s & gateWaiters / gateWaiter, stuck: s&gateStuck != 0,
	}
	if s&(gateHeld|gateNoWrite) == gateHeld {
		c.pending++
	}
	return c
}

// arm starts the timer that checks whether the gate is stuck, unless the timer is running.
func (g *gate) arm(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.watch != nil {
		// A timer of another synctest bubble is replaced: it may never tick, and its clock shows a
		// different time.
		if d := now.Sub(g.ticked); d >= 0 && d/4 < g.busy {
			return
		}
	}
	g.watchID++
	id := g.watchID
	g.ticked, g.seen, g.idle = now, g.state.Load()/gateDone+g.failed, 0
	g.watch = time.AfterFunc(g.tick(), func() { g.check(id) })
}

// tick returns the interval between two checks of the gate.
func (g *gate) tick() time.Duration { return max(g.busy/gateTicks, 1) }

// check handles one tick of the timer with the number id.
func (g *gate) check(id uint64) {
	g.mu.Lock()
	stuck := id == g.watchID && g.checkLocked()
	g.mu.Unlock()
	if stuck {
		g.token() // refuse sends the token to the next waiter
	}
}

// checkLocked reports whether the gate has just become stuck. If it has not, and there are
// waiters, checkLocked schedules another tick.
func (g *gate) checkLocked() bool {
	for {
		s := g.state.Load()
		if s&gateWaiters == 0 || s&gateStuck != 0 {
			g.watch = nil
			return false
		}
		if ended := s/gateDone + g.failed; ended != g.seen || s&gateHeld == 0 {
			g.seen, g.idle = ended, 0
			break
		}
		if g.idle+1 < gateTicks-1 {
			g.idle++
			break
		}
		// A successful critical section changes the count in s, and a failed one ends with mu
		// held. So if the swap succeeds, none has ended since the Load.
		if g.state.CompareAndSwap(s, s|gateStuck) {
			g.watch = nil
			if g.onStuck != nil {
				g.onStuck()
			}
			return true
		}
	}
	g.ticked = time.Now()
	g.watch.Reset(g.tick())
	return false
}
