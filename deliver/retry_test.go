package deliver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/testkit"
)

// newRetrying returns an outlet whose circuit never opens because of failed sends.
func newRetrying(t *testing.T, dest Destination, r *RetryOptions) (*outlet, *testkit.Events) {
	t.Helper()
	ev := &testkit.Events{}
	return mustNew(t, dest, &Options{Retry: r, Breaker: &BreakerOptions{Failures: 1 << 30}, OnError: ev.Add}), ev
}

func TestRetryUntilAccepted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Script(testkit.Fail(testkit.ErrDown), testkit.Fail(testkit.ErrDown), testkit.Accept))
		x, ev := newRetrying(t, destOf(sink), nil)
		began := time.Now()
		m := &testkit.Model{}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		synctest.Wait()
		if s := x.Stats(); s.LastError != testkit.ErrDown.Error() {
			t.Errorf("LastError %q", s.LastError)
		}
		mustFlush(t, x)
		synctest.Wait()
		if d := time.Since(began); d > 600*time.Millisecond {
			t.Errorf("two retries took %s, at most 0.2 + 0.4 s", d)
		}
		if got := ev.Ops(); !slices.Equal(got, []string{"send", "recovered"}) {
			t.Errorf("events %v", got)
		}
		if s := x.Stats(); s.Retries != 2 || s.Attempts != 3 || s.LastError != "" {
			t.Errorf("%+v", s)
		}
		mustBalance(t, m, x, 10)
		mustClose(t, x)
	})
}

// The delays are uniformly distributed between 0 and a maximum that doubles with each retry, up to
// Max.
func TestRetryDelays(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var sums [15]time.Duration
		const rounds = 100
		for range rounds {
			var at []time.Time
			dest := SendFunc(Traits{}, func(context.Context, *batch.Batch) batch.Outcome {
				at = append(at, time.Now())
				return batch.FailedOutcome(testkit.ErrDown)
			})
			x, _ := newRetrying(t, dest, &RetryOptions{Min: 100 * time.Millisecond, Max: 10 * time.Second, BudgetRatio: 1, BudgetPerSecond: 1e6})
			if err := x.Send(t.Context(), lines(1)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Minute)
			_, _ = shutdown(x, 0)
			for i := range sums {
				d := at[i+1].Sub(at[i])
				if most := min(100*time.Millisecond<<i, 10*time.Second); d > most {
					t.Fatalf("retry %d after %s, at most %s", i, d, most)
				}
				sums[i] += d
			}
		}
		for i, sum := range sums {
			most := min(100*time.Millisecond<<i, 10*time.Second)
			if mean := sum / rounds; mean < most*3/10 || mean > most*7/10 {
				t.Errorf("the mean delay before retry %d is %s, want half of %s", i, mean, most)
			}
		}
	})
}

// Only the records that are not settled are sent again, in order.
func TestRetryRest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Script(testkit.First(3), testkit.Some(1, 4), testkit.First(1), testkit.Accept))
		x, _ := newRetrying(t, destOf(sink), nil)
		if err := x.Send(t.Context(), lines(10)); err != nil {
			t.Fatal(err)
		}
		mustFlush(t, x)
		// The first send delivers records 1 to 3. The second delivers 4 to 10 without 5 and 8, the
		// third 5, and the fourth 8.
		if got, want := sink.Got(), []uint64{1, 2, 3, 4, 6, 7, 9, 10, 5, 8}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if got, want := sink.Sizes(), []int{10, 7, 2, 1}; !slices.Equal(got, want) {
			t.Errorf("sizes %v, want %v", got, want)
		}
		mustClose(t, x)
	})
}

// The wait that a destination asks for is the minimum delay before the next attempt. The
// destination may ask in an answer, in the error that ends a session, or in the error of Open.
func TestRetryAfterIsAFloor(t *testing.T) {
	slow := batch.RetryAfter(errors.New("429"), 4*time.Second)
	for _, where := range []string{"answer", "end", "open"} {
		bubble.Test(t, func(t *testing.T) {
			d := newManual(1)
			d.open = func(n int, _ Life) error {
				if where == "open" && n == 0 {
					return slow
				}
				return nil
			}
			d.onSend = func(s *manualSession, b *batch.Batch) error {
				switch n := len(d.starts()); {
				case n > 1 || where == "open":
					s.l.Answer(b, allAccepted)
				case where == "answer":
					s.l.Answer(b, noneAccepted(slow))
				case where == "end":
					s.l.End(slow)
				}
				return nil
			}
			x := mustNew(t, d, nil)
			began := time.Now()
			if err := x.Send(t.Context(), lines(1)); err != nil {
				t.Fatal(err)
			}
			mustFlush(t, x)
			if d := time.Since(began); d < 4*time.Second || d > 5*time.Second {
				t.Errorf("%s: waited %s, want 4 s", where, d)
			}
			mustClose(t, x)
		})
	}
}

// If a destination asks for a long wait, the circuit opens and the spool is used immediately. The
// wait is limited to maxRetryAfter.
func TestLongRetryAfter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Fail(batch.RetryAfter(errors.New("503"), time.Hour)))
		x := mustNew(t, destOf(sink), &Options{spill: &testkit.Spill{}})
		m := &testkit.Model{}
		began := time.Now()
		for range 60 {
			send(t, m, x, m.Batch(1000, 32, batch.Meta{}))
		}
		synctest.Wait()
		if d := time.Since(began); d > 0 || sink.Calls() != 1 || x.Stats().Breaker != Open {
			t.Errorf("Send waited for %s, %d attempts, %s", d, sink.Calls(), x.Stats().Breaker)
		}
		if a := balance(t, m, x); a.Pending.Spill != 60000 {
			t.Errorf("account %s", a)
		}
		sink.Answer(nil)
		time.Sleep(maxRetryAfter - time.Second)
		if sink.Calls() != 1 {
			t.Error("sent before the requested delay was over")
		}
		time.Sleep(time.Minute)
		mustBalance(t, m, x, 60000)
		mustClose(t, x)
	})
}

// The outlet gets the advice Hold from an answer, from the end of a session or from Open. It then
// posts one "hold" event and sends rarely. No record is dropped.
func TestHold(t *testing.T) {
	denied := batch.Fatal(errors.New("401 unauthorized"))
	for _, where := range []string{"answer", "end", "open"} {
		bubble.Test(t, func(t *testing.T) {
			ev, dead := &testkit.Events{}, &handlerLog{}
			d := newManual(2)
			var well atomic.Bool
			d.open = func(int, Life) error {
				if where == "open" && !well.Load() {
					return denied
				}
				return nil
			}
			d.onSend = func(s *manualSession, b *batch.Batch) error {
				switch {
				case well.Load():
					s.l.Answer(b, allAccepted)
				case where == "answer":
					s.l.Answer(b, batch.Outcome{Open: batch.All(), Why: errors.New("401"), Advice: batch.Hold})
				default:
					s.l.End(denied)
				}
				return nil
			}
			x := mustNew(t, d, &Options{spill: &testkit.Spill{}, DeadLetter: dead, OnError: ev.Add, Retry: &RetryOptions{MaxAge: -1}})
			m := &testkit.Model{}
			for range 10 {
				send(t, m, x, m.Batch(10, 32, batch.Meta{Time: time.Now().UnixNano()}))
				time.Sleep(time.Hour)
			}
			if n := max(d.opens(), len(d.starts())); n > 10*61 || n < 300 {
				t.Errorf("%s: %d attempts in ten hours", where, n)
			}
			if a := balance(t, m, x); a.Pending.Spill != 100 || dead.calls() != 0 {
				t.Errorf("%s: %d dead letters: %s", where, dead.calls(), a)
			}
			if ev.Count("hold") != 1 || ev.Has("recovered") {
				t.Errorf("%s: events %v", where, ev.Ops())
			}
			well.Store(true)
			time.Sleep(5 * time.Minute)
			mustBalance(t, m, x, 100)
			if ev.Count("recovered") != 1 || ev.Count("spilled") != 1 {
				t.Errorf("%s: events %v", where, ev.Ops())
			}
			mustClose(t, x)
		})
	}
}

// If a destination has ended permanently, the records sent to it are dropped and counted.
func TestGone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ev := &testkit.Events{}
		n := 0
		d := SendFunc(Traits{}, func(_ context.Context, b *batch.Batch) batch.Outcome {
			if n++; n == 1 {
				return batch.Outcome{Open: batch.From(3), Why: errors.New("broken pipe"), Advice: batch.Gone}
			}
			return batch.Outcome{Open: batch.All(), Why: errors.New("broken pipe"), Advice: batch.Gone}
		})
		x := mustNew(t, d, &Options{OnError: ev.Add})
		m := &testkit.Model{}
		began := time.Now()
		for range 5 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		mustFlush(t, x)
		synctest.Wait()
		if a := balance(t, m, x); a.Delivered != 3 || a.Dropped[batch.Failed] != 47 || time.Since(began) > 0 {
			t.Errorf("%s after %s", a, time.Since(began))
		}
		if ev.Count("gone") != 1 {
			t.Errorf("events %v: want one for the series", ev.Ops())
		}
		if s := x.Stats(); !strings.Contains(s.LastError, "broken pipe") {
			t.Errorf("LastError %q", s.LastError)
		}
		mustClose(t, x)
	})
}

// ---- age ----------------------------------------------------------------------

// While the destination fails, records older than MaxAge are dropped, and no other records.
func TestAge(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(nil)
		x, ev := newRetrying(t, destOf(sink), nil)
		time.Sleep(2 * time.Hour)
		now := time.Now()
		var build batch.Batch
		for i, age := range []time.Duration{25 * time.Hour, time.Hour, 24*time.Hour - 10*time.Minute, -time.Hour} {
			build.Append([]byte("x\n"), uint64(i+1), batch.Meta{Time: now.Add(-age).UnixNano()})
		}
		build.Append([]byte("no time\n"), 5, batch.Meta{})
		sink.Answer(testkit.DownUntil(now.Add(time.Hour), testkit.Accept))
		if err := x.Send(t.Context(), &build); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if got := sink.Got(); !slices.Equal(got, []uint64{2, 4, 5}) {
			t.Errorf("got %v", got)
		}
		if a := x.Account(); a.Dropped != (batch.Drops{batch.Expired: 2}) || x.Stats().Dropped[batch.Expired] != 2 {
			t.Errorf("%s", a)
		}
		if got := ev.Count("expired"); got != 1 {
			t.Errorf("%d expired events, want one for the series", got)
		}
		// A destination without failures receives records of any age.
		if err := x.Send(t.Context(), new(testkit.Model).Batch(3, 32, batch.Meta{Time: 1})); err != nil {
			t.Error(err)
		}
		mustFlush(t, x)
		if a := x.Account(); a.Delivered != 6 {
			t.Errorf("old records: %s", a)
		}
		mustClose(t, x)
	})
}

// The age of a record counts from its arrival if the record has no timestamp, or if its timestamp
// exceeded MaxAge when the outlet was created.
func TestAgeFromArrival(t *testing.T) {
	for _, back := range []time.Duration{-1, 27 * time.Hour, 20000 * time.Hour} {
		bubble.Test(t, func(t *testing.T) {
			at := int64(0)
			if back > 0 {
				at = time.Now().Add(-back).UnixNano()
			}
			x, _ := newRetrying(t, destOf(testkit.NewSink(testkit.Fail(testkit.ErrDown))), nil)
			time.Sleep(time.Hour)
			if err := x.Send(t.Context(), new(testkit.Model).Batch(2, 32, batch.Meta{Time: at})); err != nil {
				t.Error(err)
			}
			time.Sleep(24*time.Hour - time.Second)
			if a := x.Account(); a.Pending.Inflight != 2 {
				t.Errorf("%s: a second before: %s", back, a)
			}
			time.Sleep(3 * time.Second)
			if a := x.Account(); a.Dropped[batch.Expired] != 2 {
				t.Errorf("%s: after 24 h: %s", back, a)
			}
			mustClose(t, x)
		})
	}
}

// Records that expire during a long wait are dropped when they expire, even while the circuit is
// open. Other records wait until the end of that wait.
func TestAgeDuringLongWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		answer := testkit.Script(testkit.Fail(batch.RetryAfter(errors.New("503"), 48*time.Hour)), testkit.Accept)
		sink := testkit.NewSink(answer)
		x := mustNew(t, destOf(sink), &Options{Retry: &RetryOptions{MaxAge: 5 * time.Minute}})
		now := time.Now()
		var build batch.Batch
		for i, age := range []time.Duration{time.Minute, 0} {
			build.Append([]byte("x\n"), uint64(i+1), batch.Meta{Time: now.Add(-age).UnixNano()})
		}
		if err := x.Send(t.Context(), &build); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4*time.Minute + 2*time.Second)
		if a := x.Account(); a.Dropped[batch.Expired] != 1 {
			t.Errorf("after 4 min: %s", a)
		}
		time.Sleep(time.Minute)
		if a := x.Account(); a.Dropped[batch.Expired] != 2 || sink.Calls() != 1 {
			t.Errorf("after 5 min: %s, %d attempts", a, sink.Calls())
		}
		mustClose(t, x)

		// Records that do not expire wait for as long as the destination asks, but at most
		// maxRetryAfter.
		sink = testkit.NewSink(answer)
		x = mustNew(t, destOf(sink), &Options{Retry: &RetryOptions{MaxAge: 20 * time.Minute}})
		if err := x.Send(t.Context(), new(testkit.Model).Batch(3, 32, batch.Meta{Time: time.Now().UnixNano()})); err != nil {
			t.Error(err)
		}
		time.Sleep(maxRetryAfter)
		synctest.Wait()
		if a := x.Account(); a.Delivered != 3 {
			t.Errorf("after the longest wait: %s", a)
		}
		mustClose(t, x)
	})
}

func TestNoAgeLimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.DownUntil(time.Now().Add(100*time.Hour), testkit.Accept))
		x := mustNew(t, destOf(sink), &Options{Retry: &RetryOptions{MaxAge: -1}})
		m := &testkit.Model{}
		send(t, m, x, m.Batch(2, 32, batch.Meta{Time: 1}))
		time.Sleep(101 * time.Hour)
		mustBalance(t, m, x, 2)
		mustClose(t, x)
	})
}

// ---- size -----------------------------------------------------------------------

// Batches that are too large are halved until the destination accepts them, in order. Later batches
// are at most as large as the accepted ones.
func TestSmaller(t *testing.T) {
	const record = 32
	for limit := record; limit < 40*record; limit += 45 {
		bubble.Test(t, func(t *testing.T) {
			sink := testkit.NewSink(testkit.AtMost(limit))
			ev := &testkit.Events{}
			x := mustNew(t, destOf(sink), &Options{OnError: ev.Add})
			m := &testkit.Model{}
			for i := range 5 {
				before, failed := sink.Calls(), 0
				send(t, m, x, m.Batch(64, record, batch.Meta{}))
				mustFlush(t, x)
				for _, n := range sink.Sizes()[before:] {
					if n*record > limit {
						failed++
					}
				}
				if i > 0 && failed > 0 {
					t.Errorf("limit %d: %d requests too large after the first batch", limit, failed)
				}
			}
			if !slices.Equal(sink.Got(), expect(64*5)) {
				t.Errorf("limit %d: got %v", limit, sink.Got())
			}
			synctest.Wait()
			if s := x.Stats(); s.BatchBytes == 0 || s.BatchBytes > max(limit, 2*record) || s.Breaker != Closed || s.Trips != 0 {
				t.Errorf("limit %d: bound %d, %s", limit, s.BatchBytes, s.Breaker)
			}
			if ev.Has("send") || !ev.Has("too-large") {
				t.Errorf("limit %d: events %v", limit, ev.Ops())
			}
			mustClose(t, x)
		})
	}
}

// A single record that is too large is dropped. The other records of its batch are delivered.
func TestSmallerRecord(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var build batch.Batch
		for i, n := range []int{10, 10, 500, 10, 10, 600, 10} {
			build.Append([]byte(strings.Repeat("x", n)), uint64(i+1), batch.Meta{})
		}
		sink := testkit.NewSink(testkit.AtMost(100))
		dead := &handlerLog{}
		x := mustNew(t, destOf(sink), &Options{DeadLetter: dead})
		if err := x.Send(t.Context(), &build); err != nil {
			t.Error(err)
		}
		mustFlush(t, x)
		if a := x.Account(); a.Dropped[batch.Poison] != 2 || a.Delivered != 5 {
			t.Error(a)
		}
		mustClose(t, x)
		if !slices.Equal(sink.Got(), expect(7, 3, 6)) || !slices.Equal(dead.all(), []uint64{3, 6}) {
			t.Errorf("got %v, dead %v", sink.Got(), dead.all())
		}
	})
}

// The size limit of batches grows again while sends succeed.
func TestSmallerGrows(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Script(testkit.AtMost(100), testkit.Accept))
		x := mustNew(t, destOf(sink), nil)
		m := &testkit.Model{}
		send(t, m, x, m.Batch(64, 32, batch.Meta{}))
		mustFlush(t, x)
		small := x.Stats().BatchBytes
		if small == 0 {
			t.Fatal("the size was not remembered")
		}
		for range 300 {
			send(t, m, x, m.Batch(64, 32, batch.Meta{}))
		}
		mustFlush(t, x)
		if got := x.Stats().BatchBytes; got < small+small/4 {
			t.Errorf("bound %d after 600 batches, from %d", got, small)
		}
		mustBalance(t, m, x, m.Accepted())
		mustClose(t, x)
	})
}

// ---- budget ---------------------------------------------------------------------

// In any period, the number of retries is at most one tenth of the number of successes, plus one
// per second, plus a burst of 10.
func TestBudget(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r, _ := (*RetryOptions)(nil).resolve()
		b := newBudget(&r)
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
		for range 65 { // 6.5 tokens; the last retry has borrowed one of them
			b.success()
		}
		free := 0
		for b.take(time.Now()) == 0 {
			free++
		}
		if free != 5 {
			t.Errorf("%d retries at once after 65 successes, want 5", free)
		}
		time.Sleep(time.Hour)
		if b.take(time.Now()); b.tokens > budgetBurst {
			t.Errorf("%g tokens, at most %d", b.tokens, budgetBurst)
		}
	})
}

// Probes during a long outage do not use up the retry budget: a send that fails after the outage is
// retried within a minute.
func TestBudgetAfterOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		dest := SendFunc(Traits{}, func(context.Context, *batch.Batch) (o batch.Outcome) {
			if down.Load() {
				o = batch.FailedOutcome(errors.New("down"))
			}
			return o
		})
		const wait = 20 * time.Millisecond
		x := mustNew(t, dest, &Options{Retry: &RetryOptions{Min: wait, Max: wait, MaxAge: -1}, Breaker: &BreakerOptions{OpenMin: wait, OpenMax: wait}})
		if err := x.Send(t.Context(), lines(100)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		down.Store(false)
		time.Sleep(time.Minute)
		down.Store(true)
		if err := x.Send(t.Context(), lines(1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Microsecond) // the send fails once
		down.Store(false)
		time.Sleep(time.Minute)
		if a := x.Account(); a.Delivered != 101 {
			t.Errorf("a failure after an outage of 10 minutes waits for more than one: %v", a)
		}
		mustClose(t, x)
	})
}

// ---- events ---------------------------------------------------------------------

// The event "recovered" is emitted when the destination has accepted or refused a record, not
// earlier.
func TestRecoveredMeansWell(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ev := &testkit.Events{}
		x := mustNew(t, destOf(testkit.NewSink(testkit.Fail(batch.RetryAfter(testkit.ErrDown, time.Minute)))), &Options{spill: &testkit.Spill{}, OnError: ev.Add})
		m := &testkit.Model{}
		send(t, m, x, m.Batch(4, 32, batch.Meta{}))
		var marker batch.Batch
		marker.Add(layout.NewRun([]byte("gap\n"), []layout.Slot{{Len: 4, Flags: layout.FlagMarker}}))
		if err := x.Send(t.Context(), &marker); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Minute)
		if ev.Has("recovered") || ev.Count("send") != 1 {
			t.Errorf("events %v", ev.Ops())
		}
		mustClose(t, x)
	})
}

// ---- a driver that breaks the rules -----------------------------------------------

// If Open, Send or Close of a driver panics or calls runtime.Goexit, or Open returns a nil session,
// the outlet counts a failure and tries again.
func TestBrokenDriver(t *testing.T) {
	for _, call := range []string{"open", "nil session", "send", "close"} {
		for _, odd := range []testkit.Answer{testkit.Panic, testkit.Goexit} {
			bubble.Test(t, func(t *testing.T) {
				ev := &testkit.Events{}
				d := newManual(3)
				n := 0
				oddly := func(now string) bool {
					if now == call {
						if n++; n%2 == 1 {
							_, _ = odd(nil, 0, nil)
						}
					}
					return false
				}
				d.open = func(int, Life) error { oddly("open"); return nil }
				d.onEnd = func(*manualSession) { oddly("close") }
				d.onSend = func(s *manualSession, b *batch.Batch) error {
					oddly("send")
					s.l.Answer(b, allAccepted)
					if call == "close" {
						s.leave(errors.New("each on its own"))
					}
					return nil
				}
				dest := Destination(d)
				if call == "nil session" {
					dest = nilOnce{d, new(int)}
				}
				x := mustNew(t, dest, &Options{OnError: ev.Add})
				m := &testkit.Model{}
				for range 5 {
					send(t, m, x, m.Batch(10, 32, batch.Meta{}))
				}
				flushUntil(t, x)
				mustBalance(t, m, x, 50)
				if s := x.Stats(); call != "close" && s.Retries == 0 {
					t.Errorf("%s: no failure", call)
				}
				mustClose(t, x)
			})
		}
	}
}

// nilOnce returns a nil session without an error from its first Open.
type nilOnce struct {
	Destination
	n *int
}

func (d nilOnce) Open(l Life) (Session, error) {
	if *d.n++; *d.n == 1 {
		return nil, nil
	}
	return d.Destination.Open(l)
}

// A panic of a driver is reported with its stack.
func TestPanicIsReported(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var reported []batch.Event
		sink := testkit.NewSink(testkit.Script(testkit.Panic, testkit.Accept))
		x := mustNew(t, destOf(sink), &Options{OnError: func(e batch.Event) { reported = append(reported, e) }})
		if err := x.Send(t.Context(), lines(3)); err != nil {
			t.Fatal(err)
		}
		mustFlush(t, x)
		mustClose(t, x)
		if len(reported) == 0 || reported[0].Op != "panic" || !strings.Contains(reported[0].Err.Error(), "goroutine") || !strings.Contains(reported[0].Err.Error(), "testkit.Panic") {
			t.Errorf("reported %v", reported)
		}
	})
}

// A destination that fails and recovers several times per second is reported once per 10 s. A
// failure that lasts is reported after 10 s at most.
func TestRepeatedFailuresAreReportedOncePerInterval(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ev := &testkit.Events{}
		fails := 0 // only the session uses it
		sink := testkit.NewSink(func(ctx context.Context, call int, b *batch.Batch) ([]int, batch.Outcome) {
			if fails++; fails%3 == 1 { // one of three, so that the circuit stays closed
				return testkit.Fail(testkit.ErrDown)(ctx, call, b)
			}
			return nil, batch.Outcome{}
		})
		x := mustNew(t, destOf(sink), &Options{OnError: ev.Add,
			Retry: &RetryOptions{Min: time.Millisecond, Max: time.Millisecond, BudgetRatio: 10}})
		m := &testkit.Model{}
		for range 100 { // 25 s
			send(t, m, x, m.Batch(2, 32, batch.Meta{}))
			send(t, m, x, m.Batch(2, 32, batch.Meta{}))
			time.Sleep(250 * time.Millisecond)
		}
		if n, r := ev.Count("send"), ev.Count("recovered"); n != 3 || r != 3 {
			t.Errorf("%d events send, %d recovered, want 3 of each", n, r)
		}
		sink.Answer(testkit.Fail(testkit.ErrDown))
		send(t, m, x, m.Batch(2, 32, batch.Meta{}))
		time.Sleep(10 * time.Second)
		if n, r := ev.Count("send"), ev.Count("recovered"); n != 4 || r != 3 {
			t.Errorf("%d events send, %d recovered, want 4 and 3", n, r)
		}
		sink.Answer(nil)
		time.Sleep(5 * time.Minute)
		if n := ev.Count("recovered"); n != 4 {
			t.Errorf("%d events recovered, want 4", n)
		}
		mustClose(t, x)
	})
}
