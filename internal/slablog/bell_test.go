package slablog

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

// Each transition from each state has the result shown in the diagram of consumerState.
func TestBellSteps(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*bell)
		want [4]consumerState // the states after awake, timed, parked and woken
	}{
		"wake":   {(*bell).wakeLocked, [4]consumerState{awake, woken, woken, woken}},
		"alarm":  {(*bell).alarmLocked, [4]consumerState{woken, woken, woken, woken}},
		"unlock": {func(b *bell) { b.toRingLocked() }, [4]consumerState{awake, timed, parked, awake}},
	} {
		for from, want := range c.want {
			b := bell{state: consumerState(from)}
			if c.do(&b); b.state != want {
				t.Errorf("%s, from %d: %d, want %d", name, from, b.state, want)
			}
		}
	}
	for from, want := range [4]bool{woken: true} {
		b := bell{state: consumerState(from)}
		if got := b.toRingLocked(); got != want {
			t.Errorf("from %d the consumer is woken: %v, want %v", from, got, want)
		}
	}
}

// The consumer is parked while there are no records, and timed while there are some. The first
// record, a full slab and the timer wake the consumer.
func TestBell(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := &memory{}
		w := mustNew(t, m, &slab.Options{SlabBytes: 512, SlabCount: 4, FlushInterval: time.Second})
		is := func(when string, want consumerState, calls int) {
			t.Helper()
			synctest.Wait()
			w.store.lock()
			defer w.store.unlock()
			if w.store.bell.state != want || m.calls != calls {
				t.Errorf("%s: state %d after %d writes, want %d after %d", when, w.store.bell.state, m.calls, want, calls)
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

// A record wakes the consumer only if the consumer waits for records.
func TestBellRingsOnlyAWaitingConsumer(t *testing.T) {
	w, log, err := New(&slab.Options{SlabBytes: 512, SlabCount: 8, FlushInterval: -1}, Consumer{})
	if err != nil {
		t.Fatal(err)
	}
	write := func(n int) {
		for range n {
			if _, err := w.Write(make([]byte, 300)); err != nil {
				t.Fatal(err)
			}
		}
	}
	rings := func(when string, want bool) {
		t.Helper()
		select {
		case <-log.Wake():
			if !want {
				t.Errorf("%s: the consumer is woken", when)
			}
		default:
			if want {
				t.Errorf("%s: the consumer is not woken", when)
			}
		}
	}
	write(3)
	rings("before the first Next", false)
	l, _ := log.Next()
	write(2)
	rings("after a lease", false)
	for l != nil {
		l.Settle(l.Batch().Len())
		l.Release()
		l, _ = log.Next()
	}
	write(1)
	rings("after no lease", true)
	write(1)
	rings("the second time", false)
	if _, ok := log.Flush(); !ok {
		t.Error("closed")
	}
	rings("after Flush", true)
	log.Close()
	rings("after Close", true)
	log.End(t.Context(), true)
	log.Leave()
}
