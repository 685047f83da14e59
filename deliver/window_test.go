package deliver

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/poison"
	"github.com/forebay-log/forebay/internal/testkit"
)

// The outlet has as many batches in flight as the window permits, and one more that waits. A
// further Send waits for room.
func TestWindowFlows(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(3)
		x := mustNew(t, d, nil)
		m := &testkit.Model{}
		for range 4 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		d.mustStart(t, 1, 11, 21)
		fifth := make(chan error, 1)
		b := m.Batch(10, 32, batch.Meta{})
		go func() { fifth <- x.Send(t.Context(), b) }()
		synctest.Wait()
		if len(fifth) > 0 {
			t.Error("Send did not wait for room")
		}
		d.answer(1, allAccepted) // an answer out of order settles the batch and makes room for another
		if a := x.Account(); a.Delivered != 10 {
			t.Errorf("answered out of order: %s", a)
		}
		if err := <-fifth; m.Sent(b, err) != nil {
			t.Fatal(err)
		}
		d.mustStart(t, 1, 11, 21, 31)
		for _, i := range []int{3, 0, 2} {
			d.answer(i, allAccepted)
		}
		d.mustStart(t, 1, 11, 21, 31, 41)
		d.answer(4, allAccepted)
		mustBalance(t, m, x, 50)
		mustClose(t, x)
		if s := d.session(); !s.closed || !ctxDone(s.l.Context()) || d.opens() != 1 {
			t.Error("the session was not closed")
		}
	})
}

// After an answer with open records, no new batch is sent until all batches in flight are answered.
// Then only the open records are sent again, in order.
func TestWindowRegroups(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(4)
		x := mustNew(t, d, nil)
		m := &testkit.Model{}
		for range 5 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		d.mustStart(t, 1, 11, 21, 31)
		d.answer(0, allAccepted)
		d.mustStart(t, 1, 11, 21, 31, 41)
		d.answer(1, batch.Outcome{Open: batch.From(4), Why: testkit.ErrDown})
		d.answer(4, noneAccepted(testkit.ErrDown))
		time.Sleep(time.Minute)
		d.mustStart(t, 1, 11, 21, 31, 41)
		d.answer(3, noneAccepted(testkit.ErrDown))
		time.Sleep(time.Minute)
		d.mustStart(t, 1, 11, 21, 31, 41)
		d.answer(2, batch.Outcome{Open: batch.Of(2, 5), Why: testkit.ErrDown})
		time.Sleep(time.Minute)
		d.mustStart(t, 1, 11, 21, 31, 41, 15, 23, 31, 41)
		if got := d.batch(6).tickets; !slices.Equal(got, []uint64{23, 26}) {
			t.Errorf("sent again: %v", got)
		}
		for i := 5; i < 9; i++ {
			d.answer(i, allAccepted)
		}
		mustBalance(t, m, x, 50)
		if d.opens() != 1 {
			t.Errorf("%d sessions", d.opens())
		}
		mustClose(t, x)
	})
}

// When a session ends, its unanswered batches are sent again. The next session is opened after
// Close of the first has returned, and starts with the oldest open record.
func TestWindowRewinds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		d := newManual(3)
		d.onEnd = func(s *manualSession) {
			if s.n == 0 {
				<-release
			}
		}
		x := mustNew(t, d, nil)
		m := &testkit.Model{}
		for range 4 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		d.mustStart(t, 1, 11, 21)
		d.answer(1, allAccepted)
		d.mustStart(t, 1, 11, 21, 31)
		first := d.session()
		d.end(testkit.ErrDown)
		if !ctxDone(first.l.Context()) {
			t.Error("the context of the session has not ended")
		}
		d.answer(0, allAccepted) // ignored
		d.answer(2, allAccepted)
		time.Sleep(time.Hour)
		if d.opens() != 1 {
			t.Fatal("a second session before the first has closed")
		}
		for i := range 4 { // the memory of the first session is unchanged
			if x := d.batch(i); string(x.b.AppendTo(nil)) != x.text && i != 1 {
				t.Errorf("batch %d has changed under a session that reads it", i)
			}
		}
		close(release)
		time.Sleep(time.Minute)
		d.mustStart(t, 1, 11, 21, 31, 1, 21, 31)
		d.answer(0, allAccepted) // still ignored
		if a := x.Account(); a.Delivered != 10 {
			t.Errorf("an answer of an ended session counts: %s", a)
		}
		for i := 4; i < 7; i++ {
			d.answer(i, allAccepted)
			d.answer(i, noneAccepted(testkit.ErrDown)) // the second answer is ignored
		}
		mustBalance(t, m, x, 40)
		mustClose(t, x)
	})
}

// A second answer to a batch is ignored, even after the memory of the batch has been reused for
// another batch.
func TestSecondAnswer(t *testing.T) {
	for _, how := range logKinds {
		bubble.Test(t, func(t *testing.T) {
			d := newManual(1)
			x := mustNew(t, d, nil)
			p := logFor(x, how)
			m := &testkit.Model{}
			for i := range 20 {
				send(t, m, p, m.Batch(10, 32, batch.Meta{}))
				synctest.Wait()
				for k := range i {
					d.answer(k, allAccepted)
					d.answer(k, noneAccepted(testkit.ErrDown))
				}
				if n := len(d.starts()); n != i+1 {
					t.Fatalf("%d batches sent, want %d", n, i+1)
				}
				if a := x.Account(); a.Pending.Inflight != 10 {
					t.Fatalf("settled by the answer to another batch: %s", a)
				}
				d.answer(i, allAccepted)
				synctest.Wait()
			}
			mustBalance(t, m, x, 200)
			mustClose(t, x)
		})
	}
}

// Answers before the end of the session count, even if the outlet reads them together with that
// end.
func TestAnswersBeforeTheEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(3)
		x := mustNew(t, d, nil)
		m := &testkit.Model{}
		for range 3 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		d.mustStart(t, 1, 11, 21)
		l := d.session().l
		l.Answer(d.batch(2).b, allAccepted)
		l.Answer(d.batch(0).b, batch.Outcome{Open: batch.From(7), Why: testkit.ErrDown})
		l.End(testkit.ErrDown)
		l.Answer(d.batch(1).b, allAccepted)
		l.End(nil)
		time.Sleep(time.Minute)
		d.mustStart(t, 1, 11, 21, 8, 11)
		d.answer(3, allAccepted)
		d.answer(4, allAccepted)
		mustBalance(t, m, x, 30)
		mustClose(t, x)
	})
}

// If a session refuses further batches, that is not a failure. The outlet waits for the answers of
// the session and then opens the next one without a delay.
func TestLeaving(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ev := &testkit.Events{}
		d := newManual(3)
		x := mustNew(t, d, &Options{OnError: ev.Add, Breaker: &BreakerOptions{Failures: 1}})
		m := &testkit.Model{}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		d.mustStart(t, 1, 11)
		d.session().leave(errors.New("there is a better server"))
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		time.Sleep(time.Minute)
		d.mustStart(t, 1, 11)
		if d.opens() != 1 {
			t.Fatal("a new session before the answers of the old one")
		}
		d.answer(1, allAccepted)
		d.answer(0, noneAccepted(testkit.ErrDown)) // the open records are sent before the third batch
		time.Sleep(time.Minute)
		d.mustStart(t, 1, 11, 1)
		d.answer(2, allAccepted)
		synctest.Wait()
		d.mustStart(t, 1, 11, 1, 21)
		d.answer(3, allAccepted)
		// A session that ends cleanly with nothing in flight is no failure.
		before := time.Now()
		d.end(nil)
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		d.mustStart(t, 1, 11, 1, 21, 31)
		if d.opens() != 3 || time.Since(before) > 0 {
			t.Errorf("%d sessions, %s", d.opens(), time.Since(before))
		}
		d.answer(4, allAccepted)
		mustBalance(t, m, x, 40)
		if n := x.Stats().Trips; n != 1 { // because of the failed answer to batch 0
			t.Errorf("the circuit opened %d times: %v", n, ev.Ops())
		}
		mustClose(t, x)
	})
}

// Sessions of one batch each, as in some protocols, do not count as failures and cause no delay.
func TestOneBatchPerSession(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ev := &testkit.Events{}
		d := newManual(1)
		d.onSend = func(s *manualSession, b *batch.Batch) error {
			s.l.Answer(b, allAccepted)
			s.leave(errors.New("one message for each connection"))
			return nil
		}
		x := mustNew(t, d, &Options{OnError: ev.Add})
		m := &testkit.Model{}
		began := time.Now()
		for range 50 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		mustFlush(t, x)
		mustBalance(t, m, x, 500)
		mustClose(t, x)
		if d.opens() < 50 || len(ev.Ops()) > 0 || time.Since(began) > 0 {
			t.Errorf("%d sessions, events %v, %s", d.opens(), ev.Ops(), time.Since(began))
		}
	})
}

// A session that refuses its first batch counts as a failure, so that the outlet does not open
// sessions without a pause.
func TestSessionThatAcceptsNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ev := &testkit.Events{}
		d := newManual(2)
		d.onSend = func(*manualSession, *batch.Batch) error { return errors.New("not here") }
		x := mustNew(t, d, &Options{OnError: ev.Add})
		m := &testkit.Model{}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		time.Sleep(10 * time.Minute)
		if n := d.opens(); n < 5 || n > 40 {
			t.Errorf("%d sessions in ten minutes", n)
		}
		if s := x.Stats(); s.Breaker == Closed || s.LastError != "the session accepts no records: not here" || ev.Count("send") != 1 {
			t.Errorf("%s, %q, events %v", s.Breaker, s.LastError, ev.Ops())
		}
		d.mu.Lock()
		d.onSend = func(s *manualSession, b *batch.Batch) error { s.l.Answer(b, allAccepted); return nil }
		d.mu.Unlock()
		time.Sleep(2 * time.Minute)
		mustBalance(t, m, x, 10)
		mustClose(t, x)
	})
}

// A record that an answer names as refused becomes a dead letter immediately. Only open records are
// sent again.
func TestWindowRefusal(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(3)
		dead := &handlerLog{}
		x := mustNew(t, d, &Options{DeadLetter: dead})
		m := &testkit.Model{}
		for range 3 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		synctest.Wait()
		d.answer(0, batch.Outcome{Refused: batch.Of(2, 5), Refusal: errors.New("400")})
		d.answer(2, allAccepted)
		d.answer(1, batch.Outcome{Refused: batch.Of(0), Refusal: errors.New("400"), Open: batch.Of(9), Why: testkit.ErrDown})
		time.Sleep(time.Minute)
		d.mustStart(t, 1, 11, 21, 20)
		d.answer(3, allAccepted)
		if a := balance(t, m, x); a.Delivered != 27 || a.Dropped[batch.Poison] != 3 || a.Pending.Total() != 0 {
			t.Error(a)
		}
		if !slices.Equal(dead.all(), []uint64{3, 6, 11}) {
			t.Errorf("dead letters %v", dead.all())
		}
		mustClose(t, x)
	})
}

// An invalid answer settles no record and is reported as an error.
func TestInvalidAnswersAreIgnored(t *testing.T) {
	for name, o := range map[string]batch.Outcome{
		"no such records":  {Open: batch.Of(3, 10), Why: testkit.ErrDown},
		"below 0":          {Refused: batch.Of(-1), Refusal: testkit.ErrDown},
		"not ascending":    {Open: batch.Of(5, 2), Why: testkit.ErrDown},
		"both":             {Open: batch.Of(5), Refused: batch.Of(5)},
		"from nowhere":     {Open: batch.From(11)},
		"before the first": {Open: batch.From(-1)},
	} {
		bubble.Test(t, func(t *testing.T) {
			ev := &testkit.Events{}
			d := newManual(1)
			x := mustNew(t, d, &Options{OnError: ev.Add})
			m := &testkit.Model{}
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
			synctest.Wait()
			d.answer(0, o)
			if s := x.Stats(); s.Delivered != 0 || s.LastError == "" {
				t.Errorf("%s: %q, %s", name, s.LastError, s.Account)
			}
			time.Sleep(time.Minute)
			d.mustStart(t, 1, 1)
			d.answer(1, allAccepted)
			mustBalance(t, m, x, 10)
			if ev.Count("send") != 1 || ev.Has("poison") {
				t.Errorf("%s: events %v", name, ev.Ops())
			}
			mustClose(t, x)
		})
	}
}

// With random faults and random timing of answers, no record is lost. The first copies of all
// records arrive in order, except those suspected of ending sessions. Each failure duplicates at
// most the batches of one window.
func TestOrder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for seed := range testkit.Walks(t, 80) {
			rng := testkit.Rand(seed)
			window, per := 1+rng.IntN(8), 1+rng.IntN(20)
			d := newPeer(window, rng, time.Second)
			d.randomFaults(rng.Float64() * 0.15)
			x := mustNew(t, d, &Options{Retry: &RetryOptions{Min: time.Millisecond, Max: time.Second, BudgetRatio: 1, BudgetPerSecond: 1e3}})
			m := &testkit.Model{}
			for range 60 {
				send(t, m, x, m.Batch(per, 32, batch.Meta{}))
				if rng.IntN(8) == 0 {
					time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
				}
			}
			flushUntil(t, x)
			mustBalance(t, m, x, m.Accepted())
			got := d.Got()
			first := firstCopies(got)
			suspect := func(k uint64) bool { return slices.Contains(d.alone, k) } // only suspects may arrive out of order
			if n := len(first); n != 60*per || !slices.IsSorted(slices.DeleteFunc(first, suspect)) {
				t.Fatalf("seed %d: %d first copies, out of order: %v", seed, n, first)
			}
			failures := int(x.Stats().Retries)
			if _, copies := testkit.LastCopies(got); copies > (failures+1)*window*per { // reference records count as copies
				t.Fatalf("seed %d: %d copies after %d failures with a window of %d × %d", seed, copies, failures, window, per)
			}
			d.check(t, seed)
			mustClose(t, x)
		}
	})
}

// A driver that answers within Send may have a window. If it answers a batch with open records, the
// batches whose Send has not begun are sent after those records.
func TestOrderWithinSend(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for seed := range testkit.Walks(t, 60) {
			rng := testkit.Rand(seed)
			var got []uint64
			dice := testkit.Rand(rng.Uint64())
			d := SendFunc(Traits{Window: 1 + rng.IntN(5)}, func(_ context.Context, b *batch.Batch) batch.Outcome {
				n := b.Len()
				if dice.IntN(4) == 0 {
					n = dice.IntN(n + 1)
				}
				got = append(got, ticketsOf(b)[:n]...)
				if n == b.Len() {
					return allAccepted
				}
				return batch.Outcome{Open: batch.From(n), Why: testkit.ErrDown}
			})
			x := mustNew(t, d, &Options{Retry: &RetryOptions{Min: time.Millisecond, Max: time.Second, BudgetRatio: 1, BudgetPerSecond: 1e3}})
			m := &testkit.Model{}
			for range 60 {
				send(t, m, x, m.Batch(1+rng.IntN(9), 32, batch.Meta{}))
			}
			flushUntil(t, x)
			if !slices.Equal(got, expect(int(m.Accepted()))) {
				t.Fatalf("seed %d: %v", seed, got)
			}
			mustClose(t, x)
		}
	})
}

// If a session refuses a batch while more batches wait for their Send, the next session sends all
// of them.
func TestLeavingWithMoreToSend(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(4)
		hold := make(chan struct{})
		d.onSend = func(s *manualSession, b *batch.Batch) error {
			if s.n == 0 {
				s.l.Answer(b, allAccepted)
				s.leave(errors.New("one batch each"))
				<-hold
			}
			return nil
		}
		x := mustNew(t, d, nil)
		m := &testkit.Model{}
		for range 4 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		synctest.Wait()
		close(hold)
		d.mustStart(t, 1, 11, 21, 31)
		for i := 1; i < 4; i++ {
			d.answer(i, allAccepted)
		}
		mustBalance(t, m, x, 40)
		if s := x.Stats(); s.Retries != 0 || d.opens() != 2 {
			t.Errorf("%d failures, %d sessions", s.Retries, d.opens())
		}
		mustClose(t, x)
	})
}

// flushUntil repeats Flush until it succeeds, which requires a closed circuit and that all records
// are settled.
func flushUntil(t testing.TB, x *outlet) {
	t.Helper()
	var err error
	for range 1000 {
		if err = x.Flush(t.Context()); err == nil {
			return
		}
		time.Sleep(time.Minute)
	}
	t.Fatalf("not settled after hours: %v: %s", err, x.Account())
}

// If the records of one stream fail independently of other streams, order is kept within each
// stream. The driver reports later records of a stream as open if an earlier one is open.
func TestOrderPerStream(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for seed := range testkit.Walks(t, 30) {
			rng := testkit.Rand(seed)
			d := newStreamPeer(testkit.Rand(rng.Uint64()))
			x := mustNew(t, d, &Options{Retry: &RetryOptions{Min: time.Millisecond, Max: time.Second, BudgetRatio: 1, BudgetPerSecond: 1e3}})
			var want [4]uint64
			ticket := uint64(0)
			for range 60 {
				var b batch.Batch
				for range 1 + rng.IntN(12) {
					ticket++
					stream := uint32(rng.IntN(4))
					want[stream]++
					b.Append([]byte("x\n"), ticket, batch.Meta{Stream: stream})
				}
				if err := x.Send(t.Context(), &b); err != nil {
					t.Fatal(err)
				}
			}
			flushUntil(t, x)
			for stream, got := range d.got {
				if !slices.IsSorted(got) || uint64(len(got)) != want[stream] {
					t.Fatalf("seed %d: stream %d: %d of %d, in order: %t", seed, stream, len(got), want[stream], slices.IsSorted(got))
				}
			}
			mustClose(t, x)
		}
	})
}

// A streamPeer is a destination that stores streams separately and fails some of them at times. If
// a record is open, it also reports all later records of the same stream as open, as the rules for
// drivers require.
type streamPeer struct {
	mu    chan struct{}
	fails func() (streams [4]bool, o batch.Outcome)
	got   [4][]uint64
}

func newStreamPeer(rng interface{ IntN(int) int }) *streamPeer {
	return &streamPeer{mu: make(chan struct{}, 1), fails: func() (f [4]bool, o batch.Outcome) {
		if rng.IntN(3) > 0 {
			return f, o
		}
		for i := range f {
			f[i] = rng.IntN(2) == 0
		}
		o.Why = testkit.ErrDown
		if rng.IntN(2) == 0 {
			o.Advice = batch.HoldStreams
			o.After = time.Duration(rng.IntN(3)) * time.Second
		}
		return f, o
	}}
}

func (d *streamPeer) Traits() Traits { return Traits{Window: 3} }

func (d *streamPeer) Open(l Life) (Session, error) {
	s := &streamSession{d: d, l: l, work: make(chan *batch.Batch, 8), idle: make(chan struct{})}
	go s.serve()
	return s, nil
}

type streamSession struct {
	d    *streamPeer
	l    Life
	work chan *batch.Batch
	idle chan struct{}

	awaited int
	broken  [4]bool
	since   time.Time // time of the last answer
	why     batch.Outcome
}

func (s *streamSession) Send(b *batch.Batch) error {
	s.d.mu <- struct{}{}
	if s.awaited == 0 && time.Now().After(s.since) {
		s.broken = [4]bool{} // this Send begins after the last answer
	}
	s.awaited++
	<-s.d.mu
	s.work <- b
	return nil
}

func (s *streamSession) Close() { close(s.work); <-s.idle }

func (s *streamSession) serve() {
	defer close(s.idle)
	for b := range s.work {
		time.Sleep(10 * time.Millisecond)
		s.d.mu <- struct{}{}
		if f, o := s.d.fails(); o.Why != nil {
			s.why = o
			for i := range f {
				s.broken[i] = s.broken[i] || f[i]
			}
		}
		o := s.why
		var open []int
		for i, rec := range b.All() {
			if s.broken[rec.Stream] {
				open = append(open, i)
			} else {
				s.d.got[rec.Stream] = append(s.d.got[rec.Stream], rec.Ticket)
			}
		}
		s.awaited--
		s.since = time.Now()
		<-s.d.mu
		if open == nil {
			o = batch.Outcome{}
		}
		o.Open = batch.Of(open...)
		s.l.Answer(b, o)
	}
}

// A session may end before its Open has returned.
func TestEndBeforeOpenReturns(t *testing.T) {
	for _, why := range []error{nil, testkit.ErrDown} {
		bubble.Test(t, func(t *testing.T) {
			d := newManual(2)
			d.open = func(n int, l Life) error {
				if n < 3 {
					l.End(why)
					time.Sleep(time.Duration(n) * time.Millisecond)
				}
				return nil
			}
			d.onSend = func(s *manualSession, b *batch.Batch) error { s.l.Answer(b, allAccepted); return nil }
			x := mustNew(t, d, nil)
			m := &testkit.Model{}
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
			time.Sleep(time.Minute)
			synctest.Wait()
			mustBalance(t, m, x, 10)
			if n := d.opens(); n != 4 {
				t.Errorf("%d sessions, want 4", n)
			}
			mustClose(t, x)
		})
	}
}

// If a Send answers its batch and then returns an error, the session ends without a failure, and
// the next session continues.
func TestAnsweredAndRefused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(2)
		d.onSend = func(s *manualSession, b *batch.Batch) error {
			s.l.Answer(b, allAccepted)
			return testkit.ErrDown
		}
		x := mustNew(t, d, nil)
		m := &testkit.Model{}
		for range 5 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		mustBalance(t, m, x, 50)
		mustClose(t, x)
	})
}

// The oldest record is found by its timestamp. The oldest batch may be in the queue or, if it left
// the queue, in the list of batches given to a session.
func TestOldestOfEveryList(t *testing.T) {
	at := func(s int64) *entry { return &entry{b: new(batch.Batch), since: time.Unix(s, 0)} }
	of := func(s, own int64) *entry {
		var b batch.Batch
		b.Append([]byte("x\n"), 1, batch.Meta{Time: time.Unix(own, 0).UnixNano()})
		e := at(s)
		e.b = &b
		return e
	}
	removedEntry := of(1, 1)
	removedEntry.place = removed
	for _, tt := range []struct {
		ring, given   []*entry
		taken, record int64 // 0: no batch or record
	}{
		{[]*entry{at(3), at(4)}, []*entry{at(6)}, 3, 0},
		{[]*entry{at(3)}, []*entry{at(2)}, 2, 0},
		{nil, []*entry{at(1), at(2)}, 1, 0},
		{[]*entry{at(7)}, []*entry{{kind: poison.Reference}}, 7, 0},
		{[]*entry{of(7, 5)}, []*entry{at(4)}, 4, 5},
		{[]*entry{of(7, 5)}, []*entry{removedEntry}, 7, 5},
		{nil, []*entry{removedEntry}, 0, 0},
		{},
	} {
		m := machine{queue: &queue{ring: tt.ring}, sess: &inflight{given: tt.given}}
		record, taken := m.oldest()
		for what, v := range map[string]struct {
			got  time.Time
			want int64
		}{"batch": {taken, tt.taken}, "record": {record, tt.record}} {
			if v.want == 0 && !v.got.IsZero() || v.want != 0 && !v.got.Equal(time.Unix(v.want, 0)) {
				t.Errorf("the oldest %s is of %v, want %v", what, v.got, v.want)
			}
		}
	}
}

// A session answers before it notices that the outlet has given it up. The answer is ignored,
// because its records already wait again.
func TestAnswerAfterGivingUpIsIgnored(t *testing.T) {
	s := &inflight{queue: &queue{set: &settings{}}, state: live}
	e := &entry{h: &holder{}, b: lines(2)}
	sent := s.give(time.Now(), e, poison.Queued).e.out
	if s.answerTo(sent, &batch.Outcome{}) != e {
		t.Error("the answer of the session is ignored")
	}
	s.giveUp()
	if s.answerTo(sent, &batch.Outcome{}) != nil || s.awaited != 0 {
		t.Errorf("an answer counts after the session was given up; %d are awaited", s.awaited)
	}
}
