package deliver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/outputhook"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// diskqueue.Spool implements spill.
var _ spill = (*diskqueue.Spool)(nil)

// ---- with a spool in memory that fails on request ----------------------------------

// Records that the destination does not accept, and all later ones, go to the spool. From there
// they are delivered in order, before any newer record.
func TestSpills(t *testing.T) {
	for _, window := range []int{1, 4} {
		bubble.Test(t, func(t *testing.T) {
			store, ev := &testkit.Spill{}, &testkit.Events{}
			up := time.Now().Add(10 * time.Minute)
			d := newPeer(window, testkit.Rand(1), 100*time.Millisecond)
			d.fault = func(call int, _ *batch.Batch) fault {
				switch {
				case call == 0:
					return fault{kind: isOpen, n: 3}
				case time.Now().Before(up):
					return fault{kind: faultKind(1 + call%2)}
				}
				return fault{}
			}
			x := mustNew(t, d, &Options{spill: store, OnError: ev.Add})
			m := &testkit.Model{}
			for range 100 {
				send(t, m, x, m.Batch(10, 32, batch.Meta{}))
				time.Sleep(time.Second)
			}
			if a := balance(t, m, x); a.Delivered != 3 || a.Pending.Spill != 997 || a.Pending.Inflight != 0 || x.Stats().Breaker == Closed {
				t.Errorf("in the outage: %s", a)
			}
			time.Sleep(time.Until(up) + 5*time.Minute)
			mustBalance(t, m, x, 1000)
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
			mustFlush(t, x)
			mustBalance(t, m, x, 1010)
			if s := x.Stats(); s.Spilled != 997 || s.Spilling {
				t.Errorf("%d records went through the spill", s.Spilled)
			}
			if !slices.Equal(firstCopies(d.Got()), expect(1010)) {
				t.Error("out of order")
			}
			if window > 1 && d.most < 3 {
				t.Errorf("at most %d batches in flight: the replay was not pipelined", d.most)
			}
			ops := slices.DeleteFunc(ev.Ops(), func(op string) bool { return op == "panic" })
			if !slices.Equal(ops, []string{"send", "spill", "recovered", "spilled"}) {
				t.Errorf("events %v", ops)
			}
			d.check(t, 0)
			mustClose(t, x)
		})
	}
}

// Records that an earlier process left in the spool are delivered first and counted as recovered.
func TestRecovers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		old := &testkit.Model{}
		for range 3 {
			if _, err := store.Append(old.Batch(4, 32, batch.Meta{})); err != nil {
				t.Fatal(err)
			}
		}
		store.Reopen()
		sink := testkit.NewSink(nil)
		x := mustNew(t, destOf(sink), &Options{spill: store})
		var build batch.Batch
		build.Append([]byte("x\n"), 101, batch.Meta{})
		build.Append([]byte("x\n"), 102, batch.Meta{})
		if err := x.Send(t.Context(), &build); err != nil {
			t.Fatal(err)
		}
		mustFlush(t, x)
		if a := x.Account(); a.Check() != nil || a.Recovered != 12 || a.Delivered != 14 || a.Accepted != 2 {
			t.Errorf("%s", a)
		}
		if want := append(expect(12), 101, 102); !slices.Equal(sink.Got(), want) {
			t.Errorf("got %v, want %v", sink.Got(), want)
		}
		mustClose(t, x)
	})
}

// Records go to the spool although the destination has not failed. The event "spill" gives the
// reason.
func TestReasonToSpill(t *testing.T) {
	reason := func(t *testing.T, store *testkit.Spill, use func(x *outlet)) error {
		var why error
		x := mustNew(t, newManual(1), &Options{spill: store, OnError: func(e batch.Event) {
			if e.Op == "spill" {
				why = e.Err
			}
		}})
		use(x)
		synctest.Wait()
		return why
	}
	one := func(t *testing.T, x *outlet, ticket uint64) {
		var b batch.Batch
		b.Append([]byte("x\n"), ticket, batch.Meta{})
		if err := x.Send(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	bubble.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		if err := reason(t, store, func(x *outlet) {
			one(t, x, 101)
			if _, err := shutdown(x, time.Second); err != nil {
				t.Error(err)
			}
		}); !errors.Is(err, outputhook.ErrClosing) {
			t.Errorf("while closing: %v", err)
		}
		store.Reopen()
		m := &testkit.Model{}
		if _, err := store.Append(m.Batch(1, 32, batch.Meta{})); err != nil {
			t.Fatal(err)
		}
		store.Reopen()
		if err := reason(t, store, func(x *outlet) {
			one(t, x, 102)
			synctest.Wait()
			shutdown(x, time.Nanosecond)
		}); !errors.Is(err, outputhook.ErrBehind) {
			t.Errorf("with older records in the spool: %v", err)
		}
	})
}

// While the destination works, an empty spool is not used, not even for the first batch.
func TestSpoolIsNotUsedByAHealthyDestination(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		x := mustNew(t, destOf(testkit.NewSink(nil)), &Options{spill: store})
		m := &testkit.Model{}
		for range 20 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		mustFlush(t, x)
		if n := x.Stats().Spilled; n != 0 || store.Peak() != 0 {
			t.Errorf("%d records went through the spool", n)
		}
		mustClose(t, x)
	})
}

// If the spool fails or is full, no record is lost. Send waits, and the outlet calls the spool
// again later.
func TestSpillFails(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store, ev := &testkit.Spill{}, &testkit.Events{}
		store.Fail(testkit.ErrDisk)
		sink := testkit.NewSink(testkit.Fail(testkit.ErrDown))
		x := mustNew(t, destOf(sink), &Options{spill: store, OnError: ev.Add, Breaker: trip})
		m := &testkit.Model{}
		send(t, m, x, m.Batch(5, 32, batch.Meta{}))
		send(t, m, x, m.Batch(5, 32, batch.Meta{}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		rest := m.Batch(5, 32, batch.Meta{})
		if err := x.Send(ctx, rest); !errors.Is(err, context.DeadlineExceeded) || m.Sent(rest, err) == nil {
			t.Fatalf("got %v", err)
		}
		if a, err := m.Account(x.Account(), 5); err != nil || a.Pending.Inflight != 10 {
			t.Errorf("%v: %s", err, a)
		}
		store.Fail(nil)
		send(t, m, x, rest)
		time.Sleep(time.Minute)
		if a := balance(t, m, x); a.Pending.Spill != 15 {
			t.Errorf("after the spill works again: %s", a)
		}
		// The spool has records and fails again. Later records must not be delivered before them.
		store.Fail(testkit.ErrDisk)
		sink.Answer(testkit.Hang(nil))
		send(t, m, x, m.Batch(5, 32, batch.Meta{}))
		time.Sleep(time.Hour)
		sink.Answer(nil)
		store.Fail(nil)
		if n := ev.Count("spill-error"); n != 2 {
			t.Errorf("%d spill-error events for two series of failures: %v", n, ev.Ops())
		}
		r, err := shutdown(x, time.Second)
		if a, bad := m.Account(r.Account, 0); err != nil || bad != nil || a.Pending.Spill != 20 {
			t.Errorf("%v, %v: %s", err, bad, a)
		}
	})
}

// If reading the spool fails, the read is repeated later.
func TestSpillReadFails(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store, ev := &testkit.Spill{}, &testkit.Events{}
		sink := testkit.NewSink(testkit.Script(testkit.Fail(testkit.ErrDown), testkit.Accept))
		x := mustNew(t, destOf(sink), &Options{spill: store, OnError: ev.Add, Breaker: trip})
		m := &testkit.Model{}
		synctest.Wait()
		store.FailNext(testkit.ErrDisk)
		send(t, m, x, m.Batch(5, 32, batch.Meta{}))
		time.Sleep(time.Hour)
		send(t, m, x, m.Batch(5, 32, batch.Meta{}))
		time.Sleep(time.Minute)
		if a := balance(t, m, x); a.Pending.Spill != 10 {
			t.Error(a)
		}
		store.FailNext(nil)
		time.Sleep(time.Minute)
		mustFlush(t, x)
		if err := m.Verify(sink.Got(), 10); err != nil {
			t.Error(err)
		}
		if ev.Count("spill-error") != 1 {
			t.Errorf("events %v", ev.Ops())
		}
		mustClose(t, x)
	})
}

// A panickingSpill panics or calls runtime.Goexit in some calls.
type panickingSpill struct {
	*testkit.Spill
	n atomic.Int32
}

func (s *panickingSpill) odd() {
	switch s.n.Add(1) % 5 {
	case 2:
		panic("the disk is on fire")
	case 4:
		runtime.Goexit()
	}
}

func (s *panickingSpill) Append(b *batch.Batch) (uint64, error) { s.odd(); return s.Spill.Append(b) }

func (s *panickingSpill) NextUpTo(bytes, records int) (*batch.Batch, uint64, error) {
	s.odd()
	return s.Spill.NextUpTo(bytes, records)
}

// A panic or Goexit of the spool counts as a failure of the spool.
func TestSpillPanics(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store, ev := &panickingSpill{Spill: &testkit.Spill{}}, &testkit.Events{}
		sink := testkit.NewSink(testkit.DownUntil(time.Now().Add(10*time.Minute), testkit.Accept))
		x := mustNew(t, destOf(sink), &Options{spill: store, OnError: ev.Add})
		m := &testkit.Model{}
		for range 30 {
			send(t, m, x, m.Batch(5, 32, batch.Meta{}))
			time.Sleep(10 * time.Second)
		}
		time.Sleep(20 * time.Minute)
		mustBalance(t, m, x, 150)
		if err := m.Verify(sink.Got(), 150); err != nil {
			t.Error(err)
		}
		if !ev.Has("spill-error") {
			t.Errorf("events %v", ev.Ops())
		}
		mustClose(t, x)
	})
}

// With a quota, the missing records are exactly those counted as dropped.
func TestSpillQuota(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		store.Quota(100)
		sink := testkit.NewSink(testkit.DownUntil(time.Now().Add(time.Hour), testkit.Accept))
		x := mustNew(t, destOf(sink), &Options{spill: store})
		m := &testkit.Model{}
		for range 50 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
			time.Sleep(time.Minute)
			balance(t, m, x)
		}
		time.Sleep(time.Hour)
		a := balance(t, m, x)
		if a.Dropped[batch.Quota] == 0 || a.Delivered+a.Dropped[batch.Quota] != 500 || a.Pending.Total() != 0 {
			t.Error(a)
		}
		if err := m.Verify(sink.Got(), 500-a.Dropped[batch.Quota]); err != nil {
			t.Error(err)
		}
		mustClose(t, x)
	})
}

// Records that the destination refuses during replay are dropped and counted. They do not delay the
// records after them.
func TestReplayPoison(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store, dead := &testkit.Spill{}, &handlerLog{}
		sink := testkit.NewSink(testkit.DownUntil(time.Now().Add(time.Minute), testkit.Poisoned(hasTicket(7, 23), 400)))
		x := mustNew(t, destOf(sink), &Options{spill: store, DeadLetter: dead})
		m := &testkit.Model{}
		for range 5 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
		}
		time.Sleep(5 * time.Minute)
		if a := balance(t, m, x); a.Delivered != 48 || a.Dropped[batch.Poison] != 2 || a.Pending.Total() != 0 {
			t.Error(a)
		}
		if !slices.Equal(sink.Got(), expect(50, 7, 23)) || !slices.Equal(dead.all(), []uint64{7, 23}) {
			t.Errorf("got %v, dead %v", sink.Got(), dead.all())
		}
		mustClose(t, x)
	})
}

// While the destination is down, records from the spool that exceed MaxAge are dropped and counted
// when they are read.
func TestReplayExpires(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		sink := testkit.NewSink(testkit.Fail(testkit.ErrDown))
		x := mustNew(t, destOf(sink), &Options{spill: store, Retry: &RetryOptions{MaxAge: time.Hour}})
		m := &testkit.Model{}
		for range 180 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{Time: time.Now().UnixNano()}))
			time.Sleep(time.Minute)
		}
		a := balance(t, m, x)
		if a.Dropped[batch.Expired] < 1000 || a.Dropped[batch.Expired] > 1210 || a.Pending.Spill != 1800-a.Dropped[batch.Expired] {
			t.Errorf("after 3 h with a limit of 1 h: %s", a)
		}
		sink.Answer(nil)
		time.Sleep(10 * time.Minute)
		a = balance(t, m, x)
		if err := m.Verify(sink.Got(), 1800-a.Dropped[batch.Expired]); err != nil {
			t.Error(err)
		}
		mustClose(t, x)
	})
}

// Gap markers pass through the spool and are not counted as records.
func TestMarkersPassThroughTheSpill(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Script(testkit.Fail(batch.RetryAfter(testkit.ErrDown, time.Minute)), testkit.Accept))
		x := mustNew(t, destOf(sink), &Options{spill: &testkit.Spill{}})
		var b batch.Batch
		b.Add(layout.NewRun([]byte("gap\n"), []layout.Slot{{Len: 4, Flags: layout.FlagMarker}}))
		if err := x.Send(t.Context(), &b); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if !x.Stats().Spilling {
			t.Error("the marker is not in the spill")
		}
		time.Sleep(2 * time.Minute)
		mustFlush(t, x)
		if a := x.Account(); a != (batch.Account{}) || len(sink.Got()) != 1 {
			t.Errorf("%s, got %v", a, sink.Got())
		}
		mustClose(t, x)
	})
}

// A limitedSpill accepts a number of batches and then fails.
type limitedSpill struct {
	testkit.Spill
	left atomic.Int32
}

func (s *limitedSpill) Append(b *batch.Batch) (uint64, error) {
	if s.left.Add(-1) < 0 {
		return 0, testkit.ErrDisk
	}
	return s.Spill.Append(b)
}

// If the spool fails while the batches in flight are moved to it, the remaining batches stay in
// memory. They are sent after the records in the spool and before all newer records.
func TestSpillFailsHalfway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newPeer(4, testkit.Rand(1), time.Second)
		var up atomic.Bool
		d.fault = func(int, *batch.Batch) fault {
			if !up.Load() {
				return fault{kind: isOpen}
			}
			return fault{}
		}
		store := &limitedSpill{}
		store.left.Store(2)
		x := mustNew(t, d, &Options{spill: store, Breaker: trip})
		m := &testkit.Model{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var rest *batch.Batch
		for rest == nil {
			b := m.Batch(10, 32, batch.Meta{})
			rest = m.Sent(b, x.Send(ctx, b))
		}
		a, err := m.Account(x.Account(), 10)
		if err != nil || a.Pending.Spill != 20 || a.Pending.Inflight == 0 {
			t.Errorf("%v: %s", err, a)
		}
		store.left.Store(1000)
		sendAll(t, t.Context(), m, x, rest)
		time.Sleep(10 * time.Second)
		if a := balance(t, m, x); a.Pending.Inflight != 0 {
			t.Errorf("after the spill works again: %s", a)
		}
		up.Store(true)
		time.Sleep(10 * time.Minute)
		if !slices.Equal(firstCopies(d.Got()), expect(int(m.Accepted()))) {
			t.Errorf("got %v", d.Got())
		}
		mustBalance(t, m, x, m.Accepted())
		mustClose(t, x)
	})
}

// A watchedSpill is a spool that calls its function observe in each operation, after its content
// has changed and before the operation returns.
type watchedSpill struct {
	*testkit.Spill
	observe func(during string)
}

func (s watchedSpill) Append(b *batch.Batch) (uint64, error) {
	seq, err := s.Spill.Append(b)
	s.observe("Append")
	return seq, err
}

func (s watchedSpill) NextUpTo(bytes, records int) (*batch.Batch, uint64, error) {
	b, seq, err := s.Spill.NextUpTo(bytes, records)
	s.observe("NextUpTo")
	return b, seq, err
}

func (s watchedSpill) Ack(seq uint64) error {
	err := s.Spill.Ack(seq)
	s.observe("Ack")
	return err
}

// The account balances at any time, even between the moment when the spool has stored or
// acknowledged a batch and the moment when the outlet processes the result.
func TestAccountBalancesWithinSpill(t *testing.T) {
	for _, window := range []int{1, 3} {
		bubble.Test(t, func(t *testing.T) {
			var x *outlet
			var mu sync.Mutex
			looks := map[string]int{}
			store := watchedSpill{&testkit.Spill{}, func(during string) {
				mu.Lock()
				defer mu.Unlock()
				if x == nil {
					return
				}
				looks[during]++
				if a := x.Account(); a.Check() != nil {
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
			up := time.Now().Add(time.Minute)
			d := newPeer(window, testkit.Rand(1), time.Second)
			d.fault = func(call int, _ *batch.Batch) fault {
				if time.Now().Before(up) {
					return fault{kind: faultKind(1 + call%2)}
				}
				return fault{}
			}
			mu.Lock()
			x = mustNew(t, d, &Options{spill: store})
			mu.Unlock()
			m := &testkit.Model{}
			for range 10 {
				send(t, m, x, m.Batch(5, 32, batch.Meta{}))
			}
			time.Sleep(5 * time.Minute)
			if a := balance(t, m, x); looks["Append"] < 10 || looks["Ack"] < 3 || a.Delivered != 62 {
				t.Errorf("%v, %v", looks, a)
			}
			mustClose(t, x)
		})
	}
}

// ---- memory that is full ---------------------------------------------------

// The policy slab.Spill requires a spool.
func TestSpillNeedsASpill(t *testing.T) {
	out, err := NewOutput(newManual(1), &OutputOptions{Slab: slab.Options{WhenFull: slab.Spill()}})
	if err == nil || !strings.Contains(err.Error(), "Slab.WhenFull is spill") {
		t.Error(out, err)
	}
}

// When memory is full, the batches in flight are moved to the spool. A late answer still settles
// its batch. Unanswered and open records are sent again from the spool, in order, before all newer
// records.
func TestSpillsBatchesInFlight(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(d *manual)
		then   []uint64 // the batches sent after the first three and before 41
	}{
		{"taken", func(d *manual) { d.answer(2, allAccepted); d.answer(0, allAccepted); d.answer(1, allAccepted) }, []uint64{31}},
		{"a part", func(d *manual) {
			d.answer(1, batch.Outcome{Open: batch.From(4), Why: testkit.ErrDown})
			d.answer(0, allAccepted)
			d.answer(2, noneAccepted(testkit.ErrDown))
		}, []uint64{15, 21, 31}},
		{"the session ends", func(d *manual) { d.answer(1, allAccepted); d.end(testkit.ErrDown) }, []uint64{31, 1, 21, 31}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				store := &testkit.Spill{}
				d := newManual(3)
				x := mustNew(t, d, &Options{spill: store})
				var full atomic.Bool
				wake := x.setFull(full.Load)
				m := &testkit.Model{}
				for range 4 {
					send(t, m, x, m.Batch(10, 32, batch.Meta{}))
				}
				d.mustStart(t, 1, 11, 21)
				full.Store(true)
				wake()
				for range 10 {
					send(t, m, x, m.Batch(10, 32, batch.Meta{}))
				}
				synctest.Wait()
				if a := balance(t, m, x); a.Pending.Spill != 140 || a.Pending.Inflight != 0 {
					t.Errorf("%s", a)
				}
				full.Store(false)
				for i := range 3 {
					if b := d.batch(i); string(b.b.AppendTo(nil)) != b.text {
						t.Errorf("batch %d has changed under a session that reads it", i)
					}
				}
				tt.answer(d)
				d.mu.Lock()
				d.onSend = func(s *manualSession, b *batch.Batch) error { s.l.Answer(b, allAccepted); return nil }
				d.mu.Unlock()
				for i := 3; i < len(d.starts()); i++ { // batches that were sent before onSend was set
					d.answer(i, allAccepted)
				}
				time.Sleep(5 * time.Minute)
				want := append([]uint64{1, 11, 21}, tt.then...)
				for k := uint64(41); k <= 131; k += 10 {
					want = append(want, k)
				}
				d.mustStart(t, want...)
				mustBalance(t, m, x, 140)
				mustClose(t, x)
			})
		})
	}
}

// A failOnceSpill is a spool of which one call of NextUpTo fails.
type failOnceSpill struct {
	testkit.Spill
	reads atomic.Int32
	fails int32 // the number of that call
}

func (s *failOnceSpill) NextUpTo(bytes, records int) (*batch.Batch, uint64, error) {
	if s.reads.Add(1) == s.fails {
		return nil, 0, testkit.ErrDisk
	}
	return s.Spill.NextUpTo(bytes, records)
}

// A read of the spool fails once while the batches in flight are moved to the spool. Every batch is
// still delivered and counted, in order.
func TestSpilledInFlightReadFails(t *testing.T) {
	for _, fails := range []int32{0, 2, 3, 4, 5, 6, 7} { // the first read finds an empty spool
		for _, end := range []bool{false, true} {
			bubble.Test(t, func(t *testing.T) {
				d := newManual(3)
				x := mustNew(t, d, &Options{spill: &failOnceSpill{fails: fails}})
				var full atomic.Bool
				wake := x.setFull(full.Load)
				m := &testkit.Model{}
				for range 4 {
					send(t, m, x, m.Batch(1, 32, batch.Meta{}))
				}
				d.mustStart(t, 1, 2, 3)
				full.Store(true)
				wake()
				send(t, m, x, m.Batch(1, 32, batch.Meta{}))
				time.Sleep(time.Minute)
				full.Store(false)
				if end {
					d.end(testkit.ErrDown)
				} else {
					for i := range 3 {
						time.Sleep(time.Minute)
						d.answer(i, allAccepted)
					}
				}
				for i := 3; x.Account().Pending.Total() > 0 && i < 30; i++ {
					if time.Sleep(time.Minute); i < len(d.starts()) {
						d.answer(i, allAccepted)
					}
				}
				mustBalance(t, m, x, 5)
				if got := d.starts(); !slices.Equal(firstCopies(got), expect(5)) {
					t.Errorf("read %d fails, end %t: sent %v", fails, end, got)
				}
				mustClose(t, x)
			})
		}
	}
}

// ---- slabs, an outlet and a spool on disk -------------------------------------------

// A rig consists of slabs, an outlet that reads from them, and the spool of the outlet.
type rig struct {
	store  *diskqueue.Spool
	x      *outlet
	w      slabs
	events *testkit.Events
}

func openRig(t *testing.T, dir string, dest Destination, quota int64, adjust ...func(*slab.Options, *Options)) *rig {
	t.Helper()
	r := &rig{events: &testkit.Events{}}
	var err error
	if r.store, err = diskqueue.Open(dir, &spool.Options{MaxBytes: quota}); err != nil {
		t.Fatal(err)
	}
	so := &slab.Options{SlabBytes: 4096, SlabCount: 4, WhenFull: slab.Spill(), OnError: r.events.Add}
	o := &Options{spill: r.store, OnError: r.events.Add}
	for _, fn := range adjust {
		fn(so, o)
	}
	r.x, r.w = overSlabs(t, dest, o, so)
	return r
}

// close shuts down the slabs and the outlet within d, closes the spool and returns the report.
func (r *rig) close(t *testing.T, d time.Duration) batch.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	report, _ := r.w.Shutdown(ctx)
	if err := r.store.Close(); err != nil {
		t.Error(err)
	}
	if err := report.Check(); err != nil {
		t.Error(err)
	}
	return report
}

// flood writes 200 records from each of 64 goroutines. It returns the duration of the slowest call
// in synctest time, in which disk writes take no time.
func (r *rig) flood(t *testing.T) (slowest time.Duration) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			for i := range 200 {
				began := time.Now()
				if err := r.w.WriteRecord(fmt.Appendf(nil, "%02d %03d a record of some length\n", g, i), batch.Meta{}); err != nil {
					t.Error(err)
				}
				mu.Lock()
				slowest = max(slowest, time.Since(began))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return slowest
}

// A lineOrder is a destination that counts records and checks that the records of each goroutine
// arrive in order.
type lineOrder struct {
	mu   sync.Mutex
	next [64]int
	n    int
	bad  []string
	gaps int
}

func (l *lineOrder) Send(_ context.Context, b *batch.Batch) batch.Outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, rec := range b.All() {
		var g, i int
		if _, err := fmt.Sscanf(string(rec.Data), "%02d %03d", &g, &i); err != nil || i < l.next[g] {
			l.bad = append(l.bad, strings.TrimSpace(string(rec.Data)))
		}
		l.gaps += i - l.next[g]
		l.next[g] = i + 1
		l.n++
	}
	return batch.Outcome{}
}

// silent returns a constructor of destinations that never answer.
func silent(window int) func(chan struct{}) Destination {
	return func(chan struct{}) Destination { return newManual(window) }
}

// If a destination hangs forever and WhenFull is Spill, writers wait only for the spool, whether or
// not the destination obeys its context. The next process delivers everything in order. With a
// quota, exactly the records counted as dropped are missing.
func TestSpillWhenFull(t *testing.T) {
	const total = 64 * 200
	deaf := func(c chan struct{}) Destination { return destOf(testkit.NewSink(testkit.Deaf(c))) }
	for _, tt := range []struct {
		name   string
		dest   func(release chan struct{}) Destination
		quota  int64
		adjust func(o *slab.Options, x *Options, dir string)
	}{
		{"deaf", deaf, 1 << 30, nil},
		{"heeds its context", func(c chan struct{}) Destination { return destOf(testkit.NewSink(testkit.Hang(c))) }, 1 << 30, nil},
		{"never answers", silent(1), 1 << 30, nil},
		{"never answers, with a window", silent(4), 1 << 30, nil},
		{"over quota", deaf, 256 << 10, nil},
		{"crash-safe", deaf, 1 << 30, func(o *slab.Options, _ *Options, dir string) { o.Crash = &slab.Crash{Dir: dir} }},
		{"crash-safe, with a window", silent(4), 1 << 30, func(o *slab.Options, _ *Options, dir string) { o.Crash = &slab.Crash{Dir: dir} }},
		{"two slabs", silent(4), 1 << 30, func(o *slab.Options, _ *Options, _ string) { o.SlabCount = 2 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, crash := t.TempDir(), t.TempDir()
			bubble.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				adjust := func(o *slab.Options, x *Options) {
					if tt.adjust != nil {
						tt.adjust(o, x, crash)
					}
				}
				r := openRig(t, dir, tt.dest(release), tt.quota, adjust)
				if slowest := r.flood(t); slowest > 0 {
					t.Errorf("a writer waited for %s", slowest)
				}
				if s := r.x.Stats(); s.Breaker != Closed || !s.Spilling {
					t.Errorf("circuit %s, spilling %t", s.Breaker, s.Spilling)
				}
				first := r.close(t, time.Second)
				lost := first.Dropped[batch.Quota]
				if first.Accepted != total || first.Delivered != 0 || first.Pending.Spill+lost != total || first.Dropped.Total() != lost {
					t.Errorf("first process: %s", first.Account)
				}
				if (lost > 0) != (tt.quota < 1<<30) {
					t.Errorf("%d lost over a quota of %d", lost, tt.quota)
				}
				close(release)
				synctest.Wait()

				sink := &lineOrder{}
				r = openRig(t, dir, SendFunc(Traits{}, sink.Send), tt.quota, adjust)
				if err := r.w.Flush(t.Context()); err != nil {
					t.Error(err)
				}
				second := r.close(t, time.Second)
				if second.Recovered != total-lost || second.Delivered != total-lost || second.Pending.Total() != 0 {
					t.Errorf("second process: %s", second.Account)
				}
				if len(sink.bad) > 0 || sink.n != int(total-lost) {
					t.Errorf("%d arrived, %d out of order: %q", sink.n, len(sink.bad), sink.bad[:min(len(sink.bad), 3)])
				}
			})
		})
	}
}

// Batches in flight are moved to the spool, and then the destination answers. The answer settles
// them in the spool. Records that arrived are not sent again, and no newer record arrives before
// them.
func TestSpillWhenFullAnsweredLate(t *testing.T) {
	for _, first := range []struct {
		name   string
		answer testkit.Answer
		twice  bool
	}{
		{"taken", testkit.Accept, false},
		{"failed", testkit.Fail(testkit.ErrDown), false},
		{"a part", testkit.First(3), false},
		{"panic", testkit.Panic, false},
		{"taken, but the answer was lost", testkit.Lost(testkit.ErrDown), true},
	} {
		t.Run(first.name, func(t *testing.T) {
			dir := t.TempDir()
			bubble.Test(t, func(t *testing.T) {
				sink := testkit.NewSink(testkit.Script(testkit.Slow(time.Minute, first.answer), testkit.Accept))
				r := openRig(t, dir, destOf(sink), 1<<30)
				if slowest := r.flood(t); slowest > 0 {
					t.Errorf("a writer waited for %s", slowest)
				}
				synctest.Wait() // the session may open after flood has returned
				if n := sink.Calls(); n != 1 {
					t.Errorf("%d calls of the destination", n)
				}
				time.Sleep(2 * time.Minute)
				if _, err := r.w.Write([]byte("the last\n")); err != nil {
					t.Error(err)
				}
				if err := r.w.Flush(t.Context()); err != nil {
					t.Error(err)
				}
				report := r.close(t, time.Second)
				if report.Delivered != 64*200+1 || report.Dropped.Total() != 0 {
					t.Error(report.Account)
				}
				last, twice := testkit.LastCopies(sink.Got())
				for i, ticket := range last {
					if ticket != uint64(i+1) {
						t.Fatalf("record %d arrived at position %d", ticket, i+1)
					}
				}
				if len(last) != 64*200+1 || (twice > 0) != first.twice {
					t.Errorf("%d arrived, %d of them twice", len(last), twice)
				}
				if n := r.events.Count("spill"); n != 1 {
					t.Errorf("%d events, want one: %v", n, r.events.Ops())
				}
			})
		})
	}
}

// If memory and disk are full, writers wait as long as the policy allows, and lost records are
// counted. Delivery continues when disk and destination work again.
func TestSpillWhenFullFails(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		store.Fail(testkit.ErrDisk)
		release := make(chan struct{})
		events := &testkit.Events{}
		x, w := overSlabs(t, destOf(testkit.NewSink(testkit.Deaf(release))), &Options{spill: store, OnError: events.Add},
			&slab.Options{SlabBytes: 4096, SlabCount: 2, WhenFull: slab.Spill(), OnError: events.Add})
		began := time.Now()
		lost := 0
		for range 500 {
			if err := w.WriteRecord(make([]byte, 100), batch.Meta{}); errors.Is(err, slab.ErrDropped) {
				lost++
			}
		}
		if d := time.Since(began); lost == 0 || d != 5*time.Second {
			t.Errorf("%d lost after %s", lost, d)
		}
		if n := events.Count("spill-error"); n != 1 {
			t.Errorf("%d events of %v", n, events.Ops())
		}
		store.Fail(nil)
		time.Sleep(2 * time.Second) // the outlet tries the spool again
		if s := x.Stats(); !s.Spilling {
			t.Error("not spilling although the disk has room again")
		}
		close(release)
		if err := w.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		report, err := w.Shutdown(t.Context())
		if err := errors.Join(err, report.Check()); err != nil {
			t.Error(err)
		}
		if report.Delivered != uint64(500-lost) || report.Dropped[batch.Full] != uint64(lost) {
			t.Error(report.Account)
		}
	})
}

// A countSink is a destination for millions of records. It stores only their number and whether
// they arrived in order.
type countSink struct {
	down func() bool
	n    uint64
	last uint64
	gaps uint64
	bad  int
	late time.Duration // the longest time from Meta.Time to arrival
}

func (s *countSink) Send(_ context.Context, b *batch.Batch) batch.Outcome {
	if s.down != nil && s.down() {
		return batch.FailedOutcome(testkit.ErrDown)
	}
	now := time.Now().UnixNano()
	for i := range b.Runs {
		r := &b.Runs[i]
		for j := range r.Len() {
			number := binary.LittleEndian.Uint64(r.Record(j))
			if number <= s.last {
				s.bad++
			}
			s.gaps += number - s.last - 1
			s.last = number
			s.n++
			s.late = max(s.late, time.Duration(now-r.Slot(j).Time))
		}
	}
	return batch.Outcome{}
}

// An outage lasts ten minutes, at up to 10,000 records per second. Within the quota no record is
// lost, the order is kept, the heap does not grow and the account is exact. Over the quota, exactly
// the records counted as dropped are missing.
func TestTenMinuteOutage(t *testing.T) {
	perSecond := testkit.Scale(1_000, 10_000)
	for _, tt := range []struct {
		name      string
		perSecond int
		quota     int64
	}{
		{"within quota", perSecond, 1 << 30},
		{"over quota", perSecond, 16 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			bubble.Test(t, func(t *testing.T) { tenMinuteOutage(t, dir, tt.perSecond, tt.quota) })
		})
	}
}

func tenMinuteOutage(t *testing.T, dir string, perSecond int, quota int64) {
	const perBatch = 2_000
	store, err := diskqueue.Open(dir, &spool.Options{MaxBytes: quota})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	sink := &countSink{down: func() bool {
		d := time.Since(began)
		return d > 30*time.Second && d < 10*time.Minute+30*time.Second
	}}
	x := mustNew(t, SendFunc(Traits{}, sink.Send), &Options{spill: store})
	slots := make([]layout.Slot, perBatch)
	data := make([]byte, perBatch*32)
	var accepted uint64
	var heap [2]uint64
	for minute := range 11 {
		for range 60 * perSecond / perBatch {
			now := time.Now().UnixNano()
			for i := range slots {
				accepted++
				binary.LittleEndian.PutUint64(data[i*32:], accepted)
				slots[i] = layout.Slot{Ticket: accepted, Time: now, Off: uint32(i * 32), Len: 32}
			}
			var b batch.Batch
			b.Add(layout.NewRun(data, slots))
			if err := x.Send(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second * perBatch / time.Duration(perSecond))
		}
		if minute == 1 || minute == 9 {
			var ms runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&ms)
			heap[minute/9] = ms.HeapAlloc
		}
	}
	time.Sleep(2 * time.Minute)
	mustFlush(t, x)
	a := x.Account()
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
	lost := a.Dropped[batch.Quota]
	if a.Accepted != accepted || a.Pending.Total() != 0 || a.Dropped.Total() != lost || a.Delivered+lost != accepted {
		t.Errorf("%d accepted: %s", accepted, a)
	}
	if sink.n != accepted-lost || sink.gaps != lost || sink.bad != 0 || sink.last != accepted {
		t.Errorf("%d of %d arrived, %d missing, %d out of order, the last is %d", sink.n, accepted, sink.gaps, sink.bad, sink.last)
	}
	if within := quota > 1<<29; within != (lost == 0) {
		t.Errorf("%d lost over a quota of %d", lost, quota)
	}
	if n := x.Stats().Spilled; n < uint64(9*60*perSecond) {
		t.Errorf("%d records spilled: there was no outage of ten minutes", n)
	}
	if heap[1] > heap[0]+8<<20 {
		t.Errorf("the heap grew from %d to %d bytes during the outage", heap[0], heap[1])
	}
	mustClose(t, x)
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// If one caller writes to a dead destination and to two working ones, the working destinations
// receive all records on time, and the caller never waits.
func TestDeadBesideHealthy(t *testing.T) {
	for _, spill := range []bool{true, false} {
		t.Run(fmt.Sprintf("spill=%t", spill), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				sinks := [3]*countSink{{}, {down: func() bool { return true }}, {}}
				var writers [3]slabs
				for i, s := range sinks {
					o := &Options{}
					if spill {
						o.spill = &testkit.Spill{}
					}
					_, writers[i] = overSlabs(t, SendFunc(Traits{}, s.Send), o, &slab.Options{WhenFull: slab.DropNewest(), OnError: func(batch.Event) {}})
				}
				const total = 20_000
				rec := make([]byte, 64)
				began := time.Now()
				var waited time.Duration
				for i := range uint64(total) {
					binary.LittleEndian.PutUint64(rec, i+1)
					now := time.Now()
					for _, w := range writers {
						_ = w.WriteRecord(rec, batch.Meta{Time: now.UnixNano()})
					}
					waited += time.Since(now)
					if i%10 == 9 {
						time.Sleep(10 * time.Millisecond)
					}
				}
				if waited != 0 {
					t.Errorf("the caller waited for %s in %s", waited, time.Since(began))
				}
				for i, w := range writers {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					r, err := w.Shutdown(ctx)
					cancel()
					if bad := r.Check(); bad != nil || r.Accepted != total {
						t.Errorf("destination %d: %v: %s", i, bad, r.Account)
					}
					s := sinks[i]
					if s.down == nil {
						if err != nil || s.n != total || s.gaps != 0 || s.bad != 0 || s.late > 100*time.Millisecond {
							t.Errorf("destination %d: %v, %d arrived, %d missing, %d out of order, up to %s late", i, err, s.n, s.gaps, s.bad, s.late)
						}
					} else if spill && (err != nil || r.Pending.Spill != total) {
						t.Errorf("the dead destination: %v: %s", err, r.Account)
					} else if !spill && (err == nil || r.Dropped[batch.Full]+r.Dropped[batch.Shutdown] != total) {
						t.Errorf("the dead destination: %v: %s", err, r.Account)
					}
				}
			})
		})
	}
}
