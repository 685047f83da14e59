package wallclock

import (
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

// The clock returns the current time, and does not run backwards within a goroutine.
func TestClockDoesNotRunBackwards(t *testing.T) {
	c := newClock()
	begun := time.Now()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			last := time.Time{}
			for time.Since(begun) < 100*time.Millisecond {
				before := time.Now()
				got := c.now()
				after := time.Now()
				if got.Before(last) {
					t.Errorf("%v after %v", got, last)
					return
				}
				// Only wall clock readings are compared, because the wall clock may be adjusted
				// during the test.
				if d := before.Round(0).Sub(got); d > time.Millisecond {
					t.Errorf("%v behind", d)
				}
				if d := got.Sub(after.Round(0)); d > time.Millisecond {
					t.Errorf("%v ahead", d)
				}
				last = got
			}
		})
	}
	wg.Wait()
}

// A change of the wall clock is visible after clockResync.
func TestClockFollowsSteps(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour, time.Millisecond, -time.Millisecond} {
		c := newClock()
		c.offset.Add(int64(step)) // has the effect of a change of the wall clock by -step
		begun := time.Now()
		for time.Since(begun) < 2*clockResync {
			c.now()
		}
		before := time.Now()
		got := c.now()
		after := time.Now()
		if early, late := before.Round(0).Sub(got), got.Sub(after.Round(0)); max(early, late) > 500*time.Microsecond {
			t.Errorf("after a step of %v: %v between %v and %v", -step, got, before, after)
		}
	}
}

// Small measurement errors do not make the clock jump.
func TestClockIgnoresNoise(t *testing.T) {
	c := newClock()
	for i := range 50 {
		want := c.offset.Load() + int64(clockJitter)/2*int64(i%2*2-1)
		c.offset.Store(want)
		c.until.Store(-1)
		c.now()
		if got := c.offset.Load(); got != want {
			t.Fatalf("the offset moved by %d ns", got-want)
		}
	}
}

// In a bubble, the clock returns the bubble's time. Outside it returns the real time, even while it
// is used in a bubble.
func TestClockInBubble(t *testing.T) {
	c := newClock()
	for range 3 {
		bubble.Test(t, func(t *testing.T) {
			for _, d := range []time.Duration{0, time.Nanosecond, time.Millisecond, time.Hour, 0} {
				time.Sleep(d)
				if got, want := c.now(), time.Now(); !got.Equal(want) {
					t.Errorf("%v, want %v", got, want)
				}
			}
		})
		if d := time.Since(c.now()); d.Abs() > time.Second {
			t.Errorf("outside: %v off", d)
		}
	}
	// The clock is used inside and outside at the same time.
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if d := time.Since(c.now()); d.Abs() > time.Second {
				t.Errorf("beside a bubble: %v off", d)
				return
			}
		}
	})
	for range 20 {
		bubble.Test(t, func(t *testing.T) {
			for range 200 {
				if got, want := c.now(), time.Now(); !got.Equal(want) {
					t.Errorf("%v, want %v", got, want)
				}
			}
		})
	}
	close(stop)
	wg.Wait()
}

func TestClockDoesNotAllocate(t *testing.T) {
	c := newClock()
	for name, f := range map[string]func(){"now": func() { c.now() }, "measure": func() { c.until.Store(-1); c.now() }} {
		if n := allocs.PerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkClock(b *testing.B) {
	b.Run("time.Now", func(b *testing.B) {
		for b.Loop() {
			time.Now()
		}
	})
	b.Run("clock", func(b *testing.B) {
		for b.Loop() {
			Now()
		}
	})
}
