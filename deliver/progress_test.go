package deliver

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// Each test below reproduces a defect that TestWalk or TestExplore found with a faulty driver.

// answerAll accepts each batch.
func answerAll(s *manualSession, b *batch.Batch) error { s.l.Answer(b, allAccepted); return nil }

// A second answer with open records is ignored, and does not change the order of later batches,
// even of those not sent yet.
func TestSecondAnswerKeepsOrder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(3)
		hold := make(chan struct{})
		d.onSend = func(s *manualSession, b *batch.Batch) error {
			if b.First() == 1 {
				<-hold
			}
			return nil
		}
		x := mustNew(t, d, nil)
		m := &testkit.Model{}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		synctest.Wait()
		d.answer(0, allAccepted)
		d.answer(0, noneAccepted(testkit.ErrDown))
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		synctest.Wait()
		close(hold)
		d.mustStart(t, 1, 11, 21)
		d.answer(1, allAccepted)
		d.answer(2, allAccepted)
		mustBalance(t, m, x, 30)
		mustClose(t, x)
	})
}

// After an answer with open records, no Send begins before all batches are answered, even if the
// advice of that answer settles the open records.
func TestNoSendBehindOpenRecords(t *testing.T) {
	for _, advice := range []batch.Advice{batch.Gone, batch.Smaller, batch.Search} {
		bubble.Test(t, func(t *testing.T) {
			d := newManual(2)
			x := mustNew(t, d, nil)
			m := &testkit.Model{}
			for range 3 {
				send(t, m, x, m.Batch(1, 32, batch.Meta{}))
			}
			d.mustStart(t, 1, 2)
			d.answer(0, batch.Outcome{Open: batch.All(), Why: testkit.ErrDown, Advice: advice})
			d.mustStart(t, 1, 2)
			d.answer(1, allAccepted)
			d.mustStart(t, 1, 2, 3)
			d.answer(2, allAccepted)
			mustClose(t, x)
		})
	}
}

// While the circuit is half-open, the records of a held stream are sent again in small batches.
// Between these batches no later record of the stream is sent from the spool.
func TestHeldGoesBeforeTheSpool(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(1)
		d.onSend = func(s *manualSession, b *batch.Batch) error {
			s.l.Answer(b, batch.Outcome{Open: batch.All(), Why: testkit.ErrDown, Advice: batch.HoldStreams})
			return nil
		}
		x := mustNew(t, d, &Options{spill: &testkit.Spill{}, Breaker: &BreakerOptions{Failures: 1}})
		m := &testkit.Model{}
		send(t, m, x, ofStream(m, 40, 1))
		synctest.Wait()
		d.mu.Lock()
		d.open = func(int, Life) error { return testkit.ErrDown }
		d.mu.Unlock()
		d.end(testkit.ErrDown)
		for range 3 {
			send(t, m, x, ofStream(m, 10, 1))
			time.Sleep(time.Second)
		}
		var got []uint64
		d.mu.Lock()
		d.open = nil
		d.onSend = func(s *manualSession, b *batch.Batch) error {
			got = append(got, ticketsOf(b)...)
			return answerAll(s, b)
		}
		d.mu.Unlock()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if !slices.Equal(got, expect(70)) {
			t.Errorf("got %v", got)
		}
		mustBalance(t, m, x, 70)
		mustClose(t, x)
	})
}

// Expired records are acknowledged in the spool immediately.
func TestExpiredAreForgotten(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		spool := &testkit.Spill{}
		d := newManual(1)
		x := mustNew(t, d, &Options{spill: spool, Retry: &RetryOptions{MaxAge: time.Minute}, Breaker: &BreakerOptions{Failures: 1}})
		m := &testkit.Model{}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		synctest.Wait()
		var full atomic.Bool
		full.Store(true)
		wake := x.setFull(func() bool { return full.Swap(false) })
		wake() // the batch is now in flight and in the spool
		synctest.Wait()
		d.mu.Lock()
		d.open = func(int, Life) error { return testkit.ErrDown }
		d.mu.Unlock()
		d.end(testkit.ErrDown)
		time.Sleep(10 * time.Minute)
		if n := spool.Account().Pending.Total(); n > 0 {
			t.Errorf("the spool keeps %d expired records", n)
		}
		if err := x.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		mustClose(t, x)
	})
}

// A parked record is suspected of ending sessions, and no delivered record exists that could be
// sent to test the server. The suspected record is sent again when no other record waits.
func TestSuspectWithoutReference(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		began := time.Now()
		d := newPeer(1, testkit.Rand(1), 0)
		d.fault = func(_ int, b *batch.Batch) fault {
			switch {
			case b.First() == 2:
				return fault{kind: refuses}
			case time.Since(began) < 10*time.Minute:
				return fault{kind: resets}
			}
			return fault{}
		}
		x := mustNew(t, d, nil)
		m := &testkit.Model{}
		send(t, m, x, m.Batch(1, 32, batch.Meta{}))
		send(t, m, x, m.Batch(1, 32, batch.Meta{}))
		time.Sleep(time.Hour)
		if a := balance(t, m, x); a.Delivered != 1 || a.Dropped[batch.Poison] != 1 {
			t.Error(a)
		}
		mustClose(t, x)
	})
}

// A parked record that is suspected of ending sessions is sent alone. If the destination answers
// Search or Smaller, the record is dropped as poison; if it answers Gone, the record is dropped as
// failed. If it answers HoldStreams, the record is held and delivered later.
func TestAnswerToSuspect(t *testing.T) {
	for advice, want := range map[batch.Advice]batch.Account{
		batch.Search:      {Delivered: 29, Dropped: batch.Drops{batch.Poison: 1}},
		batch.Smaller:     {Delivered: 29, Dropped: batch.Drops{batch.Poison: 1}},
		batch.Gone:        {Delivered: 29, Dropped: batch.Drops{batch.Failed: 1}},
		batch.HoldStreams: {Delivered: 30},
	} {
		bubble.Test(t, func(t *testing.T) {
			began := time.Now()
			d := newManual(1)
			d.onSend = func(s *manualSession, b *batch.Batch) error {
				bad := slices.Contains(ticketsOf(b), 15)
				switch at := time.Since(began); {
				case bad && at < 20*time.Second:
					s.l.End(testkit.ErrDown)
				case bad && at < time.Minute:
					s.l.Answer(b, batch.Outcome{Open: batch.All(), Why: testkit.ErrDown, Advice: advice})
				default:
					s.l.Answer(b, allAccepted)
				}
				return nil
			}
			x := mustNew(t, d, nil)
			m := &testkit.Model{}
			for range 3 {
				send(t, m, x, m.Batch(10, 32, batch.Meta{}))
			}
			time.Sleep(50 * time.Second)
			if advice == batch.HoldStreams {
				if s := x.Stats(); s.Breaker != Closed {
					t.Errorf("a held stream has opened the circuit: %s", s.LastError)
				}
				time.Sleep(5 * time.Minute)
			}
			if a := balance(t, m, x); a.Delivered != want.Delivered || a.Dropped != want.Dropped {
				t.Errorf("%s: %s", advice, a)
			}
			mustClose(t, x)
		})
	}
}

// If sessions end without an error and without accepting records while records wait, the outlet
// opens new sessions at increasing intervals.
func TestCleanEndsWithoutProgressAreDelayed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(1)
		d.open = func(n int, l Life) error {
			if n > 1000 {
				return testkit.ErrDown
			}
			l.End(nil)
			return nil
		}
		x := mustNew(t, d, nil)
		m := &testkit.Model{}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		time.Sleep(10 * time.Minute)
		if n := d.opens(); n > 50 {
			t.Errorf("%d sessions", n)
		}
		mustDrop(t, x, 10)
	})
}

// The hold of a stream expires during the last part of Close, while the handler has the records of
// that stream. These records are not sent.
func TestHandlerKeepsWhatWasHeld(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(1)
		d.onSend = func(s *manualSession, b *batch.Batch) error {
			s.l.Answer(b, batch.Outcome{Open: batch.All(), Why: testkit.ErrDown, Advice: batch.HoldStreams, After: 7500 * time.Millisecond})
			return nil
		}
		h := &handlerLog{answer: func(int, *batch.Batch, error) batch.Outcome { time.Sleep(2 * time.Second); return batch.Outcome{} }}
		x := mustNew(t, d, &Options{Handler: h, PendingLimit: 100})
		m := &testkit.Model{}
		send(t, m, x, ofStream(m, 10, 1))
		synctest.Wait()
		go func() {
			time.Sleep(8 * time.Second)
			_ = x.Flush(t.Context()) // makes the loop of the outlet run
		}()
		r, err := shutdown(x, 10*time.Second)
		if err != nil || r.Handled != 10 || h.calls() != 1 {
			t.Errorf("%v: %s, the handler was asked %d times", err, r.Account, h.calls())
		}
	})
}

// A handler that has refused records is called again during the last part of Close.
func TestHandlerIsAskedAgainAtClose(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(1)
		d.open = func(int, Life) error { return testkit.ErrDown }
		down := true
		h := &handlerLog{answer: func(int, *batch.Batch, error) batch.Outcome {
			if down {
				return batch.FailedOutcome(errors.New("not now"))
			}
			return batch.Outcome{}
		}}
		x := mustNew(t, d, &Options{Handler: h, Breaker: &BreakerOptions{Failures: 1, OpenMin: time.Hour, OpenMax: time.Hour}, Retry: &RetryOptions{Min: time.Hour, Max: time.Hour}})
		m := &testkit.Model{}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		synctest.Wait()
		if h.calls() == 0 {
			t.Fatal("the handler was not asked")
		}
		down = false
		r, err := shutdown(x, 10*time.Second)
		if err != nil || r.Handled != 10 {
			t.Errorf("%v: %s, the handler was asked %d times", err, r.Account, h.calls())
		}
	})
}

// Records that arrive just before Close are sent to the destination, even if the circuit is open
// because the handler has accepted all earlier records.
func TestCloseProbes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(1)
		d.open = func(int, Life) error { return testkit.ErrDown }
		d.onSend = answerAll
		h := &handlerLog{answer: func(int, *batch.Batch, error) batch.Outcome { return batch.Outcome{} }}
		x := mustNew(t, d, &Options{Handler: h, PendingLimit: 15, spill: &testkit.Spill{}, Breaker: &BreakerOptions{Failures: 1}})
		m := &testkit.Model{}
		send(t, m, x, m.Batch(20, 32, batch.Meta{}))
		time.Sleep(10 * time.Minute)
		d.mu.Lock()
		d.open = nil
		d.mu.Unlock()
		hold := make(chan struct{})
		x.post(func(time.Time) { <-hold })
		synctest.Wait()
		b := m.Batch(10, 32, batch.Meta{})
		m.Sent(b, nil)
		logOf(x).queue(b)
		time.AfterFunc(time.Millisecond, func() { close(hold) }) // the loop sees the batch and Close at the same time
		r, err := shutdown(x, 10*time.Second)
		if err != nil || r.Delivered != 10 || r.Handled != 20 || r.Pending.Total() > 0 {
			t.Errorf("%v: %s", err, r.Account)
		}
	})
}

// A session ends at a batch that was sent before the outlet began to search a later batch for bad
// records. The records of the earlier batch do not become suspects. They are sent after the
// searched batch.
func TestEndBesideASearch(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(4)
		x := mustNew(t, d, nil)
		m := &testkit.Model{}
		for _, n := range []int{1, 2, 1} {
			send(t, m, x, m.Batch(n, 32, batch.Meta{}))
		}
		d.mustStart(t, 1, 2, 4)
		d.answer(0, allAccepted)
		d.answer(1, batch.Outcome{Open: batch.All(), Why: testkit.ErrDown, Advice: batch.Search})
		d.mu.Lock()
		d.onSend = func(s *manualSession, b *batch.Batch) error { s.l.Answer(b, allAccepted); return nil }
		d.mu.Unlock()
		d.end(testkit.ErrDown)
		time.Sleep(time.Minute)
		if got := d.starts()[3:]; !slices.Equal(got, []uint64{2, 3, 4}) {
			t.Errorf("sent then: %v", got)
		}
		mustClose(t, x)
	})
}
