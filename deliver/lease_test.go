package deliver

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// A lease is settled when its records are accounted for. It is released when nothing reads its
// memory any more. That is immediately after an answer or, if the session ends without an answer,
// when its Close returns.
func TestLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		d := newManual(2)
		d.onEnd = func(*manualSession) { <-release }
		x := mustNew(t, d, &Options{DeadLetter: &handlerLog{}})
		g := logOf(x)
		g.all = true
		want := func(l *batchLease, settled, returned int) {
			t.Helper()
			synctest.Wait()
			if s, r := l.state(); s != settled || r != returned {
				t.Errorf("settled %d times, returned %d times; want %d, %d", s, r, settled, returned)
			}
		}
		m := &testkit.Model{}
		first, err := g.send(t.Context(), m.Batch(4, 32, batch.Meta{}))
		if err != nil {
			t.Fatal(err)
		}
		want(first, 0, 0)
		d.answer(0, batch.Outcome{Open: batch.From(2), Why: testkit.ErrDown})
		want(first, 0, 0)
		time.Sleep(time.Minute)
		d.answer(1, batch.Outcome{Refused: batch.Of(1), Refusal: testkit.ErrDown})
		want(first, 1, 1)
		second, err := g.send(t.Context(), m.Batch(4, 32, batch.Meta{}))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		x.Drain(time.Now().Add(time.Millisecond)) // the time of the destination is over: only the session refers to the lease
		_, _ = shutdown(x, time.Second)
		want(second, 1, 0)
		close(release)
		want(second, 1, 1)
		g.check(t)
		if a := x.Account(); a.Delivered != 3 || a.Dropped != (batch.Drops{batch.Poison: 1, batch.Shutdown: 4}) {
			t.Error(a)
		}
	})
}

// A hanging session keeps no more slabs in use than the log allows.
func TestLeasePins(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(4)
		x := mustNew(t, d, &Options{spill: &testkit.Spill{}})
		var full atomic.Bool
		wake := x.setFull(full.Load)
		g := logOf(x)
		g.all, g.most = true, 2
		m := &testkit.Model{}
		for range 3 {
			send(t, m, x, m.Batch(1, 32, batch.Meta{}))
		}
		d.mustStart(t, 1, 2)
		full.Store(true)
		for range 10 {
			wake()
			send(t, m, x, m.Batch(1, 32, batch.Meta{}))
		}
		synctest.Wait()
		d.mustStart(t, 1, 2, 3, 4) // the last two come from the spool
		for i, l := range g.leases {
			if s, r := l.state(); s != 1 || (r == 1) != (i >= 2) {
				t.Errorf("lease %d is settled %d times, returned %d times", i, s, r)
			}
		}
		full.Store(false)
		d.answer(0, allAccepted)
		d.answer(1, allAccepted)
		for i := 2; i < 13; i++ {
			synctest.Wait()
			d.answer(i, allAccepted)
		}
		mustBalance(t, m, x, 13)
		mustClose(t, x)
	})
}

// If Shutdown runs out of time, records in crash-safe memory stay pending there. They are not
// counted as dropped or unknown.
func TestKeptLeaseStaysPending(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(2)
		x := mustNew(t, d, nil)
		g := logOf(x)
		g.all, g.keeps = true, true
		m := &testkit.Model{}
		for range 3 {
			send(t, m, x, m.Batch(4, 32, batch.Meta{}))
		}
		synctest.Wait()
		d.answer(0, batch.Outcome{Open: batch.From(3), Why: testkit.ErrDown})
		synctest.Wait()
		r, err := shutdown(x, time.Second)
		if err != nil || r.Unknown != 0 || g.unsettled() != 9 {
			t.Errorf("%v, %d unknown, %d came back", err, r.Unknown, g.unsettled())
		}
		if want := (batch.Account{Accepted: 12, Delivered: 3, Pending: batch.Pending{Inflight: 9}}); r.Account != want {
			t.Errorf("%s, want %s", r.Account, want)
		}
		g.check(t)
	})
}

// If memory is full, leased records go to the spool, including records in flight. Their memory is
// released when the session has answered or closed.
func TestLeaseSpills(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newManual(2)
		x := mustNew(t, d, &Options{spill: &testkit.Spill{}})
		var full atomic.Bool
		wake := x.setFull(full.Load)
		g := logOf(x)
		g.all, g.keeps = true, true
		m := &testkit.Model{}
		for range 3 {
			send(t, m, x, m.Batch(5, 32, batch.Meta{}))
		}
		d.mustStart(t, 1, 6)
		d.answer(0, batch.Outcome{Open: batch.From(3), Why: testkit.ErrDown})
		synctest.Wait()
		full.Store(true)
		wake()
		synctest.Wait()
		full.Store(false)
		if a := balance(t, m, x); a.Delivered != 3 || a.Pending.Spill != 12 {
			t.Error(a)
		}
		for i, want := range []int{1, 0, 1} { // the second batch is in flight
			if s, r := g.leases[i].state(); s != 1 || r != want {
				t.Errorf("lease %d is settled %d times, returned %d times", i, s, r)
			}
		}
		d.answer(1, allAccepted) // the answer counts although older records went to the spool
		time.Sleep(time.Minute)
		d.mustStart(t, 1, 6, 4, 11)
		d.answer(2, allAccepted)
		d.answer(3, allAccepted)
		mustBalance(t, m, x, 15)
		mustClose(t, x)
		g.check(t)
	})
}

// With crash-safe slabs and a faulty destination, each process delivers the records that the
// previous one left, and none is lost.
func TestLeaseCrashSafe(t *testing.T) {
	dir := t.TempDir()
	bubble.Test(t, func(t *testing.T) {
		const total = 4000
		rng := testkit.Rand(testkit.Seed(t))
		arrived := map[string]int{}
		for process := range 4 {
			d := newPeer(3, rng, 100*time.Millisecond)
			d.randomFaults(0.2)
			keep := recordTexts{d, arrived}
			_, w := overSlabs(t, keep, nil, &slab.Options{SlabBytes: 4096, SlabCount: 4, WhenFull: slab.Block(), Crash: &slab.Crash{Dir: dir}, OnError: func(batch.Event) {}})
			if process < 3 {
				for i := range total / 3 {
					rec := []byte{byte('a' + process), byte('0' + i/1000), byte('0' + i/100%10), byte('0' + i/10%10), byte('0' + i%10), '\n'}
					if err := w.WriteRecord(rec, batch.Meta{}); err != nil {
						t.Fatal(err)
					}
				}
			} else {
				d.randomFaults(0)
				if err := w.Flush(t.Context()); err != nil {
					t.Error(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = w.Shutdown(ctx)
			cancel()
			d.check(t, 0)
		}
		if len(arrived) != 3*(total/3) {
			t.Errorf("%d of %d records arrived", len(arrived), 3*(total/3))
		}
	})
}

// recordTexts is a peer that keeps the text of the stored records.
type recordTexts struct {
	*peer
	texts map[string]int
}

func (d recordTexts) Open(l Life) (Session, error) {
	s, err := d.peer.Open(l)
	return recordTextsSession{s, d}, err
}

type recordTextsSession struct {
	Session
	d recordTexts
}

func (s recordTextsSession) Send(b *batch.Batch) error {
	before, texts := len(s.d.Got()), make([]string, 0, b.Len())
	for _, rec := range b.All() { // copied now, because the batch may be answered within Send
		texts = append(texts, string(rec.Data))
	}
	defer func() {
		for _, text := range texts[:len(s.d.Got())-before] {
			s.d.texts[text]++
		}
	}()
	return s.Session.Send(b)
}
