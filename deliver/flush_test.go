package deliver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/outputhook"
	"github.com/forebay-log/forebay/internal/testkit"
)

// flushing starts a Flush and returns a channel for its result.
func flushing(t *testing.T, x *outlet) chan error {
	done := make(chan error, 1)
	go func() { done <- x.Flush(t.Context()) }()
	synctest.Wait()
	return done
}

// Flush waits for the records accepted before the call, and not for later records.
func TestFlush(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(3)
		x := mustNew(t, d, nil)
		mustFlush(t, x) // nothing to flush
		m := &testkit.Model{}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		flushed := flushing(t, x)
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		d.mustStart(t, 1, 11, 21)
		d.answer(1, allAccepted)
		d.answer(2, allAccepted)
		if len(flushed) > 0 {
			t.Error("Flush did not wait for the first batch")
		}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		d.answer(0, allAccepted)
		select {
		case err := <-flushed:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("Flush waits for records accepted after it")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := x.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("past its deadline: %v", err)
		}
		d.answer(3, allAccepted)
		mustFlush(t, x)
		mustBalance(t, m, x, 40)
		mustClose(t, x)
		if err := x.Flush(t.Context()); err != nil { // Shutdown has flushed
			t.Errorf("after Shutdown: %v", err)
		}
	})
}

// Flush also waits for records that are sent again.
func TestFlushWaitsForRetries(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Script(testkit.First(3), testkit.Fail(testkit.ErrDown), testkit.First(4), testkit.Accept))
		x := mustNew(t, destOf(sink), nil)
		if err := x.Send(t.Context(), lines(10)); err != nil {
			t.Fatal(err)
		}
		mustFlush(t, x)
		if n := len(sink.Got()); n != 10 {
			t.Errorf("%d delivered", n)
		}
		mustClose(t, x)
	})
}

// If the circuit opens while a Flush waits, Flush fails immediately. A Flush that begins while the
// circuit is open causes a probe, and fails when the probe fails.
func TestFlushEndsWithOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(3)
		x := mustNew(t, d, &Options{Breaker: trip})
		m := &testkit.Model{}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		flushed := flushing(t, x)
		for i := range 2 {
			d.answer(i, noneAccepted(testkit.ErrDown))
			select {
			case err := <-flushed:
				if !errors.Is(err, ErrOpen) || !errors.Is(err, testkit.ErrDown) {
					t.Errorf("got %v", err)
				}
			default:
				t.Error("Flush waits for a destination that is down")
			}
			flushed = flushing(t, x)
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
		}
		d.answer(2, allAccepted)
		if err := <-flushed; err != nil {
			t.Error(err)
		}
		mustClose(t, x)
	})
}

// While the circuit is open, Flush waits if the handler can accept the waiting records.
func TestFlushWaitsForHandler(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := &handlerLog{answer: func(int, *batch.Batch, error) batch.Outcome {
			time.Sleep(100 * time.Millisecond)
			return batch.Outcome{}
		}}
		x := mustNew(t, destOf(testkit.NewSink(testkit.Fail(batch.RetryAfter(testkit.ErrDown, time.Minute)))), &Options{Handler: h})
		m := &testkit.Model{}
		for range 3 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		mustFlush(t, x)
		if a := balance(t, m, x); a.Handled != 30 {
			t.Error(a)
		}
		mustClose(t, x)
	})
}

// If a batch is spilled while a Flush waits for it, the Flush waits until the batch is delivered
// from the spool.
func TestFlushFollowsASpilledBatch(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(3)
		store := &testkit.Spill{}
		full := false
		x := mustNew(t, d, &Options{spill: store})
		wake := x.setFull(func() bool { return full })
		m := &testkit.Model{}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		flushed := flushing(t, x)
		full = true
		wake()
		synctest.Wait()
		full = false
		if a := x.Account(); a.Pending.Spill != 20 {
			t.Fatal(a)
		}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		d.mustStart(t, 1, 11, 21)
		d.end(testkit.ErrDown)
		time.Sleep(time.Minute)
		d.mustStart(t, 1, 11, 21, 1, 11, 21)
		d.answer(4, allAccepted)
		d.answer(3, batch.Outcome{Open: batch.From(5), Why: testkit.ErrDown})
		d.answer(5, noneAccepted(testkit.ErrDown))
		time.Sleep(time.Minute)
		d.mustStart(t, 1, 11, 21, 1, 11, 21, 6, 21)
		if len(flushed) > 0 {
			t.Error("Flush did not wait for the rest of the first batch")
		}
		d.answer(6, allAccepted)
		select {
		case err := <-flushed:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("Flush waits for records accepted after it")
		}
		d.answer(7, allAccepted)
		mustBalance(t, m, x, 30)
		mustClose(t, x)
	})
}

// Flush also waits for records that an earlier process left in the spool.
func TestFlushWaitsForTheSpool(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		old := &testkit.Model{}
		for range 5 {
			if _, err := store.Append(old.Batch(4, 32, batch.Meta{})); err != nil {
				t.Fatal(err)
			}
		}
		store.Reopen()
		sink := testkit.NewSink(testkit.Slow(time.Second, testkit.Accept))
		x := mustNew(t, destOf(sink), &Options{spill: store})
		began := time.Now()
		mustFlush(t, x)
		if n := len(sink.Got()); n != 20 || time.Since(began) != 5*time.Second {
			t.Errorf("%d delivered after %s", n, time.Since(began))
		}
		if a := x.Account(); a.Recovered != 20 || a.Delivered != 20 {
			t.Error(a)
		}
		mustClose(t, x)
	})
}

// If the destination holds the streams of all remaining records (accepts none of them now), Flush
// returns an error with the number of these records.
func TestFlushBesideHeldRecords(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newStreams(1)
		d.hold(2, true)
		x := mustNew(t, d, nil)
		m := &testkit.Model{}
		send(t, m, x, ofStream(m, 3, 1))
		send(t, m, x, ofStream(m, 7, 2))
		send(t, m, x, ofStream(m, 3, 1))
		err := x.Flush(t.Context())
		if err == nil || !strings.Contains(err.Error(), "7 records") || errors.Is(err, ErrOpen) {
			t.Errorf("got %v", err)
		}
		d.hold(2, false)
		time.Sleep(2 * time.Minute)
		mustFlush(t, x)
		mustBalance(t, m, x, 13)
		mustClose(t, x)
	})
}

// Flush returns when the outlet shuts down.
func TestFlushBesideShutdown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := mustNew(t, newManual(1), nil)
		m := &testkit.Model{}
		send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		flushed := flushing(t, x)
		mustDrop(t, x, 10)
		<-flushed
	})
}

// Sync syncs the spool.
func TestSync(t *testing.T) {
	store := &syncSpill{err: testkit.ErrDisk}
	x := mustNew(t, newManual(1), &Options{spill: store})
	if err := x.Sync(t.Context()); !errors.Is(err, testkit.ErrDisk) || store.n != 1 {
		t.Errorf("%v, %d", err, store.n)
	}
	mustClose(t, x)
	x = mustNew(t, newManual(1), nil)
	if err := x.Sync(t.Context()); err != nil {
		t.Error(err)
	}
	mustClose(t, x)
}

type syncSpill struct {
	testkit.Spill
	n   int
	err error
}

func (s *syncSpill) Sync() error { s.n++; return s.err }

// newOutlet passes the limits of a destination to the log, and Stats contains the name.
func TestTraits(t *testing.T) {
	d := newManual(4)
	d.traits.Limits = batch.Limits{Bytes: 7, Records: 5, Age: time.Second}
	x := mustNew(t, d, &Options{name: "there"})
	if c := x.consumer(); c.Limits != d.traits.Limits || x.Stats().Name != "there" {
		t.Errorf("%+v, %q", c, x.Stats().Name)
	}
	mustClose(t, x)
}

// Flush succeeds after a handler is set.
func TestFlushAfterSetErrorHandler(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		out, err := NewOutput(destOf(testkit.NewSink(nil)), nil)
		if err != nil {
			t.Fatal(err)
		}
		outputhook.SetErrorHandler(out, &handlerLog{})
		if err := out.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	})
}
