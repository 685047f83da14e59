package deliver

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

// handSink is an AsyncSink whose answers the test gives by hand.
type handSink struct {
	mu      sync.Mutex
	window  int
	got     []uint64
	started []handBatch
	ctx     context.Context
}

type handBatch struct {
	first, last uint64
	done        func(error)
}

func (s *handSink) Window() int { return s.window }

func (s *handSink) Start(ctx context.Context, b *batch.Batch, done func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rec := range b.All() {
		s.got = append(s.got, rec.Ticket)
	}
	s.ctx = ctx
	s.started = append(s.started, handBatch{b.First(), b.Last(), done})
}

func (s *handSink) Send(ctx context.Context, b *batch.Batch) error {
	return batch.SendAsync(ctx, s, b)
}

// firsts returns the first tickets of the batches started so far.
func (s *handSink) firsts() (out []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.started {
		out = append(out, b.first)
	}
	return out
}

// answer answers the i-th Start.
func (s *handSink) answer(i int, err error) {
	s.mu.Lock()
	done := s.started[i].done
	s.mu.Unlock()
	done(err)
	synctest.Wait()
}

func mustFirsts(t *testing.T, s *handSink, want ...uint64) {
	t.Helper()
	synctest.Wait()
	if got := s.firsts(); !slices.Equal(got, want) {
		t.Fatalf("started %v, want %v", got, want)
	}
}

// As many batches as the window has are in flight; Send waits for a free place;
// what is answered early waits for what is older.
func TestWindowFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &handSink{window: 3}
		k, _ := mustKeeper(t, sink, KeeperOptions{})
		m := &testkit.Model{}
		for range 3 {
			send(t, m, k, m.Batch(10, 32, batch.Meta{}))
		}
		mustFirsts(t, sink, 1, 11, 21)
		fourth := make(chan error, 1)
		b := m.Batch(10, 32, batch.Meta{})
		go func() { fourth <- k.Send(t.Context(), b) }()
		sink.answer(1, nil)
		sink.answer(2, nil)
		if a := k.Account(); a.Delivered != 0 || a.Pending.Inflight != 30 || len(fourth) != 0 {
			t.Errorf("answered out of order: %s", a)
		}
		sink.answer(0, nil)
		if err := <-fourth; m.Sent(b, err) != nil {
			t.Fatal(err)
		}
		if a := balance(t, m, k); a.Delivered != 30 || a.Pending.Inflight != 10 {
			t.Error(a)
		}
		mustFirsts(t, sink, 1, 11, 21, 31)
		flushed := make(chan error, 1)
		go func() { flushed <- k.Flush(t.Context()) }()
		synctest.Wait()
		if len(flushed) != 0 {
			t.Error("Flush did not wait for what is in flight")
		}
		sink.answer(3, nil)
		if err := <-flushed; err != nil {
			t.Error(err)
		}
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Go-back-N, step by step.
func TestWindowGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &handSink{window: 4}
		k, _ := mustKeeper(t, sink, KeeperOptions{})
		m := &testkit.Model{}
		for range 4 {
			send(t, m, k, m.Batch(10, 32, batch.Meta{}))
		}
		sink.answer(3, nil)
		sink.answer(1, testkit.ErrDown)
		sink.answer(0, nil)
		time.Sleep(time.Minute)
		mustFirsts(t, sink, 1, 11, 21, 31) // nothing before all have their answer
		sink.answer(2, nil)
		time.Sleep(time.Minute)
		mustFirsts(t, sink, 1, 11, 21, 31, 11) // the first that failed, by itself
		if a := k.Account(); a.Delivered != 10 || a.Pending.Inflight != 30 {
			t.Error(a)
		}
		sink.answer(4, batch.Prefix(4, testkit.ErrDown))
		time.Sleep(time.Minute)
		mustFirsts(t, sink, 1, 11, 21, 31, 11, 15)
		sink.answer(5, nil)
		mustFirsts(t, sink, 1, 11, 21, 31, 11, 15, 21, 31) // all behind it again, in flight
		send(t, m, k, m.Batch(10, 32, batch.Meta{}))
		mustFirsts(t, sink, 1, 11, 21, 31, 11, 15, 21, 31, 41)
		for i := 6; i <= 8; i++ {
			sink.answer(i, nil)
		}
		if a := balance(t, m, k); a.Delivered != 50 || a.Pending.Total() != 0 {
			t.Error(a)
		}
		if err := m.Verify(sink.got, 50); err != nil {
			t.Error(err)
		}
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// When nothing of the batch that failed is sent again, nothing behind it is.
func TestWindowRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &handSink{window: 3}
		dead := &handlerLog{}
		e := mustNew(t, sink, &Options{DeadLetter: dead})
		m := &testkit.Model{}
		for range 3 {
			send(t, m, e, m.Batch(10, 32, batch.Meta{}))
		}
		sink.answer(0, batch.Reject(errors.New("400"), 2, 5))
		sink.answer(2, nil)
		sink.answer(1, nil)
		mustFirsts(t, sink, 1, 11, 21)
		if a := balance(t, m, e); a.Delivered != 28 || a.Dropped[batch.Poison] != 2 || a.Pending.Total() != 0 {
			t.Error(a)
		}
		if !slices.Equal(dead.all(), []uint64{3, 6}) {
			t.Errorf("dead letters %v", dead.all())
		}
		mustClose(t, e)
	})
}

// Whatever fails, and whenever answers come: nothing is lost, the last copies
// are in order, and no failure makes more duplicates than the window has
// batches, and one more for a failed batch that had arrived.
func TestGoBackN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := testkit.Seed(t)
		for round := range testkit.Rounds(80, 20000) {
			rng := testkit.Rand(seed + uint64(round))
			window, per := 1+rng.IntN(8), 1+rng.IntN(20)
			failures := 0
			var mu sync.Mutex
			p := rng.Float64() * 0.5
			dice := testkit.Rand(rng.Uint64())
			sink := testkit.NewAsyncSink(func(ctx context.Context, call int, b *batch.Batch) ([]int, error) {
				mu.Lock()
				defer mu.Unlock()
				if dice.Float64() >= p {
					return nil, nil
				}
				failures++
				switch dice.IntN(3) {
				case 0:
					return nil, testkit.ErrDown
				case 1:
					return testkit.First(dice.IntN(b.Len()))(ctx, call, b)
				default:
					return testkit.Lost(testkit.ErrDown)(ctx, call, b)
				}
			}, window, rng, time.Second)
			k, _ := mustKeeper(t, sink, KeeperOptions{Retry: &RetryOptions{Min: time.Millisecond, Max: time.Second}})
			m := &testkit.Model{}
			for range 60 {
				send(t, m, k, m.Batch(per, 32, batch.Meta{}))
			}
			if err := k.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if a := balance(t, m, k); a.Delivered != m.Accepted() {
				t.Fatalf("round %d: %s", round, a)
			}
			got := sink.Got()
			if err := m.Verify(got, m.Accepted()); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			if _, copies := testkit.LastCopies(got); copies > failures*window*per {
				t.Fatalf("round %d: %d copies after %d failures with a window of %d × %d", round, copies, failures, window, per)
			}
			for _, f := range sink.Faults() {
				t.Fatalf("round %d: %s", round, f)
			}
			if err := k.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// When the breaker opens, the window goes to the spill, ahead of what comes
// later, and is replayed through the window.
func TestWindowSpills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := time.Now().Add(10 * time.Minute)
		sink := testkit.NewAsyncSink(testkit.DownUntil(up, testkit.Take), 4, testkit.Rand(1), 100*time.Millisecond)
		store := &testkit.Spill{}
		e := mustNew(t, sink, &Options{Spill: store})
		m := &testkit.Model{}
		for range 100 {
			send(t, m, e, m.Batch(10, 32, batch.Meta{}))
			time.Sleep(time.Second)
		}
		if a := balance(t, m, e); a.Pending.Spill != 1000 || a.Pending.Inflight != 0 {
			t.Errorf("in the outage: %s", a)
		}
		time.Sleep(time.Until(up))
		sink.Answer(testkit.Take)
		time.Sleep(5 * time.Minute)
		if a := balance(t, m, e); a.Delivered != 1000 {
			t.Errorf("after it: %s", a)
		}
		if err := m.Verify(sink.Got(), 1000); err != nil {
			t.Error(err)
		}
		if sink.Most() < 3 {
			t.Errorf("at most %d batches in flight: the replay was not pipelined", sink.Most())
		}
		mustClose(t, e)
	})
}

// When the spill fails while the window is moved into it, the rest of the window
// waits behind the spill and in front of everything newer.
func TestWindowSpillFailsHalfway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewAsyncSink(testkit.Fail(testkit.ErrDown), 4, nil, time.Second)
		store := &halfSpill{left: 2}
		e := mustNew(t, sink, &Options{Spill: store, Breaker: &BreakerOptions{Failures: 1}})
		m := &testkit.Model{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var rest *batch.Batch
		for rest == nil {
			b := m.Batch(10, 32, batch.Meta{})
			rest = m.Sent(b, e.Send(ctx, b))
		}
		a, err := m.Account(e.Account(), 10)
		if err != nil || a.Pending.Spill != 20 || a.Pending.Inflight == 0 {
			t.Errorf("%v: %s", err, a)
		}
		store.left = 1000
		produce(t, t.Context(), m, e, rest)
		if a := balance(t, m, e); a.Pending.Inflight != 0 {
			t.Errorf("when the spill is well again: %s", a)
		}
		sink.Answer(nil)
		time.Sleep(10 * time.Minute)
		if err := m.Verify(sink.Got(), m.Accepted()); err != nil {
			t.Error(err)
		}
		mustClose(t, e)
	})
}

// halfSpill takes some batches and then no more.
type halfSpill struct {
	testkit.Spill
	left int
}

func (s *halfSpill) Append(b *batch.Batch) (uint64, error) {
	if s.left <= 0 {
		return 0, testkit.ErrDisk
	}
	s.left--
	return s.Spill.Append(b)
}

// After a batch was too large, batches in flight keep to the size.
func TestWindowKeepsSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewAsyncSink(testkit.AtMost(320), 4, testkit.Rand(1), 10*time.Millisecond)
		e := mustNew(t, sink, &Options{})
		m := &testkit.Model{}
		for i := range 20 {
			send(t, m, e, m.Batch([]int{64, 5, 64, 64}[i%4], 32, batch.Meta{}))
		}
		if err := e.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a := balance(t, m, e); a.Delivered != m.Accepted() {
			t.Error(a)
		}
		if err := m.Verify(sink.Got(), m.Accepted()); err != nil {
			t.Error(err)
		}
		large := 0
		for _, n := range sink.Sizes() {
			if n > 10 {
				large++
			}
		}
		if large > 3+3 { // those in flight at first, and the steps from 64 records down
			t.Errorf("%d batches too large", large)
		}
		mustClose(t, e)
	})
}

// A destination that panics, or ends the goroutine, in Start or in Send is one
// that failed.
func TestAsyncPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &panicSink{Sink: testkit.NewSink(nil)}
		ev := &testkit.Events{}
		e := mustNew(t, sink, &Options{OnError: ev.Add})
		m := &testkit.Model{}
		for range 5 {
			send(t, m, e, m.Batch(10, 32, batch.Meta{}))
		}
		time.Sleep(time.Minute)
		if err := e.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.Verify(sink.Got(), 50); err != nil || !ev.Has("panic") {
			t.Errorf("%v, events %v", err, ev.Ops())
		}
		mustClose(t, e)
	})
}

// panicSink panics in every other Start.
type panicSink struct {
	*testkit.Sink
	starts int
}

func (s *panicSink) Window() int { return 3 }

func (s *panicSink) Start(ctx context.Context, b *batch.Batch, done func(error)) {
	if s.starts++; s.starts%2 == 1 {
		panic("out of luck")
	}
	done(s.Sink.Send(ctx, b))
}

func (s *panicSink) Send(ctx context.Context, b *batch.Batch) error {
	return batch.SendAsync(ctx, s, b)
}

// A Flush follows a batch from the window into the spill.
func TestFlushFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &handSink{window: 3}
		k, _ := mustKeeper(t, sink, KeeperOptions{Spill: &testkit.Spill{}})
		m := &testkit.Model{}
		send(t, m, k, m.Batch(10, 32, batch.Meta{}))
		send(t, m, k, m.Batch(10, 32, batch.Meta{}))
		flushed := make(chan error, 1)
		go func() { flushed <- k.Flush(t.Context()) }()
		synctest.Wait()
		sink.answer(0, testkit.ErrDown)
		sink.answer(1, nil)
		time.Sleep(time.Minute)
		mustFirsts(t, sink, 1, 11, 1, 11) // from the spill
		sink.answer(2, nil)
		if len(flushed) > 0 {
			t.Error("Flush did not wait for the second batch")
		}
		sink.answer(3, nil)
		if err := <-flushed; err != nil {
			t.Error(err)
		}
		if a := balance(t, m, k); a.Delivered != 20 {
			t.Error(a)
		}
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A Flush that waits when the destination goes down ends then.
func TestFlushEndsWithOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &handSink{window: 3}
		e := mustNew(t, sink, &Options{Breaker: &BreakerOptions{Failures: 1}})
		m := &testkit.Model{}
		send(t, m, e, m.Batch(10, 32, batch.Meta{}))
		flushed := make(chan error, 1)
		go func() { flushed <- e.Flush(t.Context()) }()
		synctest.Wait()
		sink.answer(0, testkit.ErrDown)
		select {
		case err := <-flushed:
			if !errors.Is(err, ErrOpen) || !errors.Is(err, testkit.ErrDown) {
				t.Errorf("got %v", err)
			}
		default:
			t.Error("Flush waits for a destination that is down")
		}
		time.Sleep(time.Minute)
		sink.answer(1, nil)
		if err := e.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		mustClose(t, e)
	})
}

// The goroutine that replays survives a destination that panics or ends it.
func TestReplaySurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, odd := range []testkit.Answer{testkit.Panic, testkit.Goexit} {
			sink := testkit.NewSink(testkit.Script(testkit.Fail(testkit.ErrDown), odd, odd, odd, testkit.Take))
			k, _ := mustKeeper(t, sink, KeeperOptions{Spill: &testkit.Spill{}})
			m := &testkit.Model{}
			send(t, m, k, m.Batch(10, 32, batch.Meta{}))
			time.Sleep(time.Minute)
			if a := balance(t, m, k); a.Delivered != 10 || sink.Calls() != 5 {
				t.Errorf("%d calls: %s", sink.Calls(), a)
			}
			if err := k.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
