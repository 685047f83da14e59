package forebay

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

func newGate(busy time.Duration) *gate {
	g := new(gate)
	g.init(busy)
	return g
}

// enter enters the gate like direct.write.
func (g *gate) enter() entry {
	if g.tryLock() {
		return entered
	}
	return g.lock()
}

// At most one caller holds the gate at a time, every caller enters, and all critical sections are
// counted.
func TestGateExclusion(t *testing.T) {
	for _, slow := range []bool{false, true} {
		g := newGate(time.Minute)
		n, inside := 0, 0
		const goroutines = 64
		per := 2000
		if slow {
			per = 30
		}
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range per {
					if e := g.enter(); e != entered {
						t.Errorf("entry %d", e)
						return
					}
					if inside++; inside != 1 {
						t.Error("two callers are in the section")
					}
					n++
					if slow {
						runtime.Gosched() // so that other callers find the gate held
					}
					inside--
					g.unlock()
				}
			})
		}
		wg.Wait()
		want := goroutines * per
		if c := g.count(); n != want || c.done != uint64(want) || c.pending != 0 || c.stuck {
			t.Errorf("slow=%t: %d sections, count %+v, want %d", slow, n, c, want)
		}
		if s := g.state.Load() & (gateDone - 1); s != 0 {
			t.Errorf("flags are still set: %b", s)
		}
	}
}

// Callers wait as long as each critical section ends within the time limit of the gate, however
// slowly.
func TestGateSlowIsNotStuck(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const busy = 80 * time.Millisecond
		g := newGate(busy)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if e := g.enter(); e != entered {
					t.Errorf("entry %d", e)
					return
				}
				time.Sleep(busy * 6 / gateTicks)
				g.unlock()
			})
		}
		wg.Wait()
		if c := g.count(); c.done != 50 {
			t.Errorf("%+v", c)
		}
	})
}

// If a critical section does not end, a caller waits at most for the time limit of the gate. Later
// callers are turned away at once, until the critical section ends.
func TestGateStuckTurnsCallersAway(t *testing.T) {
	for _, late := range []time.Duration{0, 1, 37 * time.Millisecond, time.Hour} {
		bubble.Test(t, func(t *testing.T) {
			const busy = 250 * time.Millisecond
			g := newGate(busy)
			var events []string
			g.onStuck = func() { events = append(events, "stuck") }
			g.onFree = func() { events = append(events, "free") }
			// Callers first wait for critical sections that end, so that the timer is running.
			if late > 0 {
				g.tryLock()
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() {
						g.enter()
						time.Sleep(time.Millisecond)
						g.unlock()
					})
				}
				synctest.Wait()
				g.unlock()
				wg.Wait()
				time.Sleep(late)
			}
			if !g.tryLock() {
				t.Fatal("the gate is held")
			}
			var wg sync.WaitGroup
			for i := range 10 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 10 * time.Millisecond)
					begun := time.Now()
					if e := g.enter(); e != turnedAway {
						t.Errorf("entry %d", e)
					}
					d := time.Since(begun)
					if d > busy || i == 0 && d < busy*3/4 {
						t.Errorf("caller %d waited %v", i, d)
					}
				})
			}
			wg.Wait()
			begun := time.Now()
			for range 100 {
				if e := g.enter(); e != turnedAway {
					t.Errorf("entry %d", e)
				}
			}
			if d := time.Since(begun); d != 0 {
				t.Errorf("100 later callers waited %v", d)
			}
			if c := g.count(); !c.stuck || c.pending != 1 {
				t.Errorf("%+v", c)
			}
			g.unlock()
			if e := g.enter(); e != entered {
				t.Errorf("after the end: entry %d", e)
			}
			g.unlock()
			synctest.Wait()
			if len(events) != 2 || events[0] != "stuck" || events[1] != "free" {
				t.Errorf("events %q", events)
			}
			if s := g.state.Load() & (gateDone - 1); s != 0 {
				t.Errorf("flags are still set: %b", s)
			}
		})
	}
}

// A gate still detects a stuck critical section after the end of the synctest bubble in which its
// timer was started.
func TestGateReplacesTimerOfEndedBubble(t *testing.T) {
	g := newGate(20 * time.Millisecond)
	contend := func() {
		if !g.tryLock() {
			t.Fatal("the gate is held")
		}
		done := make(chan entry)
		go func() { done <- g.enter() }()
		for g.state.Load()&gateWaiters == 0 {
			runtime.Gosched()
		}
		g.unlock()
		<-done
		g.unlock()
	}
	bubble.Test(t, func(t *testing.T) { contend() })
	if g.watch == nil {
		t.Fatal("the timer was not started")
	}
	if !g.tryLock() {
		t.Fatal("the gate is held")
	}
	if e := g.enter(); e != turnedAway { // hangs if no timer checks the gate
		t.Errorf("entry %d", e)
	}
	g.unlock()
}

// A gate uses one timer, however long a critical section takes.
func TestGateUsesOneTimer(t *testing.T) {
	for _, busy := range []time.Duration{time.Hour, math.MaxInt64} {
		g := newGate(busy)
		for range 3 {
			g.arm(time.Now())
		}
		g.watch.Stop()
		if g.watchID != 1 {
			t.Errorf("busy %v: %d watches", busy, g.watchID)
		}
	}
}

// Callers that enter with tryLock cannot overtake a waiter forever.
func TestGateWaiterIsNotStarved(t *testing.T) {
	g := newGate(time.Minute)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !stop.Load() {
				if g.enter() == entered {
					for range 100 {
						g.state.Load()
					}
					g.unlock()
				}
			}
		})
	}
	for range 200 {
		if e := g.queue(); e != entered {
			t.Errorf("entry %d", e)
			break
		}
		g.unlock()
	}
	stop.Store(true)
	wg.Wait()
	if s := g.state.Load() & (gateDone - 1); s != 0 {
		t.Errorf("flags are still set: %b", s)
	}
}

// A waiter that has waited longer than gateStarve prevents newcomers from entering until it enters
// or is turned away.
func TestGateStarvedWaiterBlocksNewcomers(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			g := newGate(time.Second)
			g.tryLock()
			in := make(chan entry)
			go func() { in <- g.queue() }()
			synctest.Wait()
			overtake := func() bool { // the waiter receives the token after a newcomer has tried to enter
				wake := g.wake
				g.wake = make(chan struct{}, 1)
				g.unlock()
				ok := g.tryLock()
				g.wake = wake
				g.token()
				return ok
			}
			if !overtake() {
				t.Error("a newcomer was kept out before the waiter had waited for gateStarve")
			}
			time.Sleep(2 * gateStarve)
			if !overtake() {
				t.Error("a newcomer was kept out before the waiter received the token")
			}
			synctest.Wait()
			if stuck {
				if e := <-in; e != turnedAway {
					t.Errorf("entry %d", e)
				}
				g.unlock()
				if !g.tryLock() {
					t.Error("newcomers are kept out although there is no waiter")
				}
				return
			}
			if overtake() {
				t.Error("a newcomer overtook a waiter that has waited longer than gateStarve")
			}
			if e := <-in; e != entered {
				t.Errorf("entry %d", e)
			}
			g.unlock()
			if !g.tryLock() {
				t.Error("newcomers are kept out although there is no waiter")
			}
		})
	}
}

func TestGateLockCtx(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate(time.Second)
		g.tryLock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := g.lockCtx(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("lockCtx during a section that does not end: %v", err)
		}
		got := make(chan error, 3)
		for range 3 {
			go func() {
				err := g.lockCtx(t.Context())
				if err == nil {
					if c := g.count(); c.pending != 0 {
						t.Errorf("a flush counts as a write: %+v", c)
					}
					g.unlockCtx(false)
				}
				got <- err
			}()
		}
		synctest.Wait()
		g.unlock()
		for range 3 {
			if err := <-got; err != nil {
				t.Error(err)
			}
		}
		if c := g.count(); c.done != 1 {
			t.Errorf("%+v", c)
		}
		if err := g.lockCtx(ctx); err != nil { // the gate is free, so lockCtx does not wait
			t.Error(err)
		}
		g.unlockCtx(true)
		if e := g.enter(); e != foundClosed {
			t.Errorf("after closing: entry %d", e)
		}
	})
}

// Closing a gate turns waiters away.
func TestGateCloseTurnsWaitersAway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate(time.Second)
		if err := g.lockCtx(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := make(chan entry, 5)
		for range 5 {
			go func() { got <- g.enter() }()
		}
		synctest.Wait()
		if c := g.count(); c.pending != 5 {
			t.Errorf("%+v", c)
		}
		g.unlockCtx(true)
		for range 5 {
			if e := <-got; e != foundClosed {
				t.Errorf("a waiter: entry %d", e)
			}
		}
		if e := g.enter(); e != foundClosed {
			t.Errorf("entry %d", e)
		}
		if c := g.count(); c.done != 0 || c.pending != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// The number of critical sections does not overflow the bits of gate.state: gate.release moves the
// highest bit of the number to gate.folded.
func TestGateCountDoesNotOverflow(t *testing.T) {
	g := newGate(time.Second)
	g.state.Store((gateFoldCount - 3) * gateDone)
	want := uint64(gateFoldCount - 3)
	for range 10 {
		if e := g.enter(); e != entered {
			t.Fatalf("entry %d", e)
		}
		if c := g.count(); c.done != want || c.pending != 1 {
			t.Fatalf("inside: %+v, want %d", c, want)
		}
		g.unlock()
		want++
		if c := g.count(); c.done != want || c.pending != 0 {
			t.Fatalf("%+v, want %d", c, want)
		}
	}
	if g.folded != gateFoldCount {
		t.Errorf("folded %d", g.folded)
	}
}

// With random critical sections, some of them stuck, and random calls of lockCtx, no caller hangs
// and no critical section is counted twice.
func TestGateRandom(t *testing.T) {
	for seed := range testkit.Walks(t, 20) {
		bubble.Test(t, func(t *testing.T) {
			const busy = 16 * time.Millisecond
			g := newGate(busy)
			var in, away atomic.Uint64
			inside := 0
			var wg sync.WaitGroup
			for i := range 12 {
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(seed, uint64(i)))
					for range 60 {
						if rnd.IntN(20) == 0 {
							if err := g.lockCtx(t.Context()); err != nil {
								t.Error(err)
							}
							inside++
							inside--
							g.unlockCtx(false)
							continue
						}
						begun := time.Now()
						switch g.enter() {
						case entered:
							in.Add(1)
							if inside++; inside != 1 {
								t.Error("two callers are in the section")
							}
							switch rnd.IntN(30) {
							case 0:
								time.Sleep(4 * busy) // the gate becomes stuck
							case 1, 2, 3:
								time.Sleep(time.Duration(rnd.IntN(int(busy / 2))))
							case 4, 5, 6, 7:
								runtime.Gosched()
							}
							inside--
							g.unlock()
						case turnedAway:
							away.Add(1)
							time.Sleep(busy) // a pause between two records
						}
						_ = begun
					}
				})
			}
			wg.Wait()
			c := g.count()
			if c.done != in.Load() || c.pending != 0 || c.stuck {
				t.Errorf("seed %d: %+v, %d entered, %d turned away", seed, c, in.Load(), away.Load())
			}
			if s := g.state.Load() & (gateDone - 1); s != 0 {
				t.Errorf("seed %d: flags are still set: %b", seed, s)
			}
		})
	}
}
