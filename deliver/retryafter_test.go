package deliver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A destination that asks for a long wait is down: the spill is used at once.
func TestLongRetryAfterSpills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Fail(batch.RetryAfter(errors.New("503"), time.Hour)))
		e := mustNew(t, sink, &Options{Spill: &testkit.Spill{}})
		m := &testkit.Model{}
		began := time.Now()
		for range 60 {
			send(t, m, e, m.Batch(1000, 32, batch.Meta{}))
		}
		if d := time.Since(began); d > 0 || sink.Calls() != 1 || e.Stats().Breaker != Open {
			t.Errorf("Send waited for %s, %d attempts, %s", d, sink.Calls(), e.Stats().Breaker)
		}
		if a := balance(t, m, e); a.Pending.Spill != 60000 {
			t.Errorf("account %s", a)
		}
		// An hour is too much to ask for.
		sink.Answer(nil)
		time.Sleep(MaxRetryAfter + time.Minute)
		synctest.Wait()
		if a := balance(t, m, e); a.Delivered != 60000 {
			t.Errorf("account %s", a)
		}
		mustClose(t, e)
	})
}

// The handler, too, is offered records at once.
func TestLongRetryAfterFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &handlerLog{}
		e := mustNew(t, testkit.NewSink(testkit.Fail(batch.RetryAfter(errors.New("503"), time.Hour))), &Options{Handler: h})
		m := &testkit.Model{}
		began := time.Now()
		send(t, m, e, m.Batch(10, 32, batch.Meta{}))
		if a := balance(t, m, e); a.Handled != 10 || time.Since(began) > 0 {
			t.Errorf("%s after %s", a, time.Since(began))
		}
		mustClose(t, e)
	})
}

// A wait ends for a record that has become too old, and for no other.
func TestAgeDuringLongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Script(testkit.Fail(batch.RetryAfter(errors.New("503"), 48*time.Hour)), testkit.Take))
		r, _ := mustRetry(t, sink, &RetryOptions{MaxAge: 5 * time.Minute})
		now := time.Now()
		var build batch.Builder
		for i, age := range []time.Duration{time.Minute, 0} {
			build.Append([]byte("x\n"), uint64(i+1), batch.Meta{Time: now.Add(-age).UnixNano()})
		}
		b := build.Batch(nil)
		if err := r.Send(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(now); d < 5*time.Minute || d > 5*time.Minute+time.Second || b.Tally.Dropped[batch.Expired] != 2 || sink.Calls() != 1 {
			t.Errorf("after %s: %+v, %d attempts", d, b.Tally, sink.Calls())
		}

		// One that is young enough waits for as long as it takes, up to the cap.
		sink = testkit.NewSink(testkit.Script(testkit.Fail(batch.RetryAfter(errors.New("503"), 48*time.Hour)), testkit.Take))
		r, _ = mustRetry(t, sink, &RetryOptions{MaxAge: 20 * time.Minute})
		now = time.Now()
		b = new(testkit.Model).Batch(3, 32, batch.Meta{Time: now.UnixNano()})
		if err := r.Send(t.Context(), b); err != nil || b.Tally.Settled() != 0 || time.Since(now) != MaxRetryAfter {
			t.Errorf("%v after %s: %+v", err, time.Since(now), b.Tally)
		}
	})
}

// With a breaker and nothing to fall back on, age counts all the same.
func TestAgeWhileOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := mustNew(t, testkit.NewSink(testkit.Fail(batch.RetryAfter(errors.New("503"), time.Hour))), &Options{Retry: &RetryOptions{MaxAge: time.Minute}})
		m := &testkit.Model{}
		began := time.Now()
		send(t, m, e, m.Batch(10, 32, batch.Meta{Time: began.UnixNano()}))
		if a := balance(t, m, e); a.Dropped[batch.Expired] != 10 || time.Since(began) > time.Minute+time.Second {
			t.Errorf("%s after %s", a, time.Since(began))
		}
		mustClose(t, e)
	})
}

// Results of before an outage are no probes.
func TestStaleResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold, probe := make(chan error), make(chan error)
		answer := func(ctx context.Context) error { return <-hold }
		calls := 0
		k := mustBreaker(t, batch.SinkFunc(func(ctx context.Context, _ *batch.Batch) error {
			calls++
			return answer(ctx)
		}), nil)
		results := make(chan error)
		send := func(n int) { go func() { results <- k.Send(t.Context(), lines(n)) }(); synctest.Wait() }
		for range 4 {
			send(100)
		}
		answer = func(context.Context) error { return testkit.ErrDown }
		for range 5 {
			_ = k.Send(t.Context(), lines(100))
		}
		time.Sleep(2 * time.Second)
		answer = func(context.Context) error { return <-probe }
		send(10)
		calls = 0
		for _, err := range []error{nil, nil, testkit.ErrDown} { // the old Sends
			hold <- err
			synctest.Wait()
			if k.State() != HalfOpen {
				t.Fatalf("%v of an old Send: %s", err, k.State())
			}
			<-results
			send(10)
			if err := <-results; !errors.Is(err, ErrOpen) || calls != 0 {
				t.Fatalf("a second probe beside the first: %v", err)
			}
		}
		probe <- nil
		<-results
		go func() { probe <- nil }()
		if err := k.Send(t.Context(), lines(10)); err != nil || k.State() != Closed {
			t.Errorf("%v, %s", err, k.State())
		}
		hold <- testkit.ErrDown // one more of before
		<-results
		if k.c.consecutive != 0 {
			t.Error("an old failure counts")
		}
	})
}

// "recovered" is said of a destination that has taken something.
func TestRecoveredMeansDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ev := &testkit.Events{}
		refuse := func(_ context.Context, b *batch.Batch) error { return batch.Permanent(errors.New("400")) }
		sink := testkit.NewSink(testkit.Script(testkit.Fail(testkit.ErrDown)))
		n := 0
		e := mustNew(t, batch.SinkFunc(func(ctx context.Context, b *batch.Batch) error {
			if n++; n > 1 {
				return refuse(ctx, b)
			}
			return sink.Send(ctx, b)
		}), &Options{OnError: ev.Add})
		m := &testkit.Model{}
		send(t, m, e, m.Batch(4, 32, batch.Meta{}))
		synctest.Wait()
		if ev.Count("recovered") != 0 || ev.Count("send") != 1 {
			t.Errorf("events %v", ev.Ops())
		}
		mustClose(t, e)

		// A gap marker that goes into the spill is not even in a tally.
		e = mustNew(t, testkit.NewSink(testkit.Fail(batch.RetryAfter(testkit.ErrDown, time.Minute))), &Options{Spill: &testkit.Spill{}, OnError: ev.Add})
		send(t, m, e, m.Batch(4, 32, batch.Meta{}))
		var marker batch.Batch
		marker.Add(batch.NewRun([]byte("gap\n"), []batch.Slot{{Len: 4, Flags: batch.FlagMarker}}))
		if err := e.Send(t.Context(), &marker); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if ev.Count("recovered") != 0 {
			t.Errorf("events %v", ev.Ops())
		}
		mustClose(t, e)
	})
}
