package deliver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

func mustKeeper(t *testing.T, sink batch.Sink, o KeeperOptions) (*Keeper, *testkit.Events) {
	t.Helper()
	ev := &testkit.Events{}
	o.OnError = ev.Add
	k, err := NewKeeper(sink, &o)
	if err != nil {
		t.Fatal(err)
	}
	return k, ev
}

// send hands b in once and fails the test if it is not settled.
func send(t testing.TB, m *testkit.Model, s batch.Sink, b *batch.Batch) {
	t.Helper()
	if err := s.Send(t.Context(), b); m.Sent(b, err) != nil {
		t.Fatalf("not settled: %v", err)
	}
}

// What the destination does not take goes to the spill; what comes later too;
// all of it arrives before anything newer.
func TestKeeperSpills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		sink := testkit.NewSink(testkit.Script(testkit.First(3), testkit.DownUntil(time.Now().Add(time.Minute), testkit.Take)))
		k, ev := mustKeeper(t, sink, KeeperOptions{Spill: store})
		m := &testkit.Model{}
		for i := range 10 {
			send(t, m, k, m.Batch(5, 32, batch.Meta{}))
			if a := balance(t, m, k); a.Delivered != 3 || a.Pending.Spill != uint64(5*i+2) {
				t.Fatalf("after batch %d: %s", i, a)
			}
		}
		time.Sleep(2 * time.Minute)
		if a := balance(t, m, k); a.Delivered != 50 {
			t.Fatal(a)
		}
		send(t, m, k, m.Batch(5, 32, batch.Meta{}))
		if m.Taken() != 47 {
			t.Errorf("%d records taken: when the spill is empty Send passes", m.Taken())
		}
		if err := m.Verify(sink.Got(), 55); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := ev.Ops(); !slices.Equal(got, []string{"spill", "send", "recovered", "spilled"}) {
			t.Errorf("events %v", got)
		}
		if _, err := k.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What an earlier process left is delivered first, and counted as recovered.
func TestKeeperRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		old := &testkit.Model{}
		for range 3 {
			if _, err := store.Append(old.Batch(4, 32, batch.Meta{})); err != nil {
				t.Fatal(err)
			}
		}
		store.Reopen()
		sink := testkit.NewSink(nil)
		k, _ := mustKeeper(t, sink, KeeperOptions{Spill: store})
		b := lines(2)
		b.Runs[0].Slot(0).Ticket, b.Runs[0].Slot(1).Ticket = 101, 102
		if err := k.Send(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if err := k.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		a := k.Account()
		if err := a.Check(); err != nil || a.Recovered != 12 || a.Delivered != 12+b.Tally.Taken {
			t.Errorf("%v: %s", err, a)
		}
		if want := append(expect(12), 101, 102); !slices.Equal(sink.Got(), want) {
			t.Errorf("got %v, want %v", sink.Got(), want)
		}
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A spill that fails, or is full, loses nothing: the producer holds the batch.
func TestSpillFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		store.Fail(testkit.ErrDisk)
		sink := testkit.NewSink(testkit.Fail(testkit.ErrDown))
		k, ev := mustKeeper(t, sink, KeeperOptions{Spill: store})
		m := &testkit.Model{}
		rest := m.Batch(5, 32, batch.Meta{})
		for range 3 {
			err := k.Send(t.Context(), rest)
			if !errors.Is(err, testkit.ErrDown) || m.Sent(rest, err) == nil {
				t.Fatalf("got %v", err)
			}
		}
		store.Fail(nil)
		send(t, m, k, rest)
		// Now there is something in the spill, and it fails again: nothing may
		// overtake what is there.
		store.Fail(testkit.ErrDisk)
		sink.Answer(testkit.Hang(nil))
		next := m.Batch(5, 32, batch.Meta{})
		err := k.Send(t.Context(), next)
		if !errors.Is(err, testkit.ErrDisk) || !batch.Retryable(err) || m.Sent(next, err) == nil {
			t.Fatalf("got %v", err)
		}
		if a, err := m.Account(k.Account(), 5); err != nil || a.Pending.Spill != 5 {
			t.Errorf("%v: %s", err, a)
		}
		store.Fail(nil)
		send(t, m, k, next)
		synctest.Wait()
		if got := ev.Count("spill-error"); got != 2 {
			t.Errorf("%d spill-error events for two rows of failures: %v", got, ev.Ops())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := k.Shutdown(ctx)
		if err != nil || r.Pending.Spill != 10 {
			t.Errorf("%v: %s", err, r.Account)
		}
	})
}

// A spill that cannot be read is tried again.
func TestSpillReadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		store.FailNext(testkit.ErrDisk)
		sink := testkit.NewSink(testkit.Script(testkit.Fail(testkit.ErrDown), testkit.Take))
		k, ev := mustKeeper(t, sink, KeeperOptions{Spill: store})
		m := &testkit.Model{}
		send(t, m, k, m.Batch(5, 32, batch.Meta{}))
		time.Sleep(time.Hour)
		send(t, m, k, m.Batch(5, 32, batch.Meta{}))
		store.FailNext(nil)
		if err := k.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.Verify(sink.Got(), 10); err != nil {
			t.Error(err)
		}
		if ev.Count("spill-error") != 1 {
			t.Errorf("events %v", ev.Ops())
		}
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Over quota, exactly the counted records are missing.
func TestSpillQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		store.Quota(100)
		sink := testkit.NewSink(testkit.DownUntil(time.Now().Add(time.Hour), testkit.Take))
		e := mustNew(t, sink, &Options{Spill: store})
		m := &testkit.Model{}
		for range 50 {
			produce(t, t.Context(), m, e, m.Batch(10, 32, batch.Meta{}))
			time.Sleep(time.Minute)
		}
		time.Sleep(time.Hour)
		a := balance(t, m, e)
		if a.Dropped[batch.Quota] == 0 || a.Delivered+a.Dropped[batch.Quota] != 500 || a.Pending.Total() != 0 {
			t.Error(a)
		}
		if err := m.Verify(sink.Got(), 500-a.Dropped[batch.Quota]); err != nil {
			t.Error(err)
		}
		mustClose(t, e)
	})
}

// What the destination refuses while the spill is replayed is dropped, counted,
// and does not hold up what is behind it.
func TestReplayPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		dead := &handlerLog{}
		sink := testkit.NewSink(testkit.DownUntil(time.Now().Add(time.Minute), testkit.Poisoned(bad(7, 23), 400)))
		e := mustNew(t, sink, &Options{Spill: store, DeadLetter: dead})
		m := &testkit.Model{}
		for range 5 {
			produce(t, t.Context(), m, e, m.Batch(10, 32, batch.Meta{}))
		}
		time.Sleep(5 * time.Minute)
		if a := balance(t, m, e); a.Delivered != 48 || a.Dropped[batch.Poison] != 2 || a.Pending.Total() != 0 {
			t.Error(a)
		}
		if !slices.Equal(sink.Got(), expect(50, 7, 23)) || !slices.Equal(dead.all(), []uint64{7, 23}) {
			t.Errorf("got %v, dead %v", sink.Got(), dead.all())
		}
		mustClose(t, e)
	})
}

// A Keeper with nothing around its sink drops what that refuses.
func TestKeeperAloneDropsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		refuse := testkit.Fail(batch.Permanent(errors.New("400")))
		sink := testkit.NewSink(testkit.Script(testkit.Fail(testkit.ErrDown), testkit.First(2), refuse, testkit.Take))
		k, _ := mustKeeper(t, sink, KeeperOptions{Spill: store})
		m := &testkit.Model{}
		for range 3 {
			send(t, m, k, m.Batch(5, 32, batch.Meta{}))
		}
		if err := k.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a := balance(t, m, k); a.Delivered != 12 || a.Dropped[batch.Poison] != 3 {
			t.Error(a)
		}
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Records too old to be sent again leave the spill, counted.
func TestReplayExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		sink := testkit.NewSink(testkit.Fail(testkit.ErrDown))
		e := mustNew(t, sink, &Options{Spill: store, Retry: &RetryOptions{MaxAge: time.Hour}})
		m := &testkit.Model{}
		for range 180 {
			produce(t, t.Context(), m, e, m.Batch(10, 32, batch.Meta{Time: time.Now().UnixNano()}))
			time.Sleep(time.Minute)
		}
		a := balance(t, m, e)
		if a.Dropped[batch.Expired] < 1150 || a.Dropped[batch.Expired] > 1210 || a.Pending.Spill != 1800-a.Dropped[batch.Expired] {
			t.Errorf("after 3 h with a limit of 1 h: %s", a)
		}
		sink.Answer(nil)
		time.Sleep(10 * time.Minute)
		a = balance(t, m, e)
		if err := m.Verify(sink.Got(), 1800-a.Dropped[batch.Expired]); err != nil {
			t.Error(err)
		}
		mustClose(t, e)
	})
}

// Gap markers travel through the spill and are counted nowhere.
func TestMarkersInCustody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		sink := testkit.NewSink(testkit.Script(testkit.Fail(testkit.ErrDown), testkit.Take))
		k, _ := mustKeeper(t, sink, KeeperOptions{Spill: store})
		var b batch.Batch
		b.Add(batch.NewRun([]byte("gap\n"), []batch.Slot{{Len: 4, Flags: batch.FlagMarker}}))
		if err := k.Send(t.Context(), &b); err != nil || b.Tally.Settled() != 0 {
			t.Errorf("%v, %+v", err, b.Tally)
		}
		if err := k.Flush(t.Context()); err != nil || len(sink.Got()) != 1 {
			t.Errorf("%v, got %v", err, sink.Got())
		}
		if a := k.Account(); a != (batch.Account{}) {
			t.Error(a)
		}
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Flush waits for what was taken before it, and not for what came after; it does
// not wait for a destination that is down.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		sink := testkit.NewSink(testkit.DownUntil(time.Now().Add(time.Minute), testkit.Slow(time.Second, testkit.Take)))
		e := mustNew(t, sink, &Options{Spill: store})
		m := &testkit.Model{}
		produce(t, t.Context(), m, e, m.Batch(5, 32, batch.Meta{}))
		began := time.Now()
		err := e.Flush(t.Context())
		if !errors.Is(err, ErrOpen) || time.Since(began) > 10*time.Second {
			t.Errorf("flush in an outage: %v after %s", err, time.Since(began))
		}
		time.Sleep(2 * time.Minute)

		release := make(chan struct{})
		sink.Answer(testkit.Script(testkit.Deaf(release)))
		store.Fail(nil)
		flushed := make(chan error, 1)
		if err := e.Flush(t.Context()); err != nil {
			t.Fatalf("flush of nothing: %v", err)
		}
		// Make it spill again, then block the replay.
		sink.Answer(testkit.Fail(testkit.ErrDown))
		produce(t, t.Context(), m, e, m.Batch(5, 32, batch.Meta{}))
		sink.Answer(testkit.Deaf(release))
		time.Sleep(2 * time.Minute)
		go func() { flushed <- e.Flush(t.Context()) }()
		synctest.Wait()
		produce(t, t.Context(), m, e, m.Batch(5, 32, batch.Meta{}))
		select {
		case err := <-flushed:
			t.Fatalf("flush did not wait: %v", err)
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("flush past its deadline: %v", err)
		}
		close(release)
		if err := <-flushed; err != nil {
			t.Error(err)
		}
		if err := e.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		if err := m.Verify(sink.Got(), 15); err != nil {
			t.Error(err)
		}
		mustClose(t, e)
		if err := e.Flush(t.Context()); err != nil {
			t.Errorf("flush after Close, nothing pending: %v", err)
		}
	})
}

// Random outages, quota, a spill that fails at times, a handler that fails at
// times, poison, and a close at a random moment: every record is where the
// account says.
func TestEverythingIsAccountedFor(t *testing.T) {
	for _, async := range []bool{false, true} {
		t.Run(fmt.Sprintf("async=%t", async), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seed := testkit.Seed(t)
				for round := range testkit.Rounds(150, 10000) {
					accountRound(t, seed+uint64(round), async)
				}
			})
		})
	}
}

func accountRound(t *testing.T, seed uint64, async bool) {
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("seed %d: %s", seed, fmt.Sprintf(format, args...))
	}
	rng := testkit.Rand(seed)
	var poison []uint64
	for range rng.IntN(5) {
		poison = append(poison, uint64(1+rng.IntN(600)))
	}
	faults := testkit.Random(rng, rng.Float64(), false)
	refuse := testkit.Poisoned(bad(poison...), 400)
	if rng.IntN(2) == 0 {
		refuse = testkit.PoisonedByIndex(bad(poison...), 400)
	}
	up := time.Now().Add(time.Duration(rng.IntN(300)) * time.Second)
	answer := testkit.DownUntil(up, func(ctx context.Context, call int, b *batch.Batch) ([]int, error) {
		if take, err := faults(ctx, call, b); err != nil {
			return take, err
		}
		return refuse(ctx, call, b)
	})
	var sink interface {
		batch.Sink
		Got() []uint64
		Answer(testkit.Answer)
	} = testkit.NewSink(answer)
	if async {
		sink = testkit.NewAsyncSink(answer, 1+rng.IntN(5), rng, 300*time.Millisecond)
	}
	dead, handler := &handlerLog{}, &handlerLog{}
	o := &Options{DeadLetter: dead}
	store := &testkit.Spill{}
	slack := 3 * closeGrace
	if rng.IntN(3) > 0 {
		o.Spill = store
		if rng.IntN(2) == 0 {
			store.Quota(50 + rng.IntN(500))
		}
		o.SpillWhenFull = rng.IntN(2) == 0
		if rng.IntN(2) == 0 {
			store.Slow(rng, 200*time.Millisecond)
			slack += 5 * 200 * time.Millisecond // the window goes there in the end
		}
	}
	var handled atomic.Uint64
	if rng.IntN(3) == 0 {
		o.Handler, o.PendingLimit = handler, rng.IntN(100)
		own := testkit.Rand(seed + 1)
		handler.answer = func(_ int, b *batch.Batch, err error) error {
			if own.IntN(2) == 0 {
				return err
			}
			handled.Add(uint64(b.Len()))
			return nil
		}
	}
	e := mustNew(t, sink, o)
	if o.SpillWhenFull {
		defer pressAtRandom(t, e, rng)()
	}
	m := &testkit.Model{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(600))*time.Second)
	defer cancel()
	held := uint64(0)
	for range 20 {
		for rest := m.Batch(1+rng.IntN(30), 32, batch.Meta{}); rest != nil; {
			rest = m.Sent(rest, e.Send(ctx, rest))
			if rest != nil && ctx.Err() != nil {
				held += uint64(rest.Len())
				break
			}
		}
		switch rng.IntN(8) {
		case 0:
			store.Fail(testkit.ErrDisk)
		case 1, 2:
			store.Fail(nil)
		case 3:
			time.Sleep(time.Duration(rng.IntN(20)) * time.Second)
		}
		synctest.Wait()
		if _, err := m.Account(e.Account(), held); err != nil {
			fail("%v", err)
		}
	}
	if rng.IntN(2) == 0 {
		sink.Answer(nil)
		time.Sleep(time.Duration(rng.IntN(300)) * time.Second)
	}
	closing, done := context.WithTimeout(t.Context(), time.Duration(rng.IntN(5000))*time.Millisecond)
	defer done()
	if rng.IntN(2) == 0 {
		e.Drain(time.Now().Add(time.Duration(rng.IntN(5000)) * time.Millisecond))
	}
	began := time.Now()
	r, _ := e.Shutdown(closing)
	if d := time.Since(began); d > 5*time.Second+slack {
		fail("Shutdown took %s", d)
	}
	a, err := m.Account(r.Account, held)
	if err != nil {
		fail("%v", err)
	}
	if a.Pending.Inflight != 0 {
		fail("in flight after Shutdown: %s", a)
	}
	arrived := sink.Got()
	// A record that arrived, but was refused when it was sent again, is out of
	// order, and so is one that went elsewhere the second time.
	last, _ := testkit.LastCopies(arrived)
	last = slices.DeleteFunc(last, func(ticket uint64) bool { return slices.Contains(poison, ticket) })
	if handled.Load() == 0 && a.Pending.Total()+a.Dropped[batch.Quota]+a.Dropped[batch.Shutdown] == 0 && !slices.IsSorted(last) {
		fail("order of the last copies: %v", last)
	}
	if a.Dropped[batch.Poison] != uint64(len(dead.all())) || a.Handled > handled.Load() {
		fail("%d dead letters, %d handled: %s", len(dead.all()), handled.Load(), a)
	}
	// Every record is somewhere, or one of those that the account says are
	// missing.
	seen := map[uint64]bool{}
	for _, tickets := range [][]uint64{arrived, dead.all(), handler.all()} {
		for _, ticket := range tickets {
			seen[ticket] = true
		}
	}
	nowhere := m.Accepted() - uint64(len(seen))
	missing := a.Dropped.Total() - a.Dropped[batch.Poison] + a.Pending.Total()
	if nowhere > missing {
		fail("%d records are nowhere, the account says %d: %s", nowhere, missing, a)
	}
}

// watchedSpill has somebody look in the middle of what it does.
type watchedSpill struct {
	*testkit.Spill
	look func(during string)
}

func (s watchedSpill) Append(b *batch.Batch) (uint64, error) {
	seq, err := s.Spill.Append(b)
	s.look("Append")
	return seq, err
}

func (s watchedSpill) Ack(seq uint64) error {
	err := s.Spill.Ack(seq)
	s.look("Ack")
	return err
}

// The account balances at any moment, also for who looks while the spill has stored or
// settled a batch and the Keeper does not know yet.
func TestAccountBalancesWithinSpill(t *testing.T) {
	for _, async := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var k *Keeper
			looks := map[string]int{}
			store := watchedSpill{&testkit.Spill{}, func(during string) {
				if k == nil {
					return
				}
				looks[during]++
				if a := k.Account(); a.Check() != nil {
					t.Errorf("within %s: %v", during, a.Check())
				}
			}}
			old := &testkit.Model{}
			for range 3 {
				if _, err := store.Append(old.Batch(4, 32, batch.Meta{})); err != nil {
					t.Fatal(err)
				}
			}
			store.Reopen()
			answer := testkit.DownUntil(time.Now().Add(time.Minute), testkit.Take)
			var sink batch.Sink = testkit.NewSink(answer)
			if async {
				sink = testkit.NewAsyncSink(answer, 3, testkit.Rand(1), time.Second)
			}
			k, _ = mustKeeper(t, sink, KeeperOptions{Spill: store})
			m := &testkit.Model{}
			for range 10 {
				send(t, m, k, m.Batch(5, 32, batch.Meta{}))
			}
			time.Sleep(2 * time.Minute)
			if a := balance(t, m, k); looks["Append"] < 10 || looks["Ack"] < 10 || a.Delivered != 62 {
				t.Errorf("%v, %v", looks, a)
			}
			if _, err := k.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
