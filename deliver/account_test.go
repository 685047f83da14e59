package deliver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/slab"
)

// The account reports each record correctly in random runs. A run may have outages, a spool with a
// quota, a failing handler, crash-safe memory, and records that are refused or end the session.
// Shutdown is called at a random time.
func TestEverythingIsAccountedFor(t *testing.T) {
	for seed := range testkit.Walks(t, 150) {
		bubble.Test(t, func(t *testing.T) { accountRound(t, seed) })
	}
}

func accountRound(t *testing.T, seed uint64) {
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("seed %d: %s", seed, fmt.Sprintf(format, args...))
	}
	rng := testkit.Rand(seed)
	var poison []uint64
	for range rng.IntN(5) {
		poison = append(poison, uint64(1+rng.IntN(600)))
	}
	d := newPeer(1+rng.IntN(5), rng, 300*time.Millisecond)
	well := false
	p := rng.Float64() * 0.6
	up := time.Now().Add(time.Duration(rng.IntN(300)) * time.Second)
	d.fault = func(_ int, b *batch.Batch) fault {
		switch {
		case well || time.Now().After(up) && d.rng.Float64() >= p:
		case time.Now().Before(up):
			return fault{kind: isOpen}
		default:
			return fault{kind: 1 + faultKind(d.rng.IntN(int(faultKinds)-1)), n: d.rng.IntN(b.Len() + 1)}
		}
		for i, rec := range b.All() {
			if slices.Contains(poison, rec.Ticket) {
				if rec.Ticket%2 == 0 {
					return fault{kind: resets, n: i}
				}
				return fault{kind: refuses, n: i}
			}
		}
		return fault{}
	}
	d.cannot = func() error {
		if time.Now().Before(up) && d.rng.IntN(2) == 0 {
			return batch.RetryAfter(testkit.ErrDown, time.Duration(d.rng.IntN(20))*time.Second)
		}
		return nil
	}
	dead, handler := &handlerLog{}, &handlerLog{}
	o := &Options{DeadLetter: dead}
	store := &testkit.Spill{}
	slack := 3 * closeGrace
	if rng.IntN(3) > 0 {
		o.spill = store
		if rng.IntN(2) == 0 {
			store.Quota(50 + rng.IntN(500))
		}
		if rng.IntN(2) == 0 {
			store.Slow(rng, 200*time.Millisecond)
			slack += 2 * 200 * time.Millisecond
		}
	}
	if rng.IntN(4) == 0 {
		o.Retry = &RetryOptions{MaxAge: time.Duration(1+rng.IntN(200)) * time.Second}
	}
	var handled atomic.Uint64
	if rng.IntN(3) == 0 {
		o.Handler, o.PendingLimit = handler, rng.IntN(100)
		own := testkit.Rand(seed + 1)
		handler.answer = func(_ int, b *batch.Batch, err error) batch.Outcome {
			if own.IntN(2) == 0 {
				return batch.FailedOutcome(err)
			}
			handled.Add(uint64(b.Len()))
			return batch.Outcome{}
		}
	}
	x := mustNew(t, d, o)
	if o.spill != nil && rng.IntN(2) == 0 {
		defer fullAtRandom(t, x, rng)()
	}
	m := &testkit.Model{}
	from := logFor(x, logKinds[rng.IntN(2)])
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(600))*time.Second)
	defer cancel()
	held := uint64(0)
	for range 20 {
		for rest := m.Batch(1+rng.IntN(30), 32, batch.Meta{Time: time.Now().UnixNano()}); rest != nil; {
			rest = m.Sent(rest, from.Send(ctx, rest))
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
		if _, err := m.Account(x.Account(), held); err != nil {
			fail("%v", err)
		}
	}
	if rng.IntN(2) == 0 {
		d.mu.Lock()
		well = true
		d.mu.Unlock()
		time.Sleep(time.Duration(rng.IntN(300)) * time.Second)
	}
	closing, done := context.WithTimeout(t.Context(), time.Duration(rng.IntN(5000))*time.Millisecond)
	defer done()
	if rng.IntN(2) == 0 {
		x.Drain(time.Now().Add(time.Duration(rng.IntN(5000)) * time.Millisecond))
	}
	began := time.Now()
	deadline, _ := closing.Deadline()
	r, _ := x.Shutdown(closing)
	if late := time.Since(deadline); late > slack {
		fail("Shutdown took %s, %s too long", time.Since(began), late)
	}
	a, err := m.Account(r.Account, held)
	if err != nil {
		fail("%v", err)
	}
	if a.Pending.Inflight != from.unsettled() {
		fail("in flight after Shutdown: %s", a)
	}
	arrived := d.Got()
	if a.Handled > handled.Load() {
		fail("%d records were handled: account %s", handled.Load(), a)
	}
	if n := uint64(len(dead.all())); n != a.Dropped[batch.Poison] {
		fail("%d dead letters: %s", n, a)
	}
	// A record that neither arrived nor was offered to the handler nor became a dead letter must be
	// reported as dropped or pending.
	seen := map[uint64]bool{}
	for _, tickets := range [][]uint64{arrived, dead.all(), handler.all()} {
		for _, ticket := range tickets {
			seen[ticket] = true
		}
	}
	nowhere := m.Accepted() - uint64(len(seen))
	missing := a.Dropped.Total() - a.Dropped[batch.Poison] + a.Pending.Total()
	if nowhere > missing {
		fail("%d records did not arrive anywhere, the account reports %d as dropped or pending: %s", nowhere, missing, a)
	}
	// The spool may contain more records than the account reports as pending there, because it
	// acknowledges records in order: a settled record stays until all older ones are settled.
	if p := store.Account().Pending.Total(); o.spill != nil && p < a.Pending.Spill {
		fail("%d records are in the spool: %s", p, a)
	}
	d.check(t, seed)
	time.Sleep(time.Minute) // until the hanging calls have returned
	after, err := m.Account(x.Account(), held)
	if err != nil || after != a {
		fail("%v: changed after the report %s: %s", err, a, after)
	}
}

// If several callers share an outlet, the records of each arrive in order, except suspects.
func TestCallersOfOneOutletKeepTheirOrder(t *testing.T) {
	for _, how := range logKinds {
		bubble.Test(t, func(t *testing.T) {
			rng := testkit.Rand(testkit.Seed(t))
			d := newPeer(3, rng, 100*time.Millisecond)
			d.randomFaults(0.1)
			x := mustNew(t, d, &Options{spill: &testkit.Spill{}})
			from := logFor(x, how)
			var wg sync.WaitGroup
			for p := range uint64(4) {
				wg.Go(func() {
					for i := range uint64(50) {
						if err := from.Send(t.Context(), ofTicket(1+p*1000+i)); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			time.Sleep(10 * time.Minute)
			flushUntil(t, x)
			var seen [4]uint64
			all := firstCopies(d.Got())
			alone := map[uint64]int{} // number of sessions that ended while they had only this record
			for _, ticket := range d.alone {
				alone[ticket]++
			}
			suspect := func(ticket uint64) bool { return alone[ticket] >= 3 }
			for _, ticket := range all {
				if suspect(ticket) {
					continue
				}
				p, i := ticket/1000, ticket%1000
				want := seen[p] + 1
				for suspect(p*1000 + want) {
					want++
				}
				if i != want {
					t.Fatalf("caller %d: record %d after %d", p, i, seen[p])
				}
				seen[p] = i
			}
			if len(all) != 200 {
				t.Errorf("%d records arrived", len(all))
			}
			mustClose(t, x)
		})
	}
}

// If the context of a Send ends while the Send waits for space, Send returns the context's cause.
func TestSendEndsWithItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := mustNew(t, newManual(1), nil)
		m := &testkit.Model{}
		send(t, m, x, m.Batch(1, 32, batch.Meta{}))
		send(t, m, x, m.Batch(1, 32, batch.Meta{}))
		results := make(chan error, 2)
		for range 2 {
			go func() {
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("enough"))
				defer cancel()
				results <- x.Send(ctx, ofTicket(9))
			}()
		}
		began := time.Now()
		for range 2 {
			if err := <-results; err == nil || err.Error() != "enough" || time.Since(began) != time.Minute {
				t.Errorf("%v after %s", err, time.Since(began))
			}
		}
		mustDrop(t, x, 2)
	})
}

// Send copies the records: the caller may reuse their memory as soon as Send has returned.
func TestSendCopies(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Slow(time.Second, testkit.Accept))
		sink.KeepData()
		x := mustNew(t, destOf(sink), nil)
		b := lines(3)
		b.Origin = [16]byte{1, 2, 3}
		if err := x.Send(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		for _, rec := range b.All() {
			clear(rec.Data)
		}
		mustFlush(t, x)
		if got := sink.Data(2); got != "00000000000000000002xxxxxxxxxxx\n" {
			t.Errorf("got %q", got)
		}
		mustClose(t, x)
	})
}

// The driver receives the origin, the codec and the metadata of a batch unchanged.
func TestDriverGetsTheBatchUnchanged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, how := range logKinds {
			d := newManual(1)
			x := mustNew(t, d, nil)
			p := logFor(x, how)
			b := &batch.Batch{Codec: oddCodec{}, Origin: [16]byte{1, 2, 3}}
			b.Append([]byte("one\n"), 7, batch.Meta{Time: 5, Stream: 3, Level: 4})
			b.Append([]byte("two\n"), 8, batch.Meta{Time: 6, Stream: 2})
			go func() { _ = p.Send(t.Context(), b) }()
			synctest.Wait()
			got := d.batch(0).b
			if got.Codec != b.Codec || got.Origin != b.Origin || got.Len() != 2 || got.Bytes() != b.Bytes() {
				t.Errorf("%s: %+v", how, got)
			}
			for i, rec := range got.All() {
				if want := b.At(i); string(rec.Data) != string(want.Data) || rec.Ticket != want.Ticket || rec.Meta != want.Meta {
					t.Errorf("%s: %+v, want %+v", how, rec, want)
				}
			}
			d.answer(0, allAccepted)
			mustClose(t, x)
		}
	})
}

// An acceptAll is a destination that accepts all records immediately.
type acceptAll struct{ l Life }

func (acceptAll) Traits() Traits               { return Traits{Window: 4} }
func (acceptAll) Open(l Life) (Session, error) { return acceptAll{l}, nil }
func (n acceptAll) Send(b *batch.Batch) error  { n.l.Answer(b, batch.Outcome{}); return nil }
func (acceptAll) Close()                       {}

// Without failures, a delivery makes at most 5 allocations per batch, regardless of the number of
// records.
func TestAllocs(t *testing.T) {
	x, err := newOutlet(acceptAll{}, &Options{spill: &testkit.Spill{}, Handler: &handlerLog{}, DeadLetter: &handlerLog{}})
	if err != nil {
		t.Fatal(err)
	}
	g := newLightLog(lines(300))
	x.start(g)
	if n := allocs.PerRun(200, g.send); n > 5 {
		t.Errorf("%v allocations per batch, want 5 at most", n)
	}
	mustClose(t, x)
}

// A lightLog is a log that always hands out the same batch, without allocations.
type lightLog struct {
	b    *batch.Batch
	room chan struct{} // capacity: the number of waiting leases
	bell chan struct{}
	over atomic.Bool
}

func newLightLog(b *batch.Batch) *lightLog {
	return &lightLog{b: b, room: make(chan struct{}, 1), bell: make(chan struct{}, 1)}
}

func (g *lightLog) send() {
	g.room <- struct{}{}
	signal(g.bell)
}

func (g *lightLog) Next() (lease, bool) {
	select {
	case <-g.room:
		return g, false
	default:
		return nil, g.over.Load()
	}
}

func (g *lightLog) Due() time.Time                             { return time.Time{} }
func (g *lightLog) Wake() <-chan struct{}                      { return g.bell }
func (g *lightLog) Full() bool                                 { return false }
func (g *lightLog) Shortage() (drops, waits bool)              { return false, false }
func (g *lightLog) Flush() (ticket uint64, ok bool)            { return 0, true }
func (g *lightLog) Leased(uint64) bool                         { return true }
func (g *lightLog) Account(theirs batch.Account) batch.Account { return theirs }
func (g *lightLog) Close()                                     { g.over.Store(true); signal(g.bell) }
func (g *lightLog) Refuse()                                    {}
func (g *lightLog) End(context.Context, bool) uint64           { return 0 }
func (g *lightLog) Leave()                                     {}

func (g *lightLog) Batch() *batch.Batch { return g.b }
func (g *lightLog) Keeps() bool         { return false }
func (g *lightLog) Pins() (int, int)    { return 0, 1 }
func (g *lightLog) Settle(int) bool     { return true }
func (g *lightLog) Release()            {}

// BenchmarkSend measures the delivery of a batch that fills a slab of 64 KiB.
func BenchmarkSend(b *testing.B) {
	for name, o := range map[string]Options{"memory": {}, "spool": {spill: &testkit.Spill{}}} {
		b.Run(name, func(b *testing.B) {
			x, err := newOutlet(acceptAll{}, &o)
			if err != nil {
				b.Fatal(err)
			}
			g := newLightLog(new(testkit.Model).Batch(280, 200, batch.Meta{}))
			x.start(g)
			b.ReportAllocs()
			b.SetBytes(int64(g.b.Bytes()))
			for b.Loop() {
				g.send()
			}
			b.StopTimer()
			mustClose(b, x)
		})
	}
}

// A Send that runs concurrently with Shutdown fails, or its records are in the report.
func TestSendBesideShutdown(t *testing.T) {
	for _, how := range logKinds {
		for range testkit.Rounds(t, 30, 20000) {
			x := mustNew(t, acceptAll{}, nil)
			p := logFor(x, how)
			var wg sync.WaitGroup
			var settled, sends atomic.Uint64
			for range 2 {
				wg.Go(func() {
					b := lines(500) // large, so that the copy takes long enough to overlap with Shutdown
					for {
						if err := p.Send(context.Background(), b); err != nil {
							return
						}
						sends.Add(1)
						settled.Add(500)
					}
				})
			}
			for sends.Load() < 3 {
				runtime.Gosched()
			}
			r, err := shutdown(x, 5*time.Second)
			wg.Wait()
			if err != nil || r.Accepted != settled.Load() || r.Delivered != r.Accepted {
				t.Fatalf("%v: %d records were settled: %s", err, settled.Load(), r.Account)
			}
		}
	}
}

// OldestAge is the age of the oldest undelivered record, even if other records of its batch are
// delivered.
func TestOldestAge(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		began := time.Now()
		d := newManual(2)
		out := mustOutput(t, d, &OutputOptions{Slab: slab.Options{FlushInterval: time.Millisecond}})
		wantOldest := func(want time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := out.Stats().Deliver.OldestAge; got != want {
				t.Errorf("the oldest is %s old, want %s", got, want)
			}
		}
		write := func(age time.Duration) {
			m := batch.Meta{Time: began.Add(-age).UnixNano()}
			if age == 0 {
				m = batch.Meta{}
			}
			if err := out.WriteRecord([]byte("x\n"), m); err != nil {
				t.Fatal(err)
			}
		}
		wantOldest(0)
		write(time.Hour)
		write(time.Minute)
		time.Sleep(time.Second)
		write(0)
		time.Sleep(time.Second)
		wantOldest(time.Hour + 2*time.Second)
		d.answer(0, batch.Outcome{Open: batch.From(1), Why: testkit.ErrDown})
		wantOldest(time.Minute + 2*time.Second)
		d.answer(1, allAccepted)
		time.Sleep(time.Minute)
		d.answer(2, allAccepted)
		time.Sleep(time.Second)
		wantOldest(0)
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Stats.Bytes counts each delivered record once, even if it was sent several times. It includes gap
// markers and excludes refused records.
func TestStatsBytes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		calls := 0
		out := mustOutput(t, SendFunc(Traits{}, func(_ context.Context, b *batch.Batch) batch.Outcome {
			switch calls++; {
			case calls == 1:
				return batch.FailedOutcome(testkit.ErrDown)
			case calls == 2:
				return batch.Outcome{Open: batch.From(2), Why: testkit.ErrDown, Refused: batch.Of(1), Refusal: testkit.ErrDown}
			}
			return batch.Outcome{}
		}), &OutputOptions{Slab: slab.Options{FlushInterval: time.Hour}})
		mustLines(t, out, 0, 10, 10)
		if err := out.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := out.Stats().Deliver; s.Delivered != 9 || s.Bytes != 90 {
			t.Errorf("%d records, %d bytes", s.Delivered, s.Bytes)
		}
		if err := out.Close(); err != nil && calls < 3 {
			t.Error(err)
		}

		var page bytes.Buffer
		out = mustOutput(t, ToWriter(&page), nil)
		mustLines(t, out, 0, 1000, 100)
		mustEnd(t, out, 1000, 1000, batch.Drops{})
		if s := out.Stats().Deliver; s.Bytes != uint64(page.Len()) {
			t.Errorf("%d bytes, %d were written", s.Bytes, page.Len())
		}
	})
}
