package deliver

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// Shutdown waits for the destination for 70 % of its time, then calls the handler, regardless of
// PendingLimit, and then moves the remaining records to the spool.
func TestCloseOrder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		var asked time.Time
		h := &handlerLog{answer: func(call int, _ *batch.Batch, err error) batch.Outcome {
			if call > 0 {
				return batch.FailedOutcome(err)
			}
			asked = time.Now()
			return batch.Outcome{}
		}}
		d := newManual(4)
		x := mustNew(t, d, &Options{spill: store, Handler: h, PendingLimit: 1000})
		m := &testkit.Model{}
		for range 3 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		synctest.Wait()
		began := time.Now()
		r, err := shutdown(x, 10*time.Second)
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
		if s := d.session(); !s.closed || !errors.Is(context.Cause(s.l.Context()), context.DeadlineExceeded) {
			t.Errorf("the context of the session ended with %v", context.Cause(s.l.Context()))
		}
	})
}

// If the destination does not answer, Drain waits for it until 70 % of its time limit have passed.
// Then the outlet moves all batches to the spool, and sends nothing more to the destination.
func TestDrain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(1)
		x := mustNew(t, d, &Options{spill: &testkit.Spill{}})
		m := &testkit.Model{}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		b := m.Batch(10, 32, batch.Meta{})
		sent := make(chan error, 1)
		go func() { sent <- x.Send(t.Context(), b) }()
		time.Sleep(time.Second)
		began := time.Now()
		x.Drain(began.Add(10 * time.Second))
		if err := <-sent; m.Sent(b, err) != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 7*time.Second {
			t.Errorf("the log had room after %s, want 7 s", d)
		}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		synctest.Wait()
		d.mustStart(t, 1)
		r, err := x.Shutdown(t.Context())
		if a, bad := m.Account(r.Account, 0); err != nil || bad != nil || a.Pending.Spill != 40 {
			t.Errorf("%v, %v: %s", err, bad, a)
		}
		if time.Since(began) != 7*time.Second {
			t.Errorf("Shutdown waited for a destination that is given up: %s", time.Since(began))
		}
	})
}

// If Shutdown has an earlier deadline than the preceding Drain, the earlier deadline applies.
func TestShutdownAfterDrain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := &handlerLog{}
		x := mustNew(t, newManual(1), &Options{Handler: h, PendingLimit: 1000})
		m := &testkit.Model{}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		x.Drain(time.Now().Add(time.Hour))
		time.Sleep(time.Second)
		began := time.Now()
		r, err := shutdown(x, 10*time.Second)
		if err != nil || r.Handled != 10 || time.Since(began) > 8*time.Second {
			t.Errorf("%v after %s: %s", err, time.Since(began), r.Account)
		}
	})
}

// If the handler hangs during Drain, the outlet stops waiting when 85 % of the time is over, and
// moves the records to the spool.
func TestDrainDoesNotWaitForAHandler(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		h := &handlerLog{answer: func(int, *batch.Batch, error) batch.Outcome { <-release; return batch.Outcome{} }}
		x := mustNew(t, newManual(1), &Options{spill: &testkit.Spill{}, Handler: h, HandlerTimeout: time.Hour, PendingLimit: 1000})
		m := &testkit.Model{}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		began := time.Now()
		x.Drain(began.Add(10 * time.Second))
		for range 3 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
			if d := time.Since(began); d < 8*time.Second || d > 9*time.Second {
				t.Errorf("settled after %s", d)
			}
		}
		r, err := x.Shutdown(t.Context())
		if a, bad := m.Account(r.Account, 0); err != nil || bad != nil || a.Pending.Spill != 50 {
			t.Errorf("%v, %v: %s", err, bad, a)
		}
		close(release)
	})
}

// During Drain, the handler is called until 85 % of the time is over, as long as it answers.
func TestDrainAsksAHandlerThatAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := &handlerLog{answer: func(int, *batch.Batch, error) batch.Outcome {
			time.Sleep(100 * time.Millisecond)
			return batch.Outcome{}
		}}
		x := mustNew(t, newManual(1), &Options{spill: &testkit.Spill{}, Handler: h, PendingLimit: 1000})
		m := &testkit.Model{}
		x.Drain(time.Now().Add(10 * time.Second))
		for range 3 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		mustClose(t, x)
		if a := balance(t, m, x); a.Handled != 30 {
			t.Errorf("%s", a)
		}
	})
}

// Drain ends a long wait between two attempts.
func TestDrainEndsWaits(t *testing.T) {
	for _, after := range []time.Duration{4 * time.Second, time.Hour} { // the longer wait opens the circuit
		bubble.Test(t, func(t *testing.T) {
			sink := testkit.NewSink(testkit.Script(testkit.Fail(batch.RetryAfter(errors.New("503"), after)), testkit.Accept))
			x := mustNew(t, destOf(sink), nil)
			m := &testkit.Model{}
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
			time.Sleep(time.Second)
			began := time.Now()
			x.Drain(began.Add(5 * time.Second))
			time.Sleep(backoff.RetryMin)
			synctest.Wait()
			mustBalance(t, m, x, 10)
			mustClose(t, x)
		})
	}
}

// Without a spool and a handler, the destination has the entire time of Shutdown. The records of
// unanswered batches are then dropped and counted as unknown.
func TestCloseUnknown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(3)
		x := mustNew(t, d, nil)
		m := &testkit.Model{}
		for range 4 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		synctest.Wait()
		d.answer(0, allAccepted)
		d.answer(2, batch.Outcome{Open: batch.From(4), Why: testkit.ErrDown})
		began := time.Now()
		r, err := shutdown(x, 10*time.Second)
		if err == nil || !strings.Contains(err.Error(), "26 records lost (shutdown=26)") || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if d := time.Since(began); d < 9*time.Second || d > 10*time.Second+2*closeGrace {
			t.Errorf("Shutdown took %s", d)
		}
		// Records 11 to 20 and 31 to 40 have no answer. Records 25 to 30 were answered as open.
		a, bad := m.Account(r.Account, 0)
		if bad != nil || a.Delivered != 14 || a.Dropped[batch.Shutdown] != 26 || r.Unknown != 20 {
			t.Errorf("%v: %s, unknown %d", bad, a, r.Unknown)
		}
		d.answer(1, allAccepted) // after Shutdown
		if again, err2 := x.Shutdown(t.Context()); again != r || err2 != err || x.Account() != r.Account {
			t.Errorf("the second Shutdown returned %s, %v", again.Account, err2)
		}
		if !ctxDone(d.session().l.Context()) {
			t.Error("the context of the session did not end")
		}
	})
}

// Shutdown returns in time even if the driver ignores its context in Open, Send or Close, or does
// not answer. Records without an answer are stored in the spool or dropped, and counted once. A
// later answer is ignored.
func TestCloseHung(t *testing.T) {
	for _, call := range []string{"open", "send", "close", "answer"} {
		for _, spill := range []bool{false, true} {
			for _, how := range logKinds {
				t.Run(fmt.Sprintf("%s,spill=%t,%s", call, spill, how), func(t *testing.T) {
					bubble.Test(t, func(t *testing.T) {
						release := make(chan struct{})
						d := newManual(1)
						switch call {
						case "open":
							d.open = func(int, Life) error { <-release; return nil }
						case "send":
							d.onSend = func(s *manualSession, b *batch.Batch) error { <-release; s.l.Answer(b, allAccepted); return nil }
						case "close":
							d.onEnd = func(*manualSession) { <-release }
						}
						o := &Options{}
						if spill {
							o.spill = &testkit.Spill{}
						}
						x := mustNew(t, d, o)
						p := logFor(x, how)
						m := &testkit.Model{}
						b := m.Batch(10, 32, batch.Meta{})
						sent := make(chan error, 1)
						go func() { sent <- p.Send(t.Context(), b) }()
						time.Sleep(time.Second)
						began := time.Now()
						r, err := shutdown(x, 5*time.Second)
						if d := time.Since(began); d > 5*time.Second+3*closeGrace {
							t.Errorf("after %s", d)
						}
						if ok := err == nil; ok != (spill || how == keeping) {
							t.Errorf("got %v", err)
						}
						if rest := m.Sent(b, <-sent); rest != nil {
							t.Fatalf("Send gave %d records back", rest.Len())
						}
						a, bad := m.Account(r.Account, 0)
						if bad != nil || spill && a.Pending.Spill != 10 || !spill && a.Dropped[batch.Shutdown]+a.Pending.Inflight != 10 {
							t.Errorf("%v: %s", bad, a)
						}
						if sent := !spill && how != keeping && call != "open"; sent != (r.Unknown > 0) && call != "close" || r.Unknown > 10 {
							t.Errorf("%d unknown", r.Unknown)
						}
						close(release)
						time.Sleep(time.Minute)
						if a, bad := m.Account(x.Account(), 0); bad != nil || a.Delivered != 0 {
							t.Errorf("changed after the report: %v: %s", bad, a)
						}
						if call != "open" && !d.session().closed {
							t.Error("the session was not closed in the end")
						}
					})
				})
			}
		}
	}
}

// A session that closes after Shutdown has returned releases its memory. The loop has ended before,
// so the session must not use the loop's list of batches. The race detector reports an access to
// it.
func TestCloseOutlivesTheLoop(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(2)
		d.onEnd = func(*manualSession) { time.Sleep(time.Minute) } // the session closes when the clock reaches this time
		x := mustNew(t, d, nil)
		m := &testkit.Model{}
		for range 2 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		if r, err := shutdown(x, time.Second); err == nil || r.Unknown != 20 {
			t.Errorf("%v: %s", err, r.Account)
		}
		time.Sleep(2 * time.Minute)
		if !d.session().closed {
			t.Error("the session was not closed in the end")
		}
	})
}

// At the end of Shutdown, a write that waits for memory returns ErrClosed, even if the destination
// hangs in Send.
func TestCloseRefusesWaitingWrites(t *testing.T) {
	for _, inline := range []bool{false, true} {
		t.Run(fmt.Sprintf("inline=%t", inline), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				defer close(release)
				dest := SendFunc(Traits{Inline: inline}, func(context.Context, *batch.Batch) batch.Outcome {
					<-release
					return batch.Outcome{}
				})
				x, w := overSlabs(t, dest, nil, &slab.Options{SlabBytes: 1024, SlabCount: 2, WhenFull: slab.Block()})
				returned := make(chan error, 1)
				go func() {
					var err error
					for err == nil {
						err = w.WriteRecord(make([]byte, 100), batch.Meta{})
					}
					returned <- err
				}()
				time.Sleep(time.Second)
				began := time.Now()
				r, err := shutdown(x, 50*time.Millisecond)
				if err == nil || r.Dropped[batch.Shutdown] == 0 {
					t.Errorf("%v: %s", err, r.Account)
				}
				if err, took := <-returned, time.Since(began); !errors.Is(err, batch.ErrClosed) || took > 250*time.Millisecond {
					t.Errorf("%v after %s", err, took)
				}
				if err := r.Account.Check(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Shutdown ends a Send that waits during an outage. The records of that Send are not accepted.
func TestCloseBesideSend(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, answer := range []testkit.Answer{testkit.Fail(testkit.ErrDown), testkit.Hang(nil)} {
			sink := testkit.NewSink(answer)
			x := mustNew(t, destOf(sink), nil)
			m := &testkit.Model{}
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
			b := m.Batch(10, 32, batch.Meta{})
			sent, second := make(chan error, 1), make(chan error, 1)
			go func() { sent <- x.Send(context.Background(), b) }()
			go func() {
				time.Sleep(time.Second)
				second <- x.Send(context.Background(), lines(1))
			}()
			time.Sleep(time.Minute)
			began := time.Now()
			r, err := shutdown(x, 5*time.Second)
			if err == nil || time.Since(began) > 5*time.Second+closeGrace || r.Dropped[batch.Shutdown] != 20 {
				t.Errorf("%v after %s: %s", err, time.Since(began), r.Account)
			}
			if rest := m.Sent(b, <-sent); rest == nil || rest.Len() != 10 {
				t.Error("the records of a Send that was interrupted are settled")
			}
			if err := <-second; !errors.Is(err, batch.ErrClosed) {
				t.Errorf("a Send that waited for its turn: %v", err)
			}
			if err := x.Send(t.Context(), lines(1)); !errors.Is(err, batch.ErrClosed) {
				t.Errorf("Send after Shutdown: %v", err)
			}
			if sink.Closes() != 1 {
				t.Errorf("%d closes", sink.Closes())
			}
		}
	})
}

// All concurrent calls of Shutdown return the same result. The destination is closed once.
func TestCloseTwice(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Script(testkit.Fail(testkit.ErrDown), testkit.Slow(time.Second, testkit.Accept)))
		x := mustNew(t, destOf(sink), &Options{spill: &testkit.Spill{}})
		m := &testkit.Model{}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		type result struct {
			r   batch.Report
			err error
		}
		results := make(chan result, 3)
		for range 3 {
			go func() {
				r, err := shutdown(x, time.Minute)
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
		if _, err := x.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// If the context of a second Shutdown ends before the first Shutdown returns, the second call
// returns the error of its context and the current account.
func TestCloseTwiceWithoutTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := mustNew(t, newManual(1), nil)
		m := &testkit.Model{}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		first := make(chan error, 1)
		go func() { _, err := shutdown(x, time.Minute); first <- err }()
		time.Sleep(time.Second)
		began := time.Now()
		r, err := shutdown(x, time.Second)
		if !errors.Is(err, context.DeadlineExceeded) || r.Check() != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %s: %s", err, time.Since(began), r.Account)
		}
		if err := <-first; err == nil {
			t.Error("10 records were dropped, and no error reports it")
		}
	})
}

// While the destination accepts records, Shutdown delivers the records in the spool. While the
// destination is down, Shutdown probes it until 70 % of the time is over.
func TestCloseReplays(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			name    string
			answer  testkit.Answer
			open    time.Duration // OpenMax of the circuit
			most    time.Duration
			spilled uint64
		}{
			{"well", testkit.Slow(100*time.Millisecond, testkit.Accept), time.Millisecond, 6 * time.Second, 0},
			{"slow", testkit.Slow(time.Second, testkit.Accept), time.Millisecond, 8 * time.Second, 50},
			{"down", testkit.Fail(testkit.ErrDown), time.Minute, 7 * time.Second, 200},
		} {
			sink := testkit.NewSink(testkit.Fail(testkit.ErrDown))
			x := mustNew(t, destOf(sink), &Options{spill: &testkit.Spill{}, Breaker: &BreakerOptions{Failures: 2, OpenMin: time.Millisecond, OpenMax: tt.open}})
			m := &testkit.Model{}
			for range 20 {
				send(t, m, x, m.Batch(10, 32, batch.Meta{}))
			}
			time.Sleep(10 * time.Millisecond)
			sink.Answer(tt.answer)
			time.Sleep(20 * time.Millisecond)
			began := time.Now()
			r, err := shutdown(x, 10*time.Second)
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

// Without a deadline, Shutdown waits until the destination has accepted all records.
func TestCloseNoDeadline(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newPeer(4, testkit.Rand(1), 0)
		up := time.Now().Add(3 * time.Hour)
		d.cannot = func() error {
			if time.Now().Before(up) {
				return testkit.ErrDown
			}
			return nil
		}
		x := mustNew(t, d, nil)
		m := &testkit.Model{}
		for range 3 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		r, err := x.Shutdown(t.Context())
		if err != nil || r.Delivered != 30 {
			t.Errorf("%v: %s", err, r.Account)
		}
		if err := m.Verify(d.Got(), 30); err != nil {
			t.Error(err)
		}
	})
}

// If the context of Shutdown has already ended, the records are still moved to the spool.
func TestCloseCancelled(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		x := mustNew(t, newManual(4), &Options{spill: &testkit.Spill{}})
		m := &testkit.Model{}
		for range 3 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		r, err := x.Shutdown(ctx)
		if a, bad := m.Account(r.Account, 0); err != nil || bad != nil || a.Pending.Spill != 30 {
			t.Errorf("%v, %v: %s", err, bad, a)
		}
	})
}

// The account balances at any time while Shutdown moves the batches in flight to the spool.
func TestAccountBalancesDuringClose(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var x *outlet
		looks := 0
		store := watchedSpill{&testkit.Spill{}, func(during string) {
			if during != "Append" {
				return
			}
			looks++
			if a := x.Account(); a.Check() != nil || a.Accepted != 30 {
				t.Errorf("%v", a)
			}
		}}
		x = mustNew(t, newManual(4), &Options{spill: store})
		m := &testkit.Model{}
		for range 3 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r, err := x.Shutdown(ctx)
		if a, bad := m.Account(r.Account, 0); err != nil || bad != nil || a.Pending.Spill != 30 || looks != 3 {
			t.Errorf("%v, %v: %s after %d checks", err, bad, a, looks)
		}
	})
}

// Events are reported before Shutdown returns. A callback that hangs delays Shutdown only briefly.
func TestCloseReportsEventsBeforeItReturns(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			reported := 0
			x := mustNew(t, destOf(testkit.NewSink(testkit.Fail(testkit.ErrDown))), &Options{spill: &testkit.Spill{}, OnError: func(batch.Event) {
				if hangs {
					<-release
				}
				time.Sleep(10 * time.Millisecond)
				reported++
			}})
			if err := x.Send(t.Context(), lines(3)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			began := time.Now()
			if _, err := shutdown(x, time.Second); err != nil {
				t.Error(err)
			}
			switch d := time.Since(began); {
			case !hangs && reported != 2: // "send" and "spill"
				t.Errorf("%d events reported", reported)
			case hangs && d > time.Second+2*callback.Grace:
				t.Errorf("closing took %s", d)
			}
			close(release)
			time.Sleep(time.Second)
		})
	}
}

// A slowSpill delays each Append.
type slowSpill struct {
	testkit.Spill
	each time.Duration
}

func (s *slowSpill) Append(b *batch.Batch) (uint64, error) {
	time.Sleep(s.each)
	return s.Spill.Append(b)
}

// After its context is canceled, Shutdown waits up to half a second for a slow disk.
func TestCancelledShutdownWaitsForTheDisk(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		out := mustOutput(t, SendFunc(Traits{}, func(context.Context, *batch.Batch) batch.Outcome { return batch.FailedOutcome(testkit.ErrDown) }), &OutputOptions{
			Slab:    slab.Options{FlushInterval: time.Hour},
			Deliver: Options{spill: &slowSpill{each: 200 * time.Millisecond}},
		})
		for range 1000 {
			out.Write([]byte("record\n"))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		rep, err := out.Shutdown(ctx)
		if err != nil || rep.Kept() != 1000 || rep.Check() != nil {
			t.Errorf("%v: %s", err, rep.Account)
		}
		if took := time.Since(start); took < 200*time.Millisecond || took > 600*time.Millisecond {
			t.Errorf("it took %s", took)
		}
	})
}

// If an Append returns after Shutdown has reported, the account does not change.
func TestSpillSlowerThanClose(t *testing.T) {
	for _, busy := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			x := mustNew(t, destOf(testkit.NewSink(testkit.Fail(batch.RetryAfter(testkit.ErrDown, time.Hour)))), &Options{spill: &slowSpill{each: time.Minute}})
			m := &testkit.Model{}
			for range 2 {
				b := m.Batch(4, 32, batch.Meta{})
				m.Sent(b, nil)
				logOf(x).queue(b)
			}
			if busy { // the first batch is stored and the second is in Append
				time.Sleep(70 * time.Second)
			} else {
				time.Sleep(time.Second)
			}
			began := time.Now()
			r, err := shutdown(x, time.Second)
			if d := time.Since(began); err == nil || d > 2*time.Second {
				t.Errorf("%v after %s", err, d)
			}
			want := uint64(8)
			if busy {
				want = 4
			}
			if a, err := m.Account(r.Account, 0); err != nil || a.Dropped[batch.Shutdown] != want || r.Unknown != want || a.Pending.Spill != 8-want {
				t.Errorf("%v, %d unknown: %s", err, r.Unknown, a)
			}
			time.Sleep(5 * time.Minute)
			if a, err := m.Account(x.Account(), 0); err != nil || a != r.Account {
				t.Errorf("%v: changed after the report: %s", err, a)
			}
		})
	}
}

// A destination that implements Close is closed by Shutdown, which reports a failure, panic, Goexit
// or timeout of that Close.
func TestCloseOfDestination(t *testing.T) {
	oops := errors.New("oops")
	for _, tt := range []struct {
		name  string
		close func(ctx context.Context) error
		want  error
		text  string
	}{
		{"well", func(context.Context) error { return nil }, nil, ""},
		{"fails", func(context.Context) error { return oops }, oops, ""},
		{"panics", func(context.Context) error { panic("no") }, nil, "panicked: no"},
		{"exits", func(context.Context) error { runtime.Goexit(); return nil }, errGoexit, ""},
		{"hangs", func(ctx context.Context) error { <-ctx.Done(); time.Sleep(time.Second); return nil }, nil, ""},
	} {
		bubble.Test(t, func(t *testing.T) {
			x := mustNew(t, struct {
				Destination
				closer
			}{newManual(1), closeFunc(tt.close)}, nil)
			r, err := shutdown(x, 2*time.Second)
			if bad := tt.want == nil && tt.text == "" && err != nil || tt.want != nil && !errors.Is(err, tt.want) || tt.text != "" && (err == nil || !strings.Contains(err.Error(), tt.text)); bad || r.Check() != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			time.Sleep(time.Minute)
		})
	}
}

type closeFunc func(ctx context.Context) error

func (f closeFunc) Close(ctx context.Context) error { return f(ctx) }

// If a driver hangs in Send until after Shutdown, every record is counted once, in the report and
// in the later account.
func TestAbandonedSendCountsOnce(t *testing.T) {
	for range 1 {
		for _, spill := range []bool{false, true} {
			for _, late := range []testkit.Answer{testkit.Accept, testkit.Fail(testkit.ErrDown)} {
				bubble.Test(t, func(t *testing.T) {
					release := make(chan struct{})
					sink := testkit.NewSink(func(ctx context.Context, call int, b *batch.Batch) ([]int, batch.Outcome) {
						<-release // ignores ctx
						return late(ctx, call, b)
					})
					o := &Options{}
					if spill {
						o.spill = &testkit.Spill{}
					}
					x, w := overSlabs(t, destOf(sink), o, &slab.Options{OnError: func(batch.Event) {}})
					for range 10 {
						if _, err := w.Write([]byte("line\n")); err != nil {
							t.Error(err)
						}
					}
					time.Sleep(time.Second) // the driver is now in Send
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					report, err := w.Shutdown(ctx)
					if err := report.Check(); err != nil {
						t.Error(err)
					}
					if spill && (err != nil || report.Pending.Spill != 10) || !spill && (err == nil || report.Unknown != 10 || report.Dropped[batch.Shutdown] != 10) {
						t.Errorf("spill=%t: %v, %d unknown: %s", spill, err, report.Unknown, report.Account)
					}
					close(release)
					time.Sleep(time.Second)
					if a := w.Account(); a.Check() != nil || a.Accepted != 10 || a != report.Account {
						t.Errorf("%s after %s", a, report.Account)
					}
					if _, err := x.Shutdown(t.Context()); err != nil && spill {
						t.Error(err)
					}
					if a := w.Account(); a.Check() != nil {
						t.Error(a)
					}
				})
			}
		}
	}
}

// A batch waits for room in the outlet while a Send hangs. It is dropped when the time of Close
// ends, because the outlet has not accepted it.
func TestCloseDropsABatchThatWaitsForRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const records = 60
		release := make(chan struct{})
		sink := testkit.NewSink(func(ctx context.Context, call int, b *batch.Batch) ([]int, batch.Outcome) {
			<-release // ignores ctx
			return testkit.Accept(ctx, call, b)
		})
		out := mustOutput(t, destOf(sink), &OutputOptions{Slab: slab.Options{SlabBytes: 512, SlabCount: 8}})
		mustLines(t, out, 0, records, 10)
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r, err := out.Shutdown(ctx)
		if err == nil || r.Check() != nil || r.Dropped[batch.Shutdown] != records {
			t.Errorf("%v: %s", err, r.Account)
		}
		close(release)
		time.Sleep(time.Second)
		if a := out.Stats().Account; a.Check() != nil || a.Pending.Total() != 0 || a.Dropped[batch.Shutdown] != records {
			t.Errorf("%s after %s", a, r.Account)
		}
	})
}

// noAnswer is a destination that stores the records it receives and ends the session without an
// answer. If the field refuse is n > 0, its Send returns an error instead from call n on.
type noAnswer struct {
	l      Life
	sends  int
	refuse int
}

func (d *noAnswer) Traits() Traits               { return Traits{} }
func (d *noAnswer) Open(l Life) (Session, error) { d.l = l; return d, nil }
func (d *noAnswer) Close()                       {}
func (d *noAnswer) Send(*batch.Batch) error {
	if d.sends++; d.refuse > 0 && d.sends >= d.refuse {
		return testkit.ErrDown
	}
	d.l.End(testkit.ErrDown)
	return nil
}

// A record counts as unknown at Close if a session ended before it answered the record. It still
// does if its batch is later sent as a probe or refused by a session.
func TestUnknownOfEarlierSessions(t *testing.T) {
	for name, d := range map[string]*noAnswer{"cut": {}, "refused": {refuse: 2}} {
		bubble.Test(t, func(t *testing.T) {
			out := mustOutput(t, d, &OutputOptions{Slab: slab.Options{FlushInterval: 10 * time.Millisecond}})
			mustLines(t, out, 0, 10, 10)
			time.Sleep(5 * time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if r, err := out.Shutdown(ctx); err == nil || r.Dropped[batch.Shutdown] != 10 || r.Unknown != 10 {
				t.Errorf("%s: %s, unknown %d: %v", name, r.Account, r.Unknown, err)
			}
		})
	}
}

// If an answer with open records arrives while a batch waits for another call of the driver, the
// batch is not sent in that session. The open records are sent first.
func TestNoSendAfterTheEndOfItsSession(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(4)
		var once sync.Once
		busy, free := make(chan struct{}), make(chan struct{})
		x := mustNew(t, struct {
			Destination
			flusher
		}{d, flushFunc(func(context.Context) error { once.Do(func() { close(busy) }); <-free; return nil })}, nil)
		m := &testkit.Model{}
		send(t, m, x, m.Batch(1, 32, batch.Meta{}))
		d.mustStart(t, 1)
		d.answer(0, allAccepted)
		send(t, m, x, m.Batch(1, 32, batch.Meta{}))
		d.mustStart(t, 1, 2)
		go x.driver.flush(t.Context())
		<-busy
		send(t, m, x, m.Batch(1, 32, batch.Meta{}))
		d.mustStart(t, 1, 2)
		d.batch(1).s.l.Answer(d.batch(1).b, noneAccepted(testkit.ErrDown))
		close(free)
		time.Sleep(time.Minute)
		if got := d.starts()[:3]; !slices.Equal(got, []uint64{1, 2, 2}) {
			t.Errorf("sent %v", got)
		}
		for i := 2; i < len(d.starts()); i++ {
			d.answer(i, allAccepted)
		}
		mustClose(t, x)
	})
}

// Records that the destination accepts during a Flush are not covered by that Flush. If the next
// Flush fails, Close reports them as possibly lost.
func TestAcceptedDuringFlush(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(4)
		busy, free := make(chan struct{}), make(chan struct{})
		flushes := 0
		x := mustNew(t, struct {
			Destination
			flusher
		}{d, flushFunc(func(context.Context) error {
			if flushes++; flushes > 1 {
				return testkit.ErrDown
			}
			close(busy)
			<-free
			return nil
		})}, nil)
		m := &testkit.Model{}
		send(t, m, x, m.Batch(1, 32, batch.Meta{}))
		send(t, m, x, m.Batch(1, 32, batch.Meta{}))
		d.mustStart(t, 1, 2)
		d.answer(0, allAccepted)
		synctest.Wait()
		go x.driver.flush(t.Context())
		<-busy
		d.answer(1, allAccepted)
		synctest.Wait()
		close(free)
		synctest.Wait()
		if r, err := x.Shutdown(t.Context()); err == nil || !strings.Contains(err.Error(), "1 record may be lost") || r.Delivered != 2 {
			t.Errorf("%v: %v", err, r.Account)
		}
	})
}

type flushFunc func(ctx context.Context) error

func (f flushFunc) Flush(ctx context.Context) error { return f(ctx) }
