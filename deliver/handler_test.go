package deliver

import (
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/testkit"
)

// trip are the options of a circuit breaker that opens at the first failure.
var trip = &BreakerOptions{Failures: 1}

// The outcome of a handler call determines which records are handled, become dead letters or stay
// open.
func TestHandlerSemantics(t *testing.T) {
	oops := errors.New("fallback is down")
	var release chan struct{}
	all := []uint64{1, 2, 3, 4, 5, 6}
	for _, tt := range []struct {
		name    string
		sink    testkit.Answer // first answer of the destination; later ones are ErrDown
		handler func(call int, b *batch.Batch, err error) batch.Outcome
		offered []uint64 // records of the first call
		handled uint64
		poison  uint64
		open    uint64 // number of open records, of 6
	}{
		{"nil", testkit.Fail(testkit.ErrDown), nil, all, 6, 0, 0},
		{"error", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) batch.Outcome { return batch.FailedOutcome(oops) }, all, 0, 0, 6},
		{"the rest only", testkit.First(2), nil, []uint64{3, 4, 5, 6}, 4, 0, 0},
		{"the error it was given", testkit.First(2), func(_ int, _ *batch.Batch, err error) batch.Outcome { return batch.FailedOutcome(err) }, []uint64{3, 4, 5, 6}, 0, 0, 4},
		{"prefix", testkit.First(2), once(batch.Outcome{Open: batch.From(1), Why: oops}), []uint64{3, 4, 5, 6}, 1, 0, 3},
		{"partial", testkit.Fail(testkit.ErrDown), once(batch.Outcome{Open: batch.Of(0, 3), Why: oops}), all, 4, 0, 2},
		{"refuses", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) batch.Outcome { return testkit.Malformed(oops) }, all, 0, 0, 6},
		{"refuses one", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) batch.Outcome {
			return batch.Outcome{Refused: batch.Of(1), Refusal: oops}
		}, all, 5, 1, 0},
		{"refuses what is not there", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) batch.Outcome {
			return batch.Outcome{Refused: batch.Of(6), Refusal: oops}
		}, all, 0, 0, 6},
		{"more than all", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) batch.Outcome { return batch.Outcome{Open: batch.From(7), Why: oops} }, all, 0, 0, 6},
		{"others", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) batch.Outcome { return batch.Outcome{Open: batch.Of(3, 1), Why: oops} }, all, 0, 0, 6},
		{"open and refused", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) batch.Outcome {
			return batch.Outcome{Open: batch.From(2), Refused: batch.Of(0, 4)}
		}, all, 0, 0, 6},
		{"gone for good", testkit.Fail(testkit.ErrDown), once(batch.Outcome{Open: batch.From(2), Why: oops, Advice: batch.Gone}), all, 2, 0, 4},
		{"panics", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) batch.Outcome { panic("boom") }, all, 0, 0, 6},
		{"exits", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) batch.Outcome { runtime.Goexit(); return batch.Outcome{} }, all, 0, 0, 6},
		{"hangs", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) batch.Outcome { <-release; return batch.Outcome{} }, all, 0, 0, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				release = make(chan struct{})
				h := &handlerLog{answer: tt.handler}
				dead, ev := &handlerLog{}, &testkit.Events{}
				x := mustNew(t, destOf(testkit.NewSink(testkit.Script(tt.sink, testkit.Fail(testkit.ErrDown)))),
					&Options{Handler: h, DeadLetter: dead, OnError: ev.Add, Breaker: trip})
				m := &testkit.Model{}
				send(t, m, x, m.Batch(6, 32, batch.Meta{}))
				time.Sleep(time.Minute)
				synctest.Wait()
				a := balance(t, m, x)
				if a.Handled != tt.handled || a.Dropped.Total() != tt.poison || a.Dropped[batch.Poison] != tt.poison || a.Pending.Total() != tt.open {
					t.Error(a)
				}
				if got := h.offers[0]; !slices.Equal(got, tt.offered) {
					t.Errorf("offered %v, want %v", got, tt.offered)
				}
				if !errors.Is(h.errs[0], ErrOpen) {
					t.Errorf("offered because of %v", h.errs[0])
				}
				s := x.Stats()
				if failed := s.HandlerErrors > 0; failed != ev.Has("handler") || failed != (tt.open > 0 || tt.poison == 1) || s.Handled != tt.handled {
					t.Errorf("%d handler errors, %d handled, events %v", s.HandlerErrors, s.Handled, ev.Ops())
				}
				if tt.name == "refuses one" && !slices.Equal(dead.all(), []uint64{2}) {
					t.Errorf("dead letters %v", dead.all())
				}
				if tt.open > 0 && s.HandlerCalls+s.HandlerErrors < 3 {
					t.Errorf("offered %d times in a minute", s.HandlerCalls)
				}
				close(release)
				_, _ = shutdown(x, time.Second)
			})
		})
	}
}

// once returns a handler function that returns o in the first call, and accepts nothing in later
// calls.
func once(o batch.Outcome) func(int, *batch.Batch, error) batch.Outcome {
	return func(call int, _ *batch.Batch, _ error) batch.Outcome {
		if call == 0 {
			return o
		}
		return batch.FailedOutcome(o.Why)
	}
}

// A handler is called again after the delay that it requests, limited to maxRetryAfter.
func TestHandlerAfter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var at []time.Time
		h := &handlerLog{answer: func(call int, _ *batch.Batch, _ error) batch.Outcome {
			at = append(at, time.Now())
			return [...]batch.Outcome{
				batch.FailedOutcome(batch.RetryAfter(testkit.ErrDown, 5*time.Minute)),
				{Open: batch.All(), After: 100 * time.Hour}, // limited to maxRetryAfter
				{},
			}[call]
		}}
		x := mustNew(t, destOf(testkit.NewSink(testkit.Fail(testkit.ErrDown))), &Options{Handler: h, Breaker: trip, spill: &testkit.Spill{}})
		m := &testkit.Model{}
		send(t, m, x, m.Batch(3, 32, batch.Meta{}))
		time.Sleep(time.Hour)
		synctest.Wait() // Sleep alone does not synchronize memory
		if len(at) != 3 {
			t.Fatalf("%d calls", len(at))
		}
		for i, want := range []time.Duration{5 * time.Minute, maxRetryAfter} {
			if d := at[i+1].Sub(at[i]); d < want || d > want+2*time.Minute {
				t.Errorf("call %d came after %s, want %s", i+1, d, want)
			}
		}
		mustClose(t, x)
	})
}

// The handler is not called for refused records, for batches that are too large, or after a single
// failure.
func TestHandlerIsNotAsked(t *testing.T) {
	for name, answer := range map[string]testkit.Answer{
		"well": testkit.Accept, "refuses": testkit.Return(testkit.Malformed(errors.New("400"))), "too large": testkit.AtMost(64),
		"fails once": testkit.Script(testkit.Fail(testkit.ErrDown), testkit.Accept),
	} {
		bubble.Test(t, func(t *testing.T) {
			h := &handlerLog{}
			x := mustNew(t, destOf(testkit.NewSink(answer)), &Options{Handler: h})
			m := &testkit.Model{}
			send(t, m, x, m.Batch(6, 32, batch.Meta{}))
			mustFlush(t, x)
			if h.calls() > 0 {
				t.Errorf("%s: %d calls", name, h.calls())
			}
			mustClose(t, x)
		})
	}
}

// The handler is called when more than PendingLimit records wait, and receives all of them.
func TestPendingLimit(t *testing.T) {
	for _, tt := range []struct {
		limit   int
		batches []int // records per batch
		handled uint64
	}{
		{0, []int{1}, 1},
		{10, []int{10}, 0},
		{10, []int{11}, 11},
		{10, []int{9, 1}, 0},
		{10, []int{9, 2}, 11},
		{10, []int{1, 5, 5}, 11},
		{10, []int{1, 5, 5, 5}, 11},
	} {
		bubble.Test(t, func(t *testing.T) {
			h := &handlerLog{}
			x := mustNew(t, destOf(testkit.NewSink(testkit.Fail(testkit.ErrDown))), &Options{Handler: h, PendingLimit: tt.limit, spill: &testkit.Spill{}, Breaker: trip})
			m := &testkit.Model{}
			for _, n := range tt.batches {
				send(t, m, x, m.Batch(n, 32, batch.Meta{}))
				time.Sleep(10 * time.Minute)
			}
			if a := balance(t, m, x); a.Handled != tt.handled {
				t.Errorf("limit %d, batches %v: %s, want %d handled", tt.limit, tt.batches, a, tt.handled)
			}
			if !slices.Equal(h.all(), expect(int(tt.handled))) {
				t.Errorf("limit %d, batches %v: offered %v", tt.limit, tt.batches, h.all())
			}
			mustClose(t, x)
		})
	}
}

// addWaiting makes x count further waiting records, which do not exist.
func addWaiting(x *outlet, waiting *atomic.Uint64) {
	pending := x.set.pending
	x.post(func(time.Time) {
		x.set.pending = func() uint64 { return pending() + waiting.Load() }
	})
}

// Records that wait in the log, before the outlet, count towards PendingLimit.
func TestPendingBeforeTheOutlet(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := &handlerLog{}
		var waiting atomic.Uint64
		waiting.Store(9)
		x := mustNew(t, destOf(testkit.NewSink(testkit.Fail(testkit.ErrDown))), &Options{Handler: h, PendingLimit: 10, Breaker: trip})
		addWaiting(x, &waiting)
		m := &testkit.Model{}
		send(t, m, x, m.Batch(1, 32, batch.Meta{}))
		time.Sleep(time.Minute)
		if h.calls() != 0 {
			t.Fatal("offered at the limit")
		}
		waiting.Store(10)
		time.Sleep(2 * time.Minute)
		if a := balance(t, m, x); a.Handled != 1 {
			t.Fatal(a)
		}
		waiting.Store(0) // the outlet leases the ten records: they are handled although they do not exceed the limit
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		time.Sleep(2 * time.Minute)
		if a := balance(t, m, x); a.Handled != 11 {
			t.Error(a)
		}
		mustClose(t, x)
	})
}

// After the destination has recovered, PendingLimit applies to the next outage.
func TestPendingLimitAfterRecovery(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := &handlerLog{}
		sink := testkit.NewSink(testkit.Fail(testkit.ErrDown))
		var waiting atomic.Uint64
		waiting.Store(20)
		x := mustNew(t, destOf(sink), &Options{Handler: h, PendingLimit: 10, Breaker: trip})
		addWaiting(x, &waiting)
		m := &testkit.Model{}
		send(t, m, x, m.Batch(5, 32, batch.Meta{}))
		synctest.Wait()
		sink.Answer(nil)
		time.Sleep(10 * time.Minute)
		for range 3 {
			send(t, m, x, m.Batch(5, 32, batch.Meta{}))
		}
		time.Sleep(10 * time.Minute)
		if a := balance(t, m, x); a.Delivered != 15 || x.Stats().Breaker != Closed {
			t.Fatalf("%s, %s", x.Stats().Breaker, a)
		}
		sink.Answer(testkit.Fail(testkit.ErrDown))
		waiting.Store(0)
		send(t, m, x, m.Batch(5, 32, batch.Meta{}))
		time.Sleep(10 * time.Minute)
		if h.calls() != 1 {
			t.Errorf("%d handler calls: PendingLimit of the last outage still applies", h.calls())
		}
		if r := mustClose(t, x); r.Handled != 10 { // Close offers all waiting records to the handler
			t.Errorf("%s", r.Account)
		}
	})
}

// The circuit probes the destination even if the handler accepts all records.
func TestProbesBesideHandler(t *testing.T) {
	for _, spool := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			h := &handlerLog{}
			sink := testkit.NewSink(testkit.DownUntil(time.Now().Add(10*time.Minute), testkit.Accept))
			o := &Options{Handler: h}
			if spool {
				o.spill = &testkit.Spill{}
			}
			x := mustNew(t, destOf(sink), o)
			m := &testkit.Model{}
			for range 30 {
				send(t, m, x, m.Batch(10, 32, batch.Meta{}))
				time.Sleep(time.Minute)
			}
			if a := balance(t, m, x); a.Handled < 90 || a.Handled > 120 || a.Delivered != 300-a.Handled {
				t.Errorf("down for the first third: %s", a)
			}
			if s := x.Stats(); s.Breaker != Closed {
				t.Errorf("the circuit is %s", s.Breaker)
			}
			mustClose(t, x)
		})
	}
}

// A handler call that hangs is abandoned after HandlerTimeout. Until that call returns, the handler
// is not called again and the memory of its batch is not reused. The late outcome of the call is
// ignored.
func TestHandlerHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		intact := make(chan bool, 1)
		var calls atomic.Int64
		h := ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome {
			if calls.Add(1) > 1 {
				return batch.Outcome{}
			}
			before := string(b.AppendTo(nil))
			<-release
			intact <- before == string(b.AppendTo(nil)) && strings.HasPrefix(before, "00000000000000000001")
			return batch.Outcome{}
		})
		ev := &testkit.Events{}
		store := &testkit.Spill{}
		x := mustNew(t, destOf(testkit.NewSink(testkit.Fail(testkit.ErrDown))),
			&Options{Handler: h, HandlerTimeout: 3 * time.Second, OnError: ev.Add, Breaker: trip, spill: store})
		m := &testkit.Model{}
		send(t, m, x, m.Batch(5, 32, batch.Meta{}))
		time.Sleep(3*time.Second - 1)
		if n, a := x.Stats().HandlerErrors, x.Account(); n != 0 || a.Pending.Inflight != 5 {
			t.Errorf("before the timeout: %d errors, %s", n, a)
		}
		time.Sleep(time.Second)
		if n, a := x.Stats().HandlerErrors, x.Account(); n == 0 || a.Pending.Total() != 5 {
			t.Errorf("after the timeout: %d errors, %s", n, a)
		}
		for range 20 {
			send(t, m, x, m.Batch(5, 32, batch.Meta{}))
			time.Sleep(10 * time.Second)
		}
		if calls.Load() != 1 {
			t.Errorf("%d handler calls while one hangs, want 1", calls.Load())
		}
		close(release)
		if !<-intact {
			t.Error("the memory of a hung handler was used again")
		}
		time.Sleep(5 * time.Minute)
		if a := balance(t, m, x); a.Handled != 105 || a.Pending.Total() != 0 {
			t.Error(a)
		}
		ops := slices.DeleteFunc(ev.Ops(), func(op string) bool { return !strings.HasPrefix(op, "handler") })
		if !slices.Equal(ops, []string{"handler", "handler-recovered"}) {
			t.Errorf("events %v", ops)
		}
		mustClose(t, x)
	})
}

// The handler receives a copy of the batch. It may change this copy and may read it during the
// entire call, even if the records are settled meanwhile.
func TestHandlerGetsACopy(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome {
			for _, rec := range b.All() {
				rec.Data[0] = '#'
			}
			return batch.FailedOutcome(testkit.ErrDown)
		})
		sink := testkit.NewSink(testkit.Script(testkit.Fail(testkit.ErrDown), testkit.Accept))
		sink.KeepData()
		x := mustNew(t, destOf(sink), &Options{Handler: h, Breaker: trip})
		if err := x.Send(t.Context(), lines(3)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := sink.Data(1); !strings.HasPrefix(got, "0") {
			t.Errorf("the records were changed: %q", got)
		}
		mustClose(t, x)
	})
}

// Memory becomes full while the handler has a batch, so the batch is moved to the spool. The
// outcome of the handler then applies to the records in the spool, once.
func TestSpillBesideHandler(t *testing.T) {
	for _, takes := range []bool{true, false} {
		bubble.Test(t, func(t *testing.T) {
			texts := make(chan string, 100)
			release := make(chan struct{})
			h := ErrorHandlerFunc(func(err error, b *batch.Batch) batch.Outcome {
				<-release
				texts <- string(b.AppendTo(nil))
				if takes {
					return batch.Outcome{}
				}
				return batch.FailedOutcome(err)
			})
			store := &testkit.Spill{}
			sink := testkit.NewSink(testkit.Fail(testkit.ErrDown))
			x := mustNew(t, destOf(sink), &Options{Handler: h, spill: store, Breaker: trip})
			var full atomic.Bool
			wake := x.setFull(full.Load)
			m := &testkit.Model{}
			send(t, m, x, m.Batch(5, 32, batch.Meta{}))
			full.Store(true)
			wake()
			for range 10 { // if the memory of the handler was freed too early, these batches overwrite it
				send(t, m, x, m.Batch(5, 32, batch.Meta{}))
			}
			synctest.Wait()
			full.Store(false)
			close(release)
			time.Sleep(10 * time.Minute)
			if text := <-texts; !strings.HasPrefix(text, "00000000000000000001") {
				t.Errorf("the handler was given %q", text)
			}
			sink.Answer(nil)
			time.Sleep(10 * time.Minute)
			a := balance(t, m, x)
			if takes && a.Handled != 55 || !takes && a.Delivered != 55 {
				t.Error(a)
			}
			mustClose(t, x)
		})
	}
}

// Gap markers are offered to the handler and are not counted as handled.
func TestHandledCountsNoMarkers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := lines(3)
		b.Add(layout.NewRun([]byte("gap\n"), []layout.Slot{{Len: 4, Flags: layout.FlagMarker}}))
		h := &handlerLog{}
		x := mustNew(t, destOf(testkit.NewSink(testkit.Fail(testkit.ErrDown))), &Options{Handler: h, Breaker: trip})
		if err := x.Send(t.Context(), b); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if a := x.Account(); a.Handled != 3 || a.Accepted != 3 || len(h.all()) != 4 {
			t.Errorf("%s, offered %v", a, h.all())
		}
		mustClose(t, x)
	})
}

// An outage passes through these stages: retries, the open circuit, the handler when PendingLimit
// is exceeded, and the spool for records that the handler does not accept.
func TestStagesOfAnOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Fail(testkit.ErrDown))
		var refuses atomic.Bool
		h := &handlerLog{answer: func(_ int, _ *batch.Batch, err error) batch.Outcome {
			if refuses.Load() {
				return batch.FailedOutcome(err)
			}
			return batch.Outcome{}
		}}
		store := &testkit.Spill{}
		ev := &testkit.Events{}
		x := mustNew(t, destOf(sink), &Options{Handler: h, PendingLimit: 25, spill: store, OnError: ev.Add})
		transitions, cancel := x.brk.subscribers.subscribe()
		defer cancel()
		m := &testkit.Model{}

		// First batch: after five attempts the circuit opens. The limit is not exceeded, so the
		// batch goes to the spool.
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		for i := range 5 { // four failures, then the one that opens the circuit
			if tr := <-transitions; (tr.To == Open) != (i == 4) || sink.Calls() != i+1 {
				t.Errorf("transition %+v after %d attempts", tr, sink.Calls())
			}
		}
		synctest.Wait()
		if a := balance(t, m, x); h.calls() != 0 || a.Pending.Spill != 10 {
			t.Fatalf("%d offers: %s", h.calls(), a)
		}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		time.Sleep(time.Minute)
		if a := balance(t, m, x); h.calls() != 0 || a.Pending.Spill != 20 {
			t.Fatalf("%d offers with 20 records waiting: %s", h.calls(), a)
		}
		// The third batch exceeds the limit: all three batches are offered, the oldest first.
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		time.Sleep(2 * time.Minute)
		if a := balance(t, m, x); a.Handled != 30 || a.Pending.Total() != 0 {
			t.Errorf("%s", a)
		}
		if got := h.all(); !slices.Equal(got, expect(30)) {
			t.Errorf("offered %v", got)
		}
		// If the handler accepts nothing, the records stay in the spool.
		refuses.Store(true)
		for range 5 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
			time.Sleep(time.Minute)
		}
		if a := balance(t, m, x); a.Handled != 30 || a.Pending.Spill != 50 {
			t.Errorf("%s", a)
		}
		if s := x.Stats(); s.Breaker == Closed || s.LastError == "" || !s.Spilling || s.HandlerErrors == 0 || s.Handled != 30 || s.Spilled < 70 {
			t.Errorf("stats %+v", s)
		}
		// The destination recovers.
		sink.Answer(nil)
		time.Sleep(5 * time.Minute)
		if a := balance(t, m, x); a.Delivered != 50 || a.Pending.Total() != 0 {
			t.Errorf("%s", a)
		}
		if got := sink.Got(); len(got) != 50 || !slices.IsSorted(got) {
			t.Errorf("got %v", got)
		}
		if s := x.Stats(); s.Breaker != Closed || s.LastError != "" || s.Spilling {
			t.Errorf("stats %+v", s)
		}
		for _, op := range []string{"send", "spill", "handler", "recovered", "spilled"} {
			if !ev.Has(op) {
				t.Errorf("no %q among %v", op, ev.Ops())
			}
		}
		mustClose(t, x)
	})
}

// Without a spool, and with a handler that accepts nothing, Send waits. The handler is called again
// while the circuit is open.
func TestHandlerThatAcceptsNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, h := range []*handlerLog{nil, {answer: func(_ int, _ *batch.Batch, err error) batch.Outcome { return batch.FailedOutcome(err) }}} {
			sink := testkit.NewSink(testkit.DownUntil(time.Now().Add(10*time.Minute), testkit.Accept))
			o := &Options{}
			if h != nil {
				o.Handler = h
			}
			x := mustNew(t, destOf(sink), o)
			m := &testkit.Model{}
			began := time.Now()
			for range 3 { // one batch in flight, one in the outlet, one in Send
				send(t, m, x, m.Batch(10, 32, batch.Meta{}))
			}
			if d := time.Since(began); d < 10*time.Minute || d > 12*time.Minute {
				t.Errorf("Send took %s", d)
			}
			mustFlush(t, x)
			mustBalance(t, m, x, 30)
			if h != nil && (h.calls() < sink.Calls()/2 || x.Stats().HandlerCalls != uint64(h.calls())) {
				t.Errorf("%d offers, %d attempts", h.calls(), sink.Calls())
			}
			if sink.Calls() > 45 {
				t.Errorf("%d attempts in ten minutes", sink.Calls())
			}
			mustClose(t, x)
		}
	})
}

// ---- the handlers of this package -----------------------------------------------

// recordLog is a fallback that accepts a limited number of records.
type recordLog struct {
	codec batch.Codec
	mu    sync.Mutex
	room  int
	lines []string
	metas []batch.Meta
}

func (w *recordLog) Codec() batch.Codec { return w.codec }

func (w *recordLog) WriteRecord(p []byte, m batch.Meta) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.room == 0 {
		return errors.New("full")
	}
	w.room--
	w.lines = append(w.lines, string(p))
	w.metas = append(w.metas, m)
	return nil
}

// ToOutput writes records unchanged if the fallback has the same content type, and as JSON lines if
// the fallback accepts those or plain lines. For any other fallback it returns an error.
func TestToOutput(t *testing.T) {
	if _, err := ToOutput(nil, nil); err == nil {
		t.Error("no error for a nil fallback")
	}
	for _, tt := range []struct {
		codec, fallback batch.Codec
		want            []string // lines for records of codec; nil: an error
	}{
		{nil, nil, []string{`{"a":1}`, "panic"}},
		{oddCodec{}, oddCodec{}, []string{`{"a":1}`, "panic"}},
		{oddCodec{}, nil, []string{"{\"a\":1}\n", "{\"raw\":\"panic\"}\n"}},
		{oddCodec{}, jsonCodec{}, []string{"{\"a\":1}\n", "{\"raw\":\"panic\"}\n"}},
		{jsonCodec{}, oddCodec{}, nil},
	} {
		w := &recordLog{codec: tt.fallback, room: 3}
		h, err := ToOutput(w, tt.codec)
		if tt.want == nil {
			if err == nil || !strings.Contains(err.Error(), `the fallback accepts content type "application/x-odd", and the records have content type`) {
				t.Errorf("a fallback of another content type: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if o := h.HandleError(testkit.ErrDown, oddBatch(`{"a":1}`, "panic")); !o.Open.Empty() {
			t.Fatal(o)
		}
		if !slices.Equal(w.lines, tt.want) || w.metas[1].Stream != 1 || w.metas[1].Level != slog.LevelWarn {
			t.Errorf("%v to %v: got %q, %+v", tt.codec, tt.fallback, w.lines, w.metas)
		}
		// If the fallback is full, the record and all later ones stay open.
		o := h.HandleError(testkit.ErrDown, oddBatch(`{"b":1}`, `{"b":2}`, `{"b":3}`))
		if open := o.Open.Append(nil, 3); !slices.Equal(open, []int{1, 2}) || o.Why == nil {
			t.Errorf("got %+v", o)
		}
	}
}

// jsonCodec is oddCodec with the content type of JSON lines.
type jsonCodec struct{ oddCodec }

func (jsonCodec) ContentType() string { return encode.JSON(nil).Codec().ContentType() }

// A fallback that is full at times receives each record once, in order.
func TestToOutputThatIsFull(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := &recordLog{}
		h, err := ToOutput(w, nil)
		if err != nil {
			t.Fatal(err)
		}
		x := mustNew(t, destOf(testkit.NewSink(testkit.Fail(testkit.ErrDown))), &Options{Handler: h, Breaker: trip, spill: &testkit.Spill{}})
		m := &testkit.Model{}
		for range 10 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		for range 34 {
			w.mu.Lock()
			w.room = 3
			w.mu.Unlock()
			time.Sleep(2 * time.Minute)
		}
		synctest.Wait()
		if a := balance(t, m, x); a.Handled != 100 || len(w.lines) != 100 || !slices.IsSorted(w.lines) {
			t.Errorf("%s, %d lines", a, len(w.lines))
		}
		mustClose(t, x)
	})
}

// If memory is about to drop records, waiting records are offered to the handler while the
// destination hangs and between two attempts, although the circuit is closed and PendingLimit is
// not exceeded. If writes wait for memory instead, records are offered between attempts only. After
// the destination has accepted a batch, later records go to the destination.
func TestHandlerIsAskedBeforeMemoryDropsRecords(t *testing.T) {
	for name, tt := range map[string]struct {
		dest    Destination
		waits   bool // writes wait for memory; no records are dropped
		offered []uint64
		cause   error
	}{
		"hangs":        {newManual(1), false, []uint64{3, 4, 5}, ErrFull},
		"fails":        {destOf(testkit.NewSink(testkit.Fail(testkit.ErrDown))), false, []uint64{1, 2}, testkit.ErrDown},
		"hangs, waits": {newManual(1), true, nil, nil},
		"fails, waits": {destOf(testkit.NewSink(testkit.Fail(testkit.ErrDown))), true, []uint64{1, 2}, testkit.ErrDown},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				h := &handlerLog{}
				var scarce atomic.Bool
				x := mustNew(t, tt.dest, &Options{Handler: h, PendingLimit: 1000, Retry: &RetryOptions{Min: time.Hour, Max: time.Hour}})
				wake := x.setNeeds(func() (drops, waits bool) { return scarce.Load() && !tt.waits, scarce.Load() && tt.waits })
				m := &testkit.Model{}
				send(t, m, x, m.Batch(2, 32, batch.Meta{}))
				send(t, m, x, m.Batch(3, 32, batch.Meta{}))
				synctest.Wait()
				if h.calls() != 0 {
					t.Fatalf("%d calls below the limit", h.calls())
				}
				scarce.Store(true)
				wake()
				synctest.Wait()
				var p *PendingError
				if tt.offered == nil {
					if h.calls() > 0 {
						t.Errorf("offered %v although calls only wait for a slow destination", h.offers)
					}
				} else if h.calls() == 0 || !slices.Equal(h.offers[0], tt.offered) || !errors.Is(h.errs[0], tt.cause) || errors.Is(h.errs[0], ErrOpen) ||
					!errors.As(h.errs[0], &p) || p.Pending != 5 {
					t.Fatalf("offered %v because of %v", h.offers, h.errs)
				}
				scarce.Store(false)
				if d, hangs := tt.dest.(*manual); hangs && !tt.waits {
					d.answer(0, allAccepted)
					n := h.calls()
					send(t, m, x, m.Batch(3, 32, batch.Meta{}))
					send(t, m, x, m.Batch(3, 32, batch.Meta{}))
					time.Sleep(time.Minute)
					if h.calls() != n {
						t.Error("the handler was called although the destination accepts records")
					}
				}
				_, _ = shutdown(x, time.Second)
				balance(t, m, x)
			})
		})
	}
}

// If Close abandons a call of the handler, the event names the handler as the reason, not the
// destination.
func TestHandlerThatHangsAtCloseIsNamed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var got atomic.Value
		x := mustNew(t, destOf(testkit.NewSink(testkit.Fail(testkit.ErrDown))), &Options{
			PendingLimit: 1000, Retry: &RetryOptions{Min: time.Hour, Max: time.Hour}, HandlerTimeout: time.Hour, spill: &testkit.Spill{},
			Handler: ErrorHandlerFunc(func(error, *batch.Batch) batch.Outcome { <-release; return batch.Outcome{} }),
			OnError: func(e batch.Event) {
				if e.Op == "handler" {
					got.Store(e.Err)
				}
			},
		})
		m := &testkit.Model{}
		send(t, m, x, m.Batch(2, 32, batch.Meta{}))
		_, _ = shutdown(x, time.Second)
		synctest.Wait()
		if err, _ := got.Load().(error); !errors.Is(err, errHandlerTimeout) {
			t.Errorf("the handler failed because of %v, want %v", err, errHandlerTimeout)
		}
		close(release)
	})
}

// A handler that fails when Close offers it records is called again until Close is over, if the
// spool cannot store them either or there is none.
func TestHandlerIsCalledAgainDuringClose(t *testing.T) {
	for _, spool := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			fails := 3
			o := &Options{
				PendingLimit: 1000, Retry: &RetryOptions{Min: 10 * time.Millisecond, Max: time.Hour},
				Handler: ErrorHandlerFunc(func(error, *batch.Batch) batch.Outcome {
					if fails--; fails >= 0 {
						return batch.FailedOutcome(batch.RetryAfter(testkit.ErrDown, time.Hour))
					}
					return batch.Outcome{}
				}),
			}
			if spool {
				sp := &testkit.Spill{}
				sp.Fail(testkit.ErrDown)
				o.spill = sp
			}
			x := mustNew(t, destOf(testkit.NewSink(testkit.Fail(testkit.ErrDown))), o)
			m := &testkit.Model{}
			send(t, m, x, m.Batch(2, 32, batch.Meta{}))
			send(t, m, x, m.Batch(2, 32, batch.Meta{}))
			if r, err := shutdown(x, 10*time.Second); err != nil || r.Check() != nil || r.Handled != 4 {
				t.Errorf("spool %t: %s, %v", spool, r.Account, errors.Join(err, r.Check()))
			}
		})
	}
}

// One event reports that records go to the handler, with the reason, and one that the destination
// accepts them again, however often the handler is called.
func TestHandlerSeriesIsReported(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ev := &testkit.Events{}
		sink := testkit.NewSink(testkit.Fail(testkit.ErrDown))
		x := mustNew(t, destOf(sink), &Options{Handler: &handlerLog{}, Breaker: trip, OnError: func(e batch.Event) {
			if ev.Add(e); e.Op == "handle" && (!errors.Is(e.Err, testkit.ErrDown) || e.Count != 2) {
				t.Errorf("event %v", e)
			}
		}})
		m := &testkit.Model{}
		for range 5 {
			send(t, m, x, m.Batch(2, 32, batch.Meta{}))
			time.Sleep(20 * time.Second)
		}
		sink.Answer(nil)
		for range 5 {
			send(t, m, x, m.Batch(2, 32, batch.Meta{}))
			time.Sleep(time.Minute)
		}
		ops := slices.DeleteFunc(ev.Ops(), func(op string) bool { return !strings.HasPrefix(op, "handle") })
		if !slices.Equal(ops, []string{"handle", "handled"}) {
			t.Errorf("events %v", ev.Ops())
		}
		mustClose(t, x)
	})
}

// While the destination is slow, it accepts records between two calls of the handler. The events
// are not repeated.
func TestHandlerSeriesOfASlowDestination(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ev := &testkit.Events{}
		d := newManual(1)
		x := mustNew(t, d, &Options{Handler: &handlerLog{}, PendingLimit: 1000, OnError: ev.Add})
		var scarce atomic.Bool
		wake := x.setNeeds(func() (drops, waits bool) { return scarce.Load(), false })
		m := &testkit.Model{}
		send(t, m, x, m.Batch(2, 32, batch.Meta{}))
		synctest.Wait() // the batch is in flight
		for i := range 5 {
			send(t, m, x, m.Batch(2, 32, batch.Meta{})) // for the handler
			scarce.Store(true)
			wake()
			synctest.Wait()
			scarce.Store(false)
			d.answer(i, allAccepted)
			synctest.Wait()                             // the outlet has processed the answer
			send(t, m, x, m.Batch(2, 32, batch.Meta{})) // for the destination
			time.Sleep(time.Second)
		}
		d.answer(5, allAccepted)
		if ops := ev.Ops(); !slices.Equal(ops, []string{"handle"}) {
			t.Errorf("events %v", ops)
		}
		time.Sleep(20 * time.Second)
		if ops := ev.Ops(); !slices.Equal(ops, []string{"handle", "handled"}) {
			t.Errorf("events %v", ops)
		}
		if a := balance(t, m, x); a.Handled != 10 {
			t.Error(a)
		}
		mustClose(t, x)
	})
}
