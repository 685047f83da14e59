package deliver

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

func mustRetry(t *testing.T, sink batch.Sink, o *RetryOptions) (*Retry, *testkit.Events) {
	t.Helper()
	ev := &testkit.Events{}
	o.OnError = ev.Add
	r, err := NewRetry(sink, o)
	if err != nil {
		t.Fatal(err)
	}
	return r, ev
}

func TestRetryUntilTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Script(testkit.Fail(testkit.ErrDown), testkit.Fail(testkit.ErrDown), testkit.Take))
		r, ev := mustRetry(t, sink, &RetryOptions{})
		began := time.Now()
		b := lines(10)
		if err := r.Send(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 600*time.Millisecond {
			t.Errorf("two retries took %s, at most 0.2 + 0.4 s", d)
		}
		synctest.Wait()
		if got := ev.Ops(); !slices.Equal(got, []string{"send", "recovered"}) {
			t.Errorf("events %v", got)
		}
		if r.Retries() != 2 || len(sink.Got()) != 10 || b.Tally != (batch.Tally{}) {
			t.Errorf("%d retries, got %v, tally %v", r.Retries(), sink.Got(), b.Tally)
		}
	})
}

// Only what is not settled is sent again, in order.
func TestRetryRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Script(testkit.First(3), testkit.Some(1, 4), testkit.First(1), testkit.Take))
		r, _ := mustRetry(t, sink, &RetryOptions{})
		if err := r.Send(t.Context(), lines(10)); err != nil {
			t.Fatal(err)
		}
		// 1 2 3, then of 4…10 all but 5 and 8, then 5, then 8
		if got, want := sink.Got(), []uint64{1, 2, 3, 4, 6, 7, 9, 10, 5, 8}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if got, want := sink.Sizes(), []int{10, 7, 2, 1}; !slices.Equal(got, want) {
			t.Errorf("sizes %v, want %v", got, want)
		}
	})
}

func TestRetryAfterIsAFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Script(testkit.Fail(batch.RetryAfter(errors.New("429"), 7*time.Second)), testkit.Take))
		r, _ := mustRetry(t, sink, &RetryOptions{})
		began := time.Now()
		if err := r.Send(t.Context(), lines(1)); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d < 7*time.Second || d > 8*time.Second {
			t.Errorf("waited %s, want 7 s", d)
		}
	})
}

func TestRetryFatalHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Script(testkit.Fail(batch.Fatal(errors.New("401"))), testkit.Fail(batch.Fatal(errors.New("401"))), testkit.Take))
		r, ev := mustRetry(t, sink, &RetryOptions{})
		began := time.Now()
		if err := r.Send(t.Context(), lines(1)); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d < 2*time.Minute {
			t.Errorf("two holds took %s, want 2 min", d)
		}
		synctest.Wait()
		if got := ev.Ops(); !slices.Equal(got, []string{"hold", "recovered"}) {
			t.Errorf("events %v", got)
		}
	})
}

// Records that are too old when an attempt has failed are dropped, and no others.
func TestRetryAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(nil)
		r, ev := mustRetry(t, sink, &RetryOptions{})
		time.Sleep(2 * time.Hour)
		now := time.Now()
		var build batch.Builder
		for i, age := range []time.Duration{25 * time.Hour, time.Hour, 24*time.Hour - 10*time.Minute, -time.Hour} {
			build.Append([]byte("x\n"), uint64(i+1), batch.Meta{Time: now.Add(-age).UnixNano()})
		}
		build.Append([]byte("no time\n"), 5, batch.Meta{})
		b := build.Batch(nil)
		sink.Answer(testkit.DownUntil(now.Add(time.Hour), testkit.Take))
		if err := r.Send(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got := sink.Got(); !slices.Equal(got, []uint64{2, 4, 5}) {
			t.Errorf("got %v", got)
		}
		if want := (batch.Drops{batch.Expired: 2}); b.Tally.Dropped != want || b.Tally.Settled() != 2 {
			t.Errorf("tally %+v", b.Tally)
		}
		synctest.Wait()
		if got := ev.Count("expired"); got != 1 {
			t.Errorf("%d expired events, want one for the row", got)
		}

		// A destination that is well gets records of any age.
		old := new(testkit.Model).Batch(3, 32, batch.Meta{Time: 1})
		if err := r.Send(t.Context(), old); err != nil || old.Tally.Settled() != 0 {
			t.Errorf("old records: %v, tally %+v", err, old.Tally)
		}
		// Where time is unknown, age counts from the first attempt, and so it does
		// where a record was too old before there was anything to send it with.
		sink.Answer(testkit.Fail(testkit.ErrDown))
		for _, at := range []int64{0, 1, now.Add(-27 * time.Hour).UnixNano()} {
			began := time.Now()
			b = new(testkit.Model).Batch(2, 32, batch.Meta{Time: at})
			if err := r.Send(t.Context(), b); err != nil || b.Tally.Dropped[batch.Expired] != 2 {
				t.Errorf("%v, tally %+v", err, b.Tally)
			}
			if d := time.Since(began); d < 24*time.Hour || d > 24*time.Hour+time.Minute {
				t.Errorf("gave up after %s, want 24 h", d)
			}
		}
	})
}

func TestRetryNoAgeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.DownUntil(time.Now().Add(100*time.Hour), testkit.Take))
		r, _ := mustRetry(t, sink, &RetryOptions{MaxAge: -1})
		if err := r.Send(t.Context(), lines(2)); err != nil || len(sink.Got()) != 2 {
			t.Errorf("%v, got %v", err, sink.Got())
		}
	})
}

// What Send returns when it must give up names the records of the batch it was
// given.
func TestRetryResult(t *testing.T) {
	refuse := batch.Reject(errors.New("malformed"), 0, 2)
	tests := []struct {
		name   string
		answer testkit.Answer
		kind   batch.Kind
		acked  int
		recs   []int
	}{
		{"nothing settled", testkit.Fail(testkit.ErrDown), batch.KindRetry, 0, nil},
		{"prefix", testkit.Script(testkit.First(4), testkit.Fail(testkit.ErrDown)), batch.KindPrefix, 4, nil},
		{"prefix twice", testkit.Script(testkit.First(4), testkit.First(1), testkit.Fail(testkit.ErrDown)), batch.KindPrefix, 5, nil},
		{"partial", testkit.Script(testkit.Some(1, 5), testkit.Fail(testkit.ErrDown)), batch.KindPartial, 0, []int{1, 5}},
		{"partial to prefix", testkit.Script(testkit.Some(8, 9), testkit.Fail(testkit.ErrDown)), batch.KindPrefix, 8, nil},
		{"reject", testkit.Fail(batch.Permanent(errors.New("malformed"))), batch.KindReject, 0, nil},
		{"reject the rest", testkit.Script(testkit.First(7), testkit.Fail(batch.Permanent(errors.New("malformed")))), batch.KindReject, 0, []int{7, 8, 9}},
		{"reject some of the rest", testkit.Script(testkit.First(7), testkit.Fail(refuse)), batch.KindReject, 0, []int{7, 9}},
		{"too large", testkit.Fail(batch.TooLarge(errors.New("413"))), batch.KindTooLarge, 0, nil},
		{"the rest is too large", testkit.Script(testkit.First(7), testkit.Fail(batch.TooLarge(errors.New("413")))), batch.KindPrefix, 7, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := mustRetry(t, testkit.NewSink(tt.answer), &RetryOptions{})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				err := r.Send(ctx, lines(10))
				e := batch.Inspect(err)
				if err == nil || e.Kind != tt.kind || e.Acked != tt.acked || !slices.Equal(e.Records, tt.recs) {
					t.Errorf("%v: %s acked %d records %v", err, e.Kind, e.Acked, e.Records)
				}
			})
		})
	}
}

// A sink that accounts for more records than it settled does not unbalance
// anything.
func TestTallyThatMakesNoSense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		sink := batch.SinkFunc(func(_ context.Context, b *batch.Batch) error {
			calls++
			b.Tally.Dropped[batch.Poison] = 4
			if calls == 1 {
				return batch.Prefix(2, testkit.ErrDown)
			}
			return nil
		})
		r, _ := mustRetry(t, sink, &RetryOptions{})
		b := lines(10)
		if err := r.Send(t.Context(), b); err != nil || b.Tally.Dropped[batch.Poison] != 4 {
			t.Errorf("%v, tally %+v: want the 4 of the second Send", err, b.Tally)
		}
	})
}

// Over any time, retries are at most a tenth of the successes plus one a second
// plus the burst.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(0, 0)
		began := time.Now()
		for range 100 {
			time.Sleep(b.take(time.Now()))
		}
		if d := time.Since(began); d < 89*time.Second || d > 91*time.Second {
			t.Errorf("100 retries took %s, want 90 s", d)
		}
		for range 1000 {
			b.success()
		}
		began = time.Now()
		for range 10 {
			time.Sleep(b.take(time.Now()))
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("10 retries after 1000 successes took %s", d)
		}
		if b.take(time.Now()) == 0 {
			t.Error("more than the burst at once")
		}
		time.Sleep(time.Hour)
		if b.take(time.Now()); b.tokens > budgetBurst {
			t.Errorf("%g tokens, at most %d", b.tokens, budgetBurst)
		}
	})
}

// Two Retry that share a budget share it.
func TestBudgetShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := NewBudget(0, 0)
		var total uint64
		var rs [4]*Retry
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		done := make(chan struct{})
		for i := range rs {
			rs[i], _ = mustRetry(t, testkit.NewSink(testkit.Fail(testkit.ErrDown)), &RetryOptions{Budget: shared, Max: 200 * time.Millisecond})
			go func() { _ = rs[i].Send(ctx, lines(1)); done <- struct{}{} }()
		}
		for range rs {
			<-done
		}
		for _, r := range rs {
			total += r.Retries()
		}
		if total < 300 || total > 311 {
			t.Errorf("%d retries in 300 s, want one a second and 10", total)
		}
	})
}

// Drain makes waits short.
func TestRetryDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Script(testkit.Fail(batch.RetryAfter(errors.New("503"), time.Hour)), testkit.Take))
		r, _ := mustRetry(t, sink, &RetryOptions{})
		done := make(chan error)
		go func() { done <- r.Send(t.Context(), lines(1)) }()
		time.Sleep(time.Minute)
		began := time.Now()
		r.Drain(time.Now().Add(5 * time.Second))
		if err := <-done; err != nil || time.Since(began) > 200*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

func TestRetryOptions(t *testing.T) {
	for _, o := range []*RetryOptions{{Min: -1}, {Max: -1}, {Min: time.Minute, Max: time.Second}, {FatalDelay: -1}} {
		if _, err := NewRetry(testkit.NewSink(nil), o); err == nil {
			t.Errorf("%+v: no error", *o)
		}
	}
	for _, o := range []*RetryOptions{{Min: time.Hour}, {Max: time.Millisecond}} { // the other bound follows
		if r, err := newRetrier(o, nil, newClosing()); err != nil || r.o.Min > r.o.Max || o.Min > 0 && r.o.Min != o.Min || o.Max > 0 && r.o.Max != o.Max {
			t.Errorf("%+v: %v", *o, err)
		}
	}
	if _, err := NewRetry(nil, nil); err == nil {
		t.Error("no error for a nil sink")
	}
}
