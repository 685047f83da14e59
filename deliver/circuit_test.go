package deliver

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// Each letter of the string steps is the response of the destination to the next attempt: o accepts
// all records, x fails, r refuses all by index, p accepts a part, f fails with 401, e ends the
// session. The letter at the same position in the string states is the state of the circuit after
// that attempt.
func TestCircuitTransitions(t *testing.T) {
	for _, tt := range []struct{ name, steps, states string }{
		{"five in a row open", "xxxxx", "ccccO"},
		{"so do five ends of a session", "eeeee", "ccccO"},
		{"a success in between does not", "xxxxoxxxx", "ccccccccc"},
		{"ten of twenty open", "oooooooooo" + "xxxx" + "o" + "xxxx" + "o" + "xx", "cccccccccc" + "cccc" + "c" + "cccc" + "c" + "cO"},
		{"refusals are no failures", "rrrrrrrrrr", "cccccccccc"},
		{"parts count neither way", "xxxxppppx", "ccccccccO"},
		{"401 opens at once", "f", "O"},
		{"probe fails", "xxxxxx", "ccccOO"},
		{"one success is not enough", "xxxxxox", "ccccOhO"},
		{"two are", "xxxxxoo", "ccccOhc"},
		{"refusals count", "xxxxxrr", "ccccOhc"},
		{"parts do not", "xxxxxppoo", "ccccOhhhc"},
		{"401 in between", "xxxxxof", "ccccOhO"},
		{"the count begins anew", "xxxxxooxxxx", "ccccOhccccc"},
		{"a success before a failed probe does not count", "xxxxxoxoo", "ccccOhOhc"},
		{"two successes are needed each time", "xxxxxooxxxxxoo", "ccccOhcccccOhc"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				d := newManual(1)
				x := mustNew(t, d, &Options{Breaker: &BreakerOptions{ProbeRecords: 5}})
				m := &testkit.Model{}
				names := map[State]rune{Closed: 'c', Open: 'O', HalfOpen: 'h'}
				var got []rune
				for i, step := range tt.steps {
					for x.Account().Pending.Total() < 5 {
						send(t, m, x, m.Batch(5, 32, batch.Meta{}))
					}
					synctest.Wait()
					for n := 0; len(d.starts()) == i; n++ {
						if n == 1000 {
							t.Fatalf("step %d: nothing was sent", i)
						}
						time.Sleep(time.Second)
					}
					switch step {
					case 'o':
						d.answer(i, allAccepted)
					case 'x':
						d.answer(i, noneAccepted(testkit.ErrDown))
					case 'r':
						d.answer(i, batch.Outcome{Refused: batch.All(), Refusal: errors.New("400")})
					case 'p':
						d.answer(i, batch.Outcome{Open: batch.From(1), Why: testkit.ErrDown})
					case 'f':
						d.answer(i, noneAccepted(batch.Fatal(errors.New("401"))))
					case 'e':
						d.end(testkit.ErrDown)
					}
					got = append(got, names[x.Stats().Breaker])
				}
				if string(got) != tt.states {
					t.Errorf("%s: states %s, want %s", tt.steps, string(got), tt.states)
				}
				_, _ = shutdown(x, 0)
			})
		})
	}
}

// A failure to open a session counts as a failure of the circuit.
func TestCircuitOpensWithoutASession(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(4)
		var up atomic.Bool
		d.open = func(int, Life) error {
			if up.Load() {
				return nil
			}
			return errors.New("connection refused")
		}
		ev := &testkit.Events{}
		x := mustNew(t, d, &Options{OnError: ev.Add})
		m := &testkit.Model{}
		send(t, m, x, m.Batch(5, 32, batch.Meta{}))
		time.Sleep(5 * time.Minute)
		if s := x.Stats(); s.Breaker != Open || s.LastError != "connection refused" || s.Retries < 8 || s.Attempts != 0 || ev.Count("send") != 1 {
			t.Errorf("%+v, events %v", s, ev.Ops())
		}
		up.Store(true)
		time.Sleep(2 * time.Minute)
		d.mustStart(t, 1)
		d.answer(0, allAccepted)
		mustBalance(t, m, x, 5)
		mustClose(t, x)
	})
}

// While the circuit is open, nothing is sent. At first it is open for 1 s, and each failed probe
// doubles this time, up to a minute. The actual time is random, between half and all of it.
func TestCircuitOpenTimes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(1)
		x := mustNew(t, d, nil)
		m := &testkit.Model{}
		send(t, m, x, m.Batch(3, 32, batch.Meta{}))
		n := 0
		fail := func() { // makes the next attempt fail
			for range 10000 {
				synctest.Wait()
				if len(d.starts()) > n {
					d.answer(n, noneAccepted(testkit.ErrDown))
					n++
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
			t.Fatal("no attempt")
		}
		for range 5 {
			fail()
		}
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			want *= time.Second
			if x.Stats().Breaker != Open {
				t.Fatal("not open")
			}
			began := time.Now()
			fail()
			if d := time.Since(began); d < want/2 || d > want+20*time.Millisecond {
				t.Errorf("open for %s, want %s to %s", d, want/2, want)
			}
		}
		if s := x.Stats(); s.Trips != 9 {
			t.Errorf("%d trips", s.Trips)
		}
		_, _ = shutdown(x, 0)
	})
}

// The circuit stays open for at least the delay that the destination requests, and at least
// FatalDelay after a fatal error.
func TestCircuitOpensForLonger(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want time.Duration
	}{
		{batch.RetryAfter(errors.New("503"), 5*time.Minute), 5 * time.Minute},
		{batch.Fatal(errors.New("403")), time.Minute},
	} {
		bubble.Test(t, func(t *testing.T) {
			sink := testkit.NewSink(testkit.Fail(tt.err))
			x := mustNew(t, destOf(sink), nil)
			if err := x.Send(t.Context(), lines(1)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(tt.want - 1)
			if n := sink.Calls(); n != 1 {
				t.Errorf("%v: probed before the delay was over", tt.err)
			}
			time.Sleep(2 * time.Nanosecond)
			if n := sink.Calls(); n != 2 {
				t.Errorf("%v: not probed after the delay", tt.err)
			}
			_, _ = shutdown(x, 0)
		})
	}
}

// While the circuit is half-open, a small probe is sent. After two successful probes, the other
// records follow in batches of growing size.
func TestProbeAndRampUp(t *testing.T) {
	for _, window := range []int{1, 4} {
		bubble.Test(t, func(t *testing.T) {
			d := newPeer(window, testkit.Rand(1), 0)
			d.fault = func(call int, _ *batch.Batch) fault {
				if call == 0 {
					return fault{kind: isOpen}
				}
				return fault{}
			}
			x := mustNew(t, d, &Options{Breaker: trip})
			m := &testkit.Model{}
			send(t, m, x, m.Batch(1000, 32, batch.Meta{}))
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got, want := d.sizes[:9], []int{1000, 10, 10, 20, 40, 80, 160, 320, 360}; !slices.Equal(got, want) {
				t.Errorf("window %d: sizes %v, want %v", window, got, want)
			}
			send(t, m, x, m.Batch(1000, 32, batch.Meta{}))
			send(t, m, x, m.Batch(1000, 32, batch.Meta{}))
			mustFlush(t, x)
			synctest.Wait()
			if got, want := d.sizes[9:], []int{1000, 1000}; !slices.Equal(got, want) {
				t.Errorf("window %d: sizes of the next %v, want %v", window, got, want)
			}
			if !slices.Equal(d.Got(), expect(3000)) {
				t.Errorf("window %d: not in order", window)
			}
			mustBalance(t, m, x, 3000)
			mustClose(t, x)
		})
	}
}

// Only one probe is in flight at a time, regardless of the window, even if its answer takes an
// hour.
func TestOneProbe(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(4)
		x := mustNew(t, d, &Options{Breaker: trip})
		m := &testkit.Model{}
		for range 4 {
			send(t, m, x, m.Batch(100, 32, batch.Meta{}))
		}
		d.mustStart(t, 1, 101, 201, 301)
		d.end(testkit.ErrDown)
		time.Sleep(time.Hour)
		d.mustStart(t, 1, 101, 201, 301, 1)
		if x.Stats().Breaker != HalfOpen || len(d.batch(4).tickets) != 10 {
			t.Errorf("%s, a probe of %d records", x.Stats().Breaker, len(d.batch(4).tickets))
		}
		d.answer(4, allAccepted)
		time.Sleep(time.Hour)
		d.mustStart(t, 1, 101, 201, 301, 1, 11)
		d.answer(5, allAccepted) // the circuit is closed now
		d.mustStart(t, 1, 101, 201, 301, 1, 11, 21)
		_, _ = shutdown(x, 0)
	})
}

// All subscribers get each transition, in order. The cancel function and Shutdown close the
// channel.
func TestSubscribe(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Script(testkit.Fail(testkit.ErrDown), testkit.Accept))
		x := mustNew(t, destOf(sink), &Options{Breaker: &BreakerOptions{Failures: 1, ProbeRecords: 1}})
		ch, cancel := x.brk.subscribers.subscribe()
		gone, cancelGone := x.brk.subscribers.subscribe()
		cancelGone()
		cancelGone()
		if _, ok := <-gone; ok {
			t.Error("cancel does not close the channel")
		}
		defer cancel()
		if err := x.Send(t.Context(), lines(3)); err != nil {
			t.Fatal(err)
		}
		for i, w := range []struct{ from, to State }{{Closed, Open}, {Open, HalfOpen}, {HalfOpen, Closed}} {
			tr := <-ch
			if tr.From != w.from || tr.To != w.to || tr.Lost != 0 || tr.Time.IsZero() {
				t.Errorf("transition %d: %+v", i, tr)
			}
			if open := tr.To == Open; errors.Is(tr.Err, testkit.ErrDown) != open {
				t.Errorf("transition %d: error %v", i, tr.Err)
			}
		}
		mustClose(t, x)
		if _, ok := <-ch; ok {
			t.Error("open after Shutdown")
		}
	})
}

// Subscribers also get a failure that does not open the circuit. If the channel is full, that
// failure is dropped and older transitions are kept.
func TestSubscribeToFailures(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := mustNew(t, destOf(testkit.NewSink(testkit.Fail(testkit.ErrDown))), &Options{Breaker: &BreakerOptions{Failures: transitionsKept + 3}})
		quick, cancel := x.brk.subscribers.subscribe()
		defer cancel()
		slow, cancel := x.brk.subscribers.subscribe()
		defer cancel()
		if err := x.Send(t.Context(), lines(3)); err != nil {
			t.Fatal(err)
		}
		for i := range transitionsKept + 3 {
			tr, to := <-quick, Closed
			if i == transitionsKept+2 {
				to = Open
			}
			if tr.From != Closed || tr.To != to || !errors.Is(tr.Err, testkit.ErrDown) || tr.Lost != 0 {
				t.Errorf("failure %d: %+v", i, tr)
			}
		}
		for i := range transitionsKept { // the first failure was dropped to make room for the change of state
			tr, to, lost := <-slow, Closed, uint64(0)
			if i == transitionsKept-1 {
				to, lost = Open, 3
			}
			if tr.To != to || tr.Lost != lost {
				t.Errorf("slow, failure %d: %+v", i, tr)
			}
		}
		_, _ = shutdown(x, 0)
	})
}

// If a subscriber does not read, its oldest transitions are dropped and counted, and the outlet
// does not wait. Shutdown closes its channel.
func TestSubscribeSlowReader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(nil)
		x := mustNew(t, destOf(sink), &Options{Breaker: &BreakerOptions{Failures: 1, ProbeRecords: 1}})
		slow, _ := x.brk.subscribers.subscribe()
		m := &testkit.Model{}
		var total uint64
		for range 20 { // three transitions per iteration
			sink.Answer(testkit.Fail(testkit.ErrDown))
			send(t, m, x, m.Batch(2, 32, batch.Meta{}))
			synctest.Wait()
			sink.Answer(nil)
			flushUntil(t, x)
			total += 3
		}
		mustBalance(t, m, x, 40)
		mustClose(t, x)
		var got []Transition
		for tr := range slow {
			got = append(got, tr)
		}
		if len(got) != transitionsKept {
			t.Errorf("got %d transitions of %d", len(got), total)
		}
		if last := got[len(got)-1]; last.To != Closed || last.Lost != total-transitionsKept {
			t.Errorf("the newest is %+v", last)
		}
		late, cancel := x.brk.subscribers.subscribe()
		defer cancel()
		if _, ok := <-late; ok {
			t.Error("Subscribe after Shutdown returns an open channel")
		}
	})
}

// An empty batch is not sent as a probe.
func TestEmptyBatch(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(nil)
		x := mustNew(t, destOf(sink), nil)
		if err := x.Send(t.Context(), new(batch.Batch)); err != nil {
			t.Error(err)
		}
		mustFlush(t, x)
		synctest.Wait()
		if sink.Calls() != 0 || x.Account() != (batch.Account{}) {
			t.Errorf("%d calls, %s", sink.Calls(), x.Account())
		}
		mustClose(t, x)
	})
}

// The error of newOutlet names every option that is out of range.
func TestOptionsErrors(t *testing.T) {
	_, err := newOutlet(newManual(1), &Options{
		Retry: &RetryOptions{Min: -1}, Breaker: &BreakerOptions{Failures: -1},
		PendingLimit: -1, HandlerTimeout: -1, ParkedBytes: -1,
	})
	for _, want := range []string{"retry: Min", "breaker: Failures", "PendingLimit", "HandlerTimeout", "ParkedBytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want it to name %q", err, want)
		}
	}
	for _, o := range []*BreakerOptions{{Failures: -1}, {OpenMin: -1}, {OpenMin: time.Hour, OpenMax: time.Minute}, {OpenMax: -1}, {FatalDelay: -1}, {ProbeRecords: -1}, {Successes: -1}} {
		if _, err := newOutlet(newManual(1), &Options{Breaker: o}); err == nil {
			t.Errorf("%+v: no error", *o)
		}
	}
	for _, o := range []*RetryOptions{{Min: -1}, {Max: -1}, {Min: time.Minute, Max: time.Second}, {FatalDelay: -1}} {
		if _, err := newOutlet(newManual(1), &Options{Retry: o}); err == nil {
			t.Errorf("%+v: no error", *o)
		}
	}
}
