package deliver

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

func mustNew(t testing.TB, sink batch.Sink, o *Options) *Engine {
	t.Helper()
	if o.OnError == nil {
		o.OnError = new(testkit.Events).Add
	}
	e, err := New(sink, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func mustClose(t testing.TB, e *Engine) batch.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := e.Shutdown(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A destination that misbehaves in every way loses nothing and keeps the order.
func TestRandomFaults(t *testing.T) {
	for _, async := range []bool{false, true} {
		for _, spill := range []bool{false, true} {
			for _, partial := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					seed := testkit.Seed(t)
					for round := range testkit.Rounds(25, 2000) {
						randomFaults(t, seed+uint64(round), async, spill, partial)
					}
				})
			}
		}
	}
}

func randomFaults(t *testing.T, seed uint64, async, spill, partial bool) {
	rng := testkit.Rand(seed)
	var sink interface {
		batch.Sink
		Got() []uint64
	}
	answer := testkit.Random(rng, rng.Float64(), partial)
	var as *testkit.AsyncSink
	if async {
		as = testkit.NewAsyncSink(answer, 1+rng.IntN(5), rng, 300*time.Millisecond)
		sink = as
	} else {
		sink = testkit.NewSink(answer)
	}
	o := &Options{}
	var store *testkit.Spill
	if spill {
		store = &testkit.Spill{}
		o.Spill = store
		o.SpillWhenFull = rng.IntN(2) == 0
		if rng.IntN(2) == 0 {
			store.Slow(rng, 200*time.Millisecond)
		}
	}
	e := mustNew(t, sink, o)
	if o.SpillWhenFull {
		defer pressAtRandom(t, e, rng)()
	}
	m := &testkit.Model{}
	for range 40 {
		produce(t, t.Context(), m, e, m.Batch(1+rng.IntN(60), 32, batch.Meta{}))
		if rng.IntN(4) == 0 {
			time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
		}
	}
	if as != nil {
		as.Answer(nil)
	} else {
		sink.(*testkit.Sink).Answer(nil)
	}
	time.Sleep(10 * time.Minute)
	if err := e.Flush(t.Context()); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	a := balance(t, m, e)
	if a.Delivered != m.Accepted() {
		t.Fatalf("seed %d: %s", seed, a)
	}
	got := sink.Got()
	if partial {
		slices.Sort(got)
	}
	if err := m.Verify(got, m.Accepted()); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if as != nil {
		for _, f := range as.Faults() {
			t.Fatalf("seed %d: %s", seed, f)
		}
	}
	mustClose(t, e)
}

// pressAtRandom says at random that a producer is full, until stop is called.
func pressAtRandom(t *testing.T, e *Engine, rng *rand.Rand) (stop func()) {
	t.Helper()
	var full atomic.Bool
	press, err := e.SpillWhen(full.Load)
	if err != nil {
		t.Fatal(err)
	}
	rng = testkit.Rand(rng.Uint64())
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(time.Duration(rng.IntN(2000)) * time.Millisecond):
			}
			full.Store(rng.IntN(3) == 0)
			if full.Load() {
				press()
			}
		}
	}()
	return func() { close(end); <-ended }
}

// An outage, stage by stage: retry, breaker, handler once the limit is passed,
// spill for what the handler does not take.
func TestStagesOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Fail(testkit.ErrDown))
		var refuses atomic.Bool
		h := &handlerLog{answer: func(_ int, _ *batch.Batch, err error) error {
			if refuses.Load() {
				return err
			}
			return nil
		}}
		store := &testkit.Spill{}
		ev := &testkit.Events{}
		e := mustNew(t, sink, &Options{Handler: h, PendingLimit: 25, Spill: store, OnError: ev.Add})
		transitions, cancel := e.Subscribe()
		defer cancel()
		m := &testkit.Model{}

		// The first batch: five attempts, the breaker opens, the limit is not
		// passed, so it goes to the spill.
		send(t, m, e, m.Batch(10, 32, batch.Meta{}))
		if a := balance(t, m, e); sink.Calls() != 5 || h.calls() != 0 || a.Pending.Spill != 10 {
			t.Fatalf("%d attempts, %d offers: %s", sink.Calls(), h.calls(), a)
		}
		if tr := <-transitions; tr.To != Open {
			t.Errorf("transition %+v", tr)
		}
		send(t, m, e, m.Batch(10, 32, batch.Meta{}))
		time.Sleep(time.Minute)
		if a := balance(t, m, e); h.calls() != 0 || a.Pending.Spill != 20 {
			t.Fatalf("%d offers with 20 records waiting: %s", h.calls(), a)
		}
		// The third passes the limit: the oldest are offered first, all three.
		send(t, m, e, m.Batch(10, 32, batch.Meta{}))
		time.Sleep(2 * time.Minute)
		if a := balance(t, m, e); a.Handled != 30 || a.Pending.Total() != 0 {
			t.Errorf("%s", a)
		}
		if got := h.all(); !slices.Equal(got, expect(30)) {
			t.Errorf("offered %v", got)
		}
		// A handler that takes nothing: the records stay, in the spill.
		refuses.Store(true)
		for range 5 {
			send(t, m, e, m.Batch(10, 32, batch.Meta{}))
			time.Sleep(time.Minute)
		}
		if a := balance(t, m, e); a.Handled != 30 || a.Pending.Spill != 50 {
			t.Errorf("%s", a)
		}
		if s := e.Stats(); s.Breaker == Closed || s.LastError == "" || !s.Spilling || s.HandlerErrors == 0 || s.HandledBy != 30 || s.Spilled != 80 {
			t.Errorf("stats %+v", s)
		}
		// Back again.
		sink.Answer(nil)
		time.Sleep(5 * time.Minute)
		if a := balance(t, m, e); a.Delivered != 50 || a.Pending.Total() != 0 {
			t.Errorf("%s", a)
		}
		if got := sink.Got(); len(got) != 50 || !slices.IsSorted(got) {
			t.Errorf("got %v", got)
		}
		if s := e.Stats(); s.Breaker != Closed || s.LastError != "" || s.Spilling {
			t.Errorf("stats %+v", s)
		}
		synctest.Wait()
		for _, op := range []string{"send", "spill", "handler", "recovered", "spilled"} {
			if !ev.Has(op) {
				t.Errorf("no %q among %v", op, ev.Ops())
			}
		}
		mustClose(t, e)
	})
}

// Without a spill and a handler, Send waits; with a handler that takes nothing it
// waits too, and offers again while the breaker is open.
func TestEngineHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, h := range []*handlerLog{nil, {answer: func(_ int, _ *batch.Batch, err error) error { return err }}} {
			sink := testkit.NewSink(testkit.DownUntil(time.Now().Add(10*time.Minute), testkit.Take))
			o := &Options{}
			if h != nil {
				o.Handler = h
			}
			e := mustNew(t, sink, o)
			m := &testkit.Model{}
			began := time.Now()
			send(t, m, e, m.Batch(10, 32, batch.Meta{}))
			if d := time.Since(began); d < 10*time.Minute || d > 12*time.Minute {
				t.Errorf("Send took %s", d)
			}
			if a := balance(t, m, e); a.Delivered != 10 {
				t.Error(a)
			}
			if h != nil && (h.calls() < sink.Calls() || e.Stats().HandlerCalls != uint64(h.calls())) {
				t.Errorf("%d offers, %d attempts", h.calls(), sink.Calls())
			}
			if sink.Calls() > 40 {
				t.Errorf("%d attempts in ten minutes", sink.Calls())
			}
			mustClose(t, e)
		}
	})
}

// A slab's records that wait count towards PendingLimit: at eleven, with a limit
// of ten, all eleven are handled.
func TestEnginePendingGauge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &handlerLog{}
		var waiting atomic.Uint64
		waiting.Store(9)
		e := mustNew(t, testkit.NewSink(testkit.Fail(testkit.ErrDown)), &Options{
			Handler: h, PendingLimit: 10, Pending: waiting.Load, Breaker: &BreakerOptions{Failures: 1},
		})
		m := &testkit.Model{}
		sent := make(chan error, 1)
		first := m.Batch(1, 32, batch.Meta{})
		go func() { sent <- e.Send(t.Context(), first) }()
		time.Sleep(time.Minute)
		if h.calls() != 0 {
			t.Fatal("offered at the limit")
		}
		waiting.Store(10)
		time.Sleep(time.Minute)
		if err := <-sent; err != nil || first.Tally.Handled != 1 {
			t.Fatalf("%v, %+v", err, first.Tally)
		}
		waiting.Store(0)
		next := m.Batch(10, 32, batch.Meta{})
		if err := e.Send(t.Context(), next); err != nil || next.Tally.Handled != 10 {
			t.Errorf("the ten that waited: %v, %+v", err, next.Tally)
		}
		mustClose(t, e)
	})
}

// 401 holds and alarms; nothing is poison.
func TestEngineFatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ev := &testkit.Events{}
		dead := &handlerLog{}
		sink := testkit.NewSink(testkit.Fail(batch.Fatal(errors.New("401 unauthorized"))))
		e := mustNew(t, sink, &Options{Spill: &testkit.Spill{}, DeadLetter: dead, OnError: ev.Add, Retry: &RetryOptions{MaxAge: -1}})
		m := &testkit.Model{}
		for range 10 {
			send(t, m, e, m.Batch(10, 32, batch.Meta{Time: time.Now().UnixNano()}))
			time.Sleep(time.Hour)
		}
		if n := sink.Calls(); n > 10*61 {
			t.Errorf("%d attempts in ten hours", n)
		}
		if a := balance(t, m, e); a.Pending.Spill != 100 || dead.calls() != 0 {
			t.Errorf("%d dead letters: %s", dead.calls(), a)
		}
		synctest.Wait()
		if ev.Count("hold") != 1 {
			t.Errorf("events %v", ev.Ops())
		}
		sink.Answer(nil)
		time.Sleep(5 * time.Minute)
		if err := m.Verify(sink.Got(), 100); err != nil {
			t.Error(err)
		}
		mustClose(t, e)
	})
}

// Producers that share an engine take turns, and each keeps its order.
func TestEngineShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := testkit.Rand(testkit.Seed(t))
		sink := testkit.NewSink(testkit.Random(rng, 0.3, false))
		e := mustNew(t, sink, &Options{Spill: &testkit.Spill{}})
		var wg sync.WaitGroup
		for p := range uint64(4) {
			wg.Go(func() {
				for i := range uint64(50) {
					var build batch.Builder
					build.Append([]byte("x\n"), 1+p*1000+i, batch.Meta{})
					if err := e.Send(t.Context(), build.Batch(nil)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		time.Sleep(10 * time.Minute)
		if err := e.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		last, _ := testkit.LastCopies(sink.Got())
		var seen [4]uint64
		for _, ticket := range last {
			p, i := ticket/1000, ticket%1000
			if i <= seen[p] {
				t.Fatalf("producer %d: record %d after %d", p, i, seen[p])
			}
			seen[p] = i
		}
		if len(last) != 200 {
			t.Errorf("%d records arrived", len(last))
		}
		mustClose(t, e)
	})
}

func TestOptionsErrors(t *testing.T) {
	_, err := New(testkit.NewSink(nil), &Options{
		Retry: &RetryOptions{Min: -1}, Breaker: &BreakerOptions{Failures: -1},
		Handler: &handlerLog{}, PendingLimit: -1, HandlerTimeout: -1, Spill: &testkit.Spill{},
	})
	for _, want := range []string{"retry: Min", "breaker: Failures", "fallback: PendingLimit", "poison: HandlerTimeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want it to name %q", err, want)
		}
	}
	if _, err := New(nil, nil); err == nil {
		t.Error("no error for a nil sink")
	}
}

// The engine hands the optional parts of the seam through.
func TestEngineForwards(t *testing.T) {
	s := &fullSink{}
	e := mustNew(t, s, &Options{Spill: &syncSpill{}})
	if e.Limits() != (batch.Limits{Bytes: 7}) {
		t.Error("limits")
	}
	if err := errors.Join(e.Flush(t.Context()), e.Sync()); err != nil {
		t.Error(err)
	}
	e.Drain(time.Time{})
	mustClose(t, e)
	if got := strings.Join(s.calls, " "); got != "flush sync drain close" {
		t.Errorf("calls %s", got)
	}
	if !e.keeper.spill.(*syncSpill).synced {
		t.Error("the spill was not synced")
	}
}

type syncSpill struct {
	testkit.Spill
	synced bool
}

func (s *syncSpill) Sync() error { s.synced = true; return nil }

type fullSink struct {
	testkit.Sink
	calls []string
}

func (s *fullSink) Limits() batch.Limits        { return batch.Limits{Bytes: 7} }
func (s *fullSink) Flush(context.Context) error { s.calls = append(s.calls, "flush"); return nil }
func (s *fullSink) Sync() error                 { s.calls = append(s.calls, "sync"); return nil }
func (s *fullSink) Drain(time.Time)             { s.calls = append(s.calls, "drain") }
func (s *fullSink) Close(context.Context) error { s.calls = append(s.calls, "close"); return nil }
