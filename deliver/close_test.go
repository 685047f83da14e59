package deliver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/testkit"
)

// closeCtx is a context with a deadline, in a bubble.
func closeCtx(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// The destination has 70 % of the time; then the handler is asked, whatever
// PendingLimit says; then the spill takes the rest.
func TestCloseOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewAsyncSink(testkit.Hang(nil), 4, nil, 0)
		store := &testkit.Spill{}
		var asked time.Time
		h := &handlerLog{answer: func(call int, _ *batch.Batch, err error) error {
			if call > 0 {
				return err
			}
			asked = time.Now()
			return nil
		}}
		e := mustNew(t, sink, &Options{Spill: store, Handler: h, PendingLimit: 1000})
		m := &testkit.Model{}
		for range 3 {
			send(t, m, e, m.Batch(10, 32, batch.Meta{}))
		}
		began := time.Now()
		r, err := e.Shutdown(closeCtx(t, 10*time.Second))
		if err != nil {
			t.Error(err)
		}
		if d := asked.Sub(began); d < 7*time.Second || d > 8*time.Second {
			t.Errorf("the handler was asked after %s, want 7 s", d)
		}
		if d := time.Since(began); d > 10*time.Second {
			t.Errorf("Shutdown took %s", d)
		}
		a, err := m.Account(r.Account, 0)
		if err != nil || a.Handled != 10 || a.Pending.Spill != 20 || r.Unknown != 0 {
			t.Errorf("%v: %s, unknown %d", err, a, r.Unknown)
		}
	})
}

// A producer that has begun to close gets its Sends settled without a
// destination that does not answer, as soon as 70 % of the time is over.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		sink := testkit.NewSink(testkit.Hang(nil))
		e := mustNew(t, sink, &Options{Spill: store})
		m := &testkit.Model{}
		b := m.Batch(10, 32, batch.Meta{})
		sent := make(chan error, 1)
		go func() { sent <- e.Send(t.Context(), b) }()
		time.Sleep(time.Second)
		began := time.Now()
		e.Drain(began.Add(10 * time.Second))
		if err := <-sent; m.Sent(b, err) != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 7*time.Second {
			t.Errorf("settled after %s, want 7 s", d)
		}
		sink.Answer(testkit.Take)
		calls := sink.Calls()
		send(t, m, e, m.Batch(10, 32, batch.Meta{}))
		if sink.Calls() != calls {
			t.Error("the destination was asked when its time was over")
		}
		r, err := e.Shutdown(t.Context())
		if a, bad := m.Account(r.Account, 0); err != nil || bad != nil || a.Pending.Spill != 20 {
			t.Errorf("%v, %v: %s", err, bad, a)
		}
		if time.Since(began) != 7*time.Second {
			t.Errorf("Shutdown waited for a destination that is given up: %s", time.Since(began))
		}
	})
}

// A handler that hangs does not take the time that the spill needs.
func TestDrainDoesNotWaitForAHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		h := &handlerLog{answer: func(int, *batch.Batch, error) error { <-release; return nil }}
		e := mustNew(t, testkit.NewSink(testkit.Hang(nil)), &Options{Spill: &testkit.Spill{}, Handler: h, HandlerTimeout: time.Hour})
		m := &testkit.Model{}
		began := time.Now()
		e.Drain(began.Add(10 * time.Second))
		for range 3 {
			send(t, m, e, m.Batch(10, 32, batch.Meta{}))
			if d := time.Since(began); d < 8*time.Second || d > 9*time.Second {
				t.Errorf("settled after %s", d)
			}
		}
		r, err := e.Shutdown(t.Context())
		if a, bad := m.Account(r.Account, 0); err != nil || bad != nil || a.Pending.Spill != 30 {
			t.Errorf("%v, %v: %s", err, bad, a)
		}
		close(release)
	})
}

// One that answers is asked as long as there is time.
func TestDrainAsksAHandlerThatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &handlerLog{answer: func(int, *batch.Batch, error) error { time.Sleep(handlerGrace / 2); return nil }}
		e := mustNew(t, testkit.NewSink(testkit.Hang(nil)), &Options{Spill: &testkit.Spill{}, Handler: h})
		m := &testkit.Model{}
		e.Drain(time.Now())
		for range 3 {
			send(t, m, e, m.Batch(10, 32, batch.Meta{}))
		}
		mustClose(t, e)
		if a := balance(t, m, e); a.Handled != 30 {
			t.Errorf("%s", a)
		}
	})
}

// A long wait between attempts ends when it is late.
func TestDrainEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := mustNew(t, testkit.NewSink(testkit.Fail(batch.RetryAfter(testkit.ErrDown, 4*time.Second))),
			&Options{Spill: &testkit.Spill{}, Retry: &RetryOptions{Min: time.Hour}})
		m := &testkit.Model{}
		b := m.Batch(10, 32, batch.Meta{})
		began := time.Now()
		e.Drain(began.Add(10 * time.Second))
		if err := e.Send(t.Context(), b); m.Sent(b, err) != nil || time.Since(began) != 7*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		mustClose(t, e)
	})
}

// Late, the destination is not asked any more.
func TestLateAsksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(nil)
		h := &handlerLog{}
		e := mustNew(t, sink, &Options{Handler: h, PendingLimit: 1000})
		m := &testkit.Model{}
		e.Drain(time.Now().Add(10 * time.Second))
		send(t, m, e, m.Batch(10, 32, batch.Meta{}))
		time.Sleep(8 * time.Second)
		send(t, m, e, m.Batch(10, 32, batch.Meta{}))
		if a := balance(t, m, e); a.Delivered != 10 || a.Handled != 10 || sink.Calls() != 1 {
			t.Errorf("%d attempts: %s", sink.Calls(), a)
		}
		mustClose(t, e)
	})
}

// What is answered when the destination was told to give up still counts.
func TestCloseLastAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &handSink{window: 3}
		store := &testkit.Spill{}
		m := &testkit.Model{}
		for range 3 {
			if _, err := store.Append(m.Batch(10, 32, batch.Meta{})); err != nil {
				t.Fatal(err)
			}
		}
		store.Reopen()
		k, _ := mustKeeper(t, sink, KeeperOptions{Spill: store})
		mustFirsts(t, sink, 1, 11, 21)
		go func() {
			<-sink.ctx.Done()
			for i := range 3 {
				sink.started[i].done(nil)
			}
		}()
		r, err := k.Shutdown(closeCtx(t, 10*time.Second))
		if err != nil || r.Check() != nil || r.Delivered != 30 || store.Account().Pending.Spill != 0 {
			t.Errorf("%v: %s, %d left in the spill", err, r.Account, store.Account().Pending.Spill)
		}
	})
}

// With nothing else to turn to, the destination has all the time; what it does
// not answer is dropped, and unknown.
func TestCloseUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &handSink{window: 3}
		e := mustNew(t, sink, &Options{})
		m := &testkit.Model{}
		for range 3 {
			send(t, m, e, m.Batch(10, 32, batch.Meta{}))
		}
		sink.answer(0, nil)
		sink.answer(2, nil)
		began := time.Now()
		r, err := e.Shutdown(closeCtx(t, 10*time.Second))
		if err == nil || !strings.Contains(err.Error(), "10 records not delivered, 10 of them unknown") {
			t.Errorf("got %v", err)
		}
		if d := time.Since(began); d < 10*time.Second || d > 10*time.Second+2*closeGrace {
			t.Errorf("Shutdown took %s", d)
		}
		a, bad := m.Account(r.Account, 0)
		if bad != nil || a.Delivered != 20 || a.Dropped[batch.Shutdown] != 10 || r.Unknown != 10 {
			t.Errorf("%v: %s, unknown %d", bad, a, r.Unknown)
		}
		sink.answer(1, nil) // too late
		if again, err2 := e.Shutdown(t.Context()); again != r || err2 != err {
			t.Errorf("the second Shutdown says %s, %v", again.Account, err2)
		}
		if sink.ctx.Err() == nil {
			t.Error("the destination was not told to give up")
		}
	})
}

// A destination that ignores its context does not keep Shutdown; a spill keeps
// what it may or may not have.
func TestCloseHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		sink := testkit.NewSink(testkit.Script(testkit.Fail(testkit.ErrDown), testkit.Deaf(release)))
		store := &testkit.Spill{}
		k, _ := mustKeeper(t, sink, KeeperOptions{Spill: store})
		m := &testkit.Model{}
		send(t, m, k, m.Batch(10, 32, batch.Meta{}))
		time.Sleep(time.Second)
		began := time.Now()
		r, err := k.Shutdown(closeCtx(t, 5*time.Second))
		if d := time.Since(began); err == nil || d > 5*time.Second+3*closeGrace {
			t.Errorf("%v after %s", err, d)
		}
		a, bad := m.Account(r.Account, 0)
		if bad != nil || a.Pending.Spill != 10 || sink.Closes() != 0 {
			t.Errorf("%v: %s, %d closes", bad, a, sink.Closes())
		}
		close(release)
		synctest.Wait()
		if a, bad := m.Account(k.Account(), 0); bad != nil || a.Delivered != 0 {
			t.Errorf("changed after the report: %v: %s", bad, a)
		}
	})
}

// A Send that waits in an outage ends with Close; its records stay the caller's.
func TestCloseBesideSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, answer := range []testkit.Answer{testkit.Fail(testkit.ErrDown), testkit.Hang(nil)} {
			sink := testkit.NewSink(answer)
			e := mustNew(t, sink, &Options{})
			m := &testkit.Model{}
			b := m.Batch(10, 32, batch.Meta{})
			sent := make(chan error, 1)
			go func() { sent <- e.Send(context.Background(), b) }()
			second := make(chan error, 1)
			go func() {
				time.Sleep(time.Second)
				second <- e.Send(context.Background(), lines(1))
			}()
			time.Sleep(time.Minute)
			began := time.Now()
			_, err := e.Shutdown(closeCtx(t, 5*time.Second))
			if err != nil || time.Since(began) > 5*time.Second+closeGrace {
				t.Errorf("%v after %s", err, time.Since(began))
			}
			if rest := m.Sent(b, <-sent); rest == nil {
				t.Error("settled by nobody")
			}
			if err := <-second; err == nil {
				t.Error("a Send that waited for its turn was settled by nobody")
			}
			if err := e.Send(t.Context(), lines(1)); !errors.Is(err, batch.ErrClosed) {
				t.Errorf("Send after Close: %v", err)
			}
			if sink.Closes() != 1 {
				t.Errorf("%d closes", sink.Closes())
			}
		}
	})
}

// Several closers get the same answer; the sink is closed once.
func TestCloseTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Script(testkit.Fail(testkit.ErrDown), testkit.Slow(time.Second, testkit.Take)))
		k, _ := mustKeeper(t, sink, KeeperOptions{Spill: &testkit.Spill{}})
		m := &testkit.Model{}
		send(t, m, k, m.Batch(10, 32, batch.Meta{}))
		type result struct {
			r   batch.Report
			err error
		}
		results := make(chan result, 3)
		for range 3 {
			go func() {
				r, err := k.Shutdown(closeCtx(t, time.Minute))
				results <- result{r, err}
			}()
		}
		for range 3 {
			res := <-results
			if res.err != nil || res.r.Delivered != 10 {
				t.Errorf("%v: %s", res.err, res.r.Account)
			}
		}
		if sink.Closes() != 1 {
			t.Errorf("%d closes", sink.Closes())
		}
		// A later closer with no time left gets its context's error, or the answer.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := k.Shutdown(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// While the destination is well, Close lets the spill be replayed; while it is
// down, it does not wait.
func TestCloseReplays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			name    string
			answer  testkit.Answer
			open    time.Duration // of the breaker
			most    time.Duration
			spilled uint64
		}{
			{"well", testkit.Slow(100*time.Millisecond, testkit.Take), time.Millisecond, 6 * time.Second, 0},
			{"slow", testkit.Slow(time.Second, testkit.Take), time.Millisecond, 8 * time.Second, 50},
			{"down", testkit.Fail(testkit.ErrDown), time.Minute, 3 * time.Second, 200},
		} {
			sink := testkit.NewSink(testkit.Fail(testkit.ErrDown))
			e := mustNew(t, sink, &Options{Spill: &testkit.Spill{}, Breaker: &BreakerOptions{Failures: 2, OpenMin: time.Millisecond, OpenMax: tt.open}})
			m := &testkit.Model{}
			for range 20 {
				produce(t, t.Context(), m, e, m.Batch(10, 32, batch.Meta{}))
			}
			sink.Answer(tt.answer)
			time.Sleep(20 * time.Millisecond)
			began := time.Now()
			r, err := e.Shutdown(closeCtx(t, 10*time.Second))
			a, bad := m.Account(r.Account, 0)
			if err != nil || bad != nil || a.Pending.Spill < tt.spilled || tt.spilled == 0 && a.Pending.Spill > 0 {
				t.Errorf("%s: %v, %v: %s", tt.name, err, bad, a)
			}
			if d := time.Since(began); d > tt.most {
				t.Errorf("%s: took %s, want at most %s", tt.name, d, tt.most)
			}
			if err := m.Verify(sink.Got(), a.Delivered); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
	})
}

// Without a deadline Close waits for as long as the destination takes.
func TestCloseNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewAsyncSink(testkit.DownUntil(time.Now().Add(3*time.Hour), testkit.Take), 4, nil, 0)
		e := mustNew(t, sink, &Options{})
		m := &testkit.Model{}
		for range 3 {
			send(t, m, e, m.Batch(10, 32, batch.Meta{}))
		}
		r, err := e.Shutdown(t.Context())
		if err != nil || r.Delivered != 30 {
			t.Errorf("%v: %s", err, r.Account)
		}
		if err := m.Verify(sink.Got(), 30); err != nil {
			t.Error(err)
		}
	})
}

// A context that has ended already is no reason to lose what the spill can take.
func TestCloseCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		sink := testkit.NewAsyncSink(testkit.Hang(nil), 4, nil, 0)
		e := mustNew(t, sink, &Options{Spill: &testkit.Spill{}})
		m := &testkit.Model{}
		for range 3 {
			send(t, m, e, m.Batch(10, 32, batch.Meta{}))
		}
		r, err := e.Shutdown(ctx)
		if a, bad := m.Account(r.Account, 0); err != nil || bad != nil || a.Pending.Spill != 30 {
			t.Errorf("%v, %v: %s", err, bad, a)
		}
	})
}

// The account balances while Close puts the window into the spill: a producer whose
// time is over before takes it into its report.
func TestCloseAccountOnTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *Engine
		looks := 0
		store := watchedSpill{&testkit.Spill{}, func(string) {
			looks++
			if a := e.Account(); a.Check() != nil || a.Accepted != 30 {
				t.Errorf("%v", a)
			}
		}}
		e = mustNew(t, testkit.NewAsyncSink(testkit.Hang(nil), 4, nil, 0), &Options{Spill: store})
		m := &testkit.Model{}
		for range 3 {
			send(t, m, e, m.Batch(10, 32, batch.Meta{}))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r, err := e.Shutdown(ctx)
		if a, bad := m.Account(r.Account, 0); err != nil || bad != nil || a.Pending.Spill != 30 || looks != 3 {
			t.Errorf("%v, %v: %s after %d looks", err, bad, a, looks)
		}
	})
}

// Close ends subscriptions.
func TestCloseEndsSubscriptions(t *testing.T) {
	e := mustNew(t, testkit.NewSink(nil), &Options{})
	ch, cancel := e.Subscribe()
	defer cancel()
	mustClose(t, e)
	if _, ok := <-ch; ok {
		t.Error("open after Close")
	}
}

// What happened is told before Shutdown returns, but a callback that hangs holds
// it up for a moment only.
func TestCloseTellsEvents(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			told := 0
			e := mustNew(t, testkit.NewSink(testkit.Fail(testkit.ErrDown)), &Options{Spill: &testkit.Spill{}, OnError: func(batch.Event) {
				if hangs {
					<-release
				}
				time.Sleep(10 * time.Millisecond)
				told++
			}})
			if err := e.Send(t.Context(), lines(3)); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if _, err := e.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			switch d := time.Since(began); {
			case !hangs && told != 2: // "send" and "spill"
				t.Errorf("%d events told", told)
			case hangs && d > 2*callback.Grace:
				t.Errorf("closing took %s", d)
			}
			close(release)
			time.Sleep(time.Second)
		})
	}
}
