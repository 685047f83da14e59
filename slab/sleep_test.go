package slab

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
)

// Each step of the drawing, from each state.
func TestSleepSteps(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*sleep)
		want [4]sleepState // of awake, timed, parked, woken
	}{
		"lies down for a time": {func(s *sleep) { s.lieDownLocked(timed) }, [4]sleepState{timed, timed, timed, timed}},
		"lies down":            {func(s *sleep) { s.lieDownLocked(parked) }, [4]sleepState{parked, parked, parked, parked}},
		"gets up":              {(*sleep).getUpLocked, [4]sleepState{awake, awake, awake, awake}},
		"is woken":             {(*sleep).wakeLocked, [4]sleepState{awake, woken, woken, woken}},
		"unlock":               {func(s *sleep) { s.toRingLocked() }, [4]sleepState{awake, timed, parked, awake}},
	} {
		for from, want := range c.want {
			s := sleep{state: sleepState(from)}
			if c.do(&s); s.state != want {
				t.Errorf("%s, from %d: %d, want %d", name, from, s.state, want)
			}
		}
	}
	for from, want := range [4]bool{woken: true} {
		s := sleep{state: sleepState(from)}
		if got := s.toRingLocked(); got != want {
			t.Errorf("from %d the bell rings: %v, want %v", from, got, want)
		}
	}
}

// The drain lies down and gets up as it is drawn: parked without records, timed with some,
// woken by the first record and by a full slab, and up by its timer.
func TestSleep(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := &memory{}
		w := mustNew(t, m, &Options{SlabBytes: 512, SlabCount: 4, FlushInterval: time.Second})
		is := func(when string, want sleepState, calls int) {
			t.Helper()
			synctest.Wait()
			w.store.lock()
			defer w.store.unlock()
			if w.store.sleep.state != want || m.calls != calls {
				t.Errorf("%s: the drain sleeps %d after %d writes, want %d after %d", when, w.store.sleep.state, m.calls, want, calls)
			}
		}
		is("at first", parked, 0)
		mustWrite(t, w, 0, 300)
		is("with one record", timed, 0)
		mustWrite(t, w, 1, 300)
		is("with a full slab", timed, 1)
		time.Sleep(time.Second)
		is("after the flush interval", parked, 2)
		mustWrite(t, w, 2, 300)
		is("with another record", timed, 2)
		if err := w.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		is("after a flush", parked, 3)
		closeNow(t, w)
	})
}
