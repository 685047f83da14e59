//go:build linux || darwin

package slablog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// A leaseHolder is a consumer that settles and releases leases in any order, when the test calls
// step.
type leaseHolder struct {
	bare
	most     int        // maximum number of leases at a time
	refusals *rand.Rand // random source for failures of Accept; nil: no failures

	mu     sync.Mutex
	rng    *rand.Rand
	acc    batch.Account
	leases []*heldLease // leases that are not released
	got    []string     // delivered records
	faults []string
	room   chan struct{}
}

type heldLease struct {
	l       *Lease
	was     string // content of the lease when it was accepted
	records []string
	settled bool
}

func newLeaseHolder(rng *rand.Rand, most int) *leaseHolder {
	return &leaseHolder{most: most, rng: rng, room: make(chan struct{}, 1)}
}

func (s *leaseHolder) Account(read func(batch.Account)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	read(s.acc)
}

// deliverLocked settles n records of l as delivered.
func (s *leaseHolder) deliverLocked(l *Lease, n int) {
	if l.Settle(n) {
		s.acc.Accepted += uint64(n)
		s.acc.Delivered += uint64(n)
	}
}

func (s *leaseHolder) Accept(ctx context.Context, l *Lease) error {
	for {
		s.mu.Lock()
		if s.refusals != nil && s.refusals.IntN(10) == 0 {
			s.mu.Unlock()
			return errDown
		}
		if len(s.leases) < s.most {
			p := &heldLease{l: l, was: string(l.Batch().AppendTo(nil))}
			for _, rec := range l.Batch().All() {
				p.records = append(p.records, string(rec.Data))
			}
			s.leases = append(s.leases, p)
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		select {
		case <-s.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// step settles or releases a random lease.
func (s *leaseHolder) step() bool { return s.stepBehind(0) }

// stepBehind is like step, for a lease that is not one of the n oldest.
func (s *leaseHolder) stepBehind(n int) bool {
	s.mu.Lock()
	if len(s.leases) <= n {
		s.mu.Unlock()
		return false
	}
	i := n + s.rng.IntN(len(s.leases)-n)
	p := s.leases[i]
	if string(p.l.Batch().AppendTo(nil)) != p.was {
		s.faults = append(s.faults, "the memory of a lease has changed before it was returned")
	}
	if !p.settled {
		p.settled = true
		s.got = append(s.got, p.records...)
		s.deliverLocked(p.l, len(p.records))
		s.mu.Unlock()
		return true
	}
	s.leases = append(s.leases[:i], s.leases[i+1:]...)
	s.mu.Unlock()
	p.l.Release()
	select {
	case s.room <- struct{}{}:
	default:
	}
	return true
}

// Shutdown delivers some of the remaining records, and returns or drops the rest.
func (s *leaseHolder) Shutdown(context.Context) (batch.Report, error) {
	s.mu.Lock()
	leases := s.leases
	s.leases = nil
	for _, p := range leases {
		if p.settled {
			continue
		}
		k := s.rng.IntN(len(p.records) + 1)
		s.got = append(s.got, p.records[:k]...)
		s.deliverLocked(p.l, k)
		if left := len(p.records) - k; !p.l.Keeps() && p.l.Settle(left) {
			s.acc.Accepted += uint64(left)
			s.acc.Dropped[batch.Shutdown] += uint64(left)
		}
	}
	r := batch.Report{Account: s.acc}
	s.mu.Unlock()
	for _, p := range leases {
		p.l.Release()
	}
	return r, nil
}

// Leases are settled and released in any order, in processes that end at any time. The account
// balances at each step, memory does not change before Release, and with crash-safe slabs no record
// is lost.
func TestLeaseWalk(t *testing.T) {
	for _, crash := range []bool{false, true} {
		for seed := range testkit.Walks(t, 10) {
			dir := t.TempDir()
			bubble.Test(t, func(t *testing.T) {
				rng := testkit.Rand(seed)
				written, delivered := map[string]bool{}, map[string]int{}
				drops := rng.IntN(4) == 0 // records may be dropped, even from crash-safe slabs
				for process := range 3 {
					s := newLeaseHolder(rng, 1+rng.IntN(8))
					if rng.IntN(2) == 0 {
						s.refusals = rand.New(rand.NewPCG(seed, uint64(process)))
					}
					o := slab.Options{
						SlabBytes: 512 << rng.IntN(3), SlabCount: 2 + rng.IntN(8), MaxRecord: 8 << 10, WhenFull: slab.BlockFor(time.Millisecond),
						OnError: quiet, FlushInterval: time.Duration(1+rng.IntN(50)) * time.Millisecond,
					}
					if rng.IntN(2) == 0 {
						o.WhenFull = slab.DropOldest()
					}
					if crash {
						o.Crash = &slab.Crash{Dir: dir, Required: true}
						if !drops {
							o.WhenFull = slab.BlockFor(time.Second)
						}
					}
					w := mustSink(t, s, &o)
					calls := rng.IntN(300)
					for i := range calls {
						size := 20 + rng.IntN(150)
						if rng.IntN(30) == 0 {
							size = rng.IntN(5000)
						}
						text := fmt.Sprintf("%d %d %s\n", process, i, strings.Repeat("x", size))
						done := make(chan error, 1)
						go func() { done <- w.WriteRecord([]byte(text), batch.Meta{}) }()
						for {
							synctest.Wait()
							if len(done) > 0 {
								break
							}
							if !s.step() {
								time.Sleep(time.Millisecond)
							}
						}
						if err := <-done; err == nil {
							written[text] = true
						}
						for rng.IntN(3) == 0 {
							s.step()
						}
						if rng.IntN(20) == 0 {
							time.Sleep(100 * time.Millisecond)
						}
						synctest.Wait()
						if a := w.Account(); a.Check() != nil {
							t.Fatalf("seed %d: %s: %v", seed, a, a.Check())
						}
						if crash {
							s.checkFile(t, w, process, written, drops)
						}
					}
					if process == 2 { // the last process delivers everything
						flushed := make(chan error, 1)
						go func() { flushed <- w.Flush(context.Background()) }()
						for {
							synctest.Wait()
							if len(flushed) > 0 && !s.step() {
								break
							}
							if !s.step() {
								time.Sleep(10 * time.Millisecond)
							}
						}
					}
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					r, _ := w.Shutdown(ctx)
					cancel()
					if err := r.Check(); err != nil || r.Pending.Total() > 0 && !crash {
						t.Fatalf("seed %d, process %d: %v: %s", seed, process, err, r.Account)
					}
					for _, text := range s.got {
						delivered[text]++
					}
					for _, f := range s.faults {
						t.Errorf("seed %d: %s", seed, f)
					}
				}
				if !crash || drops {
					return
				}
				for text := range written {
					if delivered[text] == 0 {
						t.Fatalf("seed %d: lost: %.20q", seed, text)
					}
				}
			})
		}
	}
}

// checkFile compares the file of a process with the records that it wrote and that s has settled.
// The file must contain all pending records, and the counts in it must explain why all other
// records are missing.
func (s *leaseHolder) checkFile(t *testing.T, w *pump, process int, written map[string]bool, drops bool) {
	t.Helper()
	im, err := crashfile.Read(w.store.crash.file.Path())
	if err != nil || im.Unreturned > 0 || im.Damage() != "" || im.Evicted > 0 && !drops {
		t.Fatalf("%v, %q, %d holes, %d settled, %d evicted, %d not returned", err, im.Damage(), im.Holes, im.Settled, im.Evicted, im.Unreturned)
	}
	if drops {
		return
	}
	there := map[string]bool{}
	for _, r := range im.Records {
		there[string(r.Data)] = true
	}
	for _, text := range s.got {
		there[text] = true
	}
	for text := range written {
		if strings.HasPrefix(text, fmt.Sprint(process, " ")) && !there[text] {
			t.Fatalf("not settled, and not in the file: %.20q", text)
		}
	}
}

// An unsettled lease keeps only its slabs in use, and later slabs are reused. The file of a killed
// process contains the records of the lease, and its counts explain why all other records are
// missing.
func TestSlabsAfterAHungLeaseAreReused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newLeaseHolder(testkit.Rand(1), 100)
		w := mustSink(t, s, &slab.Options{SlabBytes: 1024, SlabCount: 8, WhenFull: slab.DropNewest(), OnError: quiet, FlushInterval: time.Millisecond,
			Crash: &slab.Crash{Dir: t.TempDir(), Required: true}})
		written := map[string]bool{}
		for i := range 200 {
			text := fmt.Sprintf("0 %d %s\n", i, strings.Repeat("x", 60+i))
			if err := w.WriteRecord([]byte(text), batch.Meta{}); err != nil {
				t.Fatalf("record %d: %v", i, err)
			}
			written[text] = true
			if i%5 == 0 {
				time.Sleep(2 * time.Millisecond)
			}
			for synctest.Wait(); s.stepBehind(1); synctest.Wait() {
			}
			s.checkFile(t, w, 0, written, false)
		}
		im, err := crashfile.Read(w.store.crash.file.Path())
		if err != nil || im.Settled == 0 || len(im.Records) > 20 || im.Acked != 0 {
			t.Errorf("%v: %d settled, %d records", err, im.Settled, len(im.Records))
		}
		for time.Sleep(time.Second); s.step(); synctest.Wait() {
		}
		if im, err := crashfile.Read(w.store.crash.file.Path()); err != nil || im.Acked != 200 || im.Holes != 0 || w.store.crash.file.State().Ahead != 0 {
			t.Errorf("%v: settled up to %d, %d holes, %x ahead", err, im.Acked, im.Holes, w.store.crash.file.State().Ahead)
		}
		closeNow(t, w)
	})
}

// At most half of the slabs are leased, so that DropOldest drops the oldest records, not the
// newest.
func TestAtMostHalfOfTheSlabsAreLeased(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newLeaseHolder(testkit.Rand(1), 100)
		w := mustSink(t, s, &slab.Options{SlabBytes: 1024, SlabCount: 8, WhenFull: slab.DropOldest(), OnError: quiet})
		for i := range 200 {
			mustWrite(t, w, i, 100)
			synctest.Wait()
		}
		if n := len(s.leases); n != 4 {
			t.Errorf("%d slabs are leased", n)
		}
		flushed := make(chan error, 1)
		go func() { flushed <- w.Flush(t.Context()) }()
		for synctest.Wait(); len(flushed) == 0 || len(s.leases) > 0; synctest.Wait() {
			s.step()
		}
		closeNow(t, w)
		got := numbers(t, strings.Join(s.got, ""))
		if !slices.Contains(got, 199) || w.Account().Dropped[batch.Full] == 0 {
			t.Errorf("the newest record was dropped: %v %s", got, w.Account())
		}
	})
}

// Only the first Settle of a record has an effect.
func TestSettleTwice(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newLeaseHolder(testkit.Rand(1), 100)
		w := mustSink(t, s, &slab.Options{SlabBytes: 1024, SlabCount: 8, WhenFull: slab.DropOldest(), OnError: quiet})
		mustWrite(t, w, 0, 100)
		time.Sleep(time.Second)
		synctest.Wait()
		l := s.leases[0].l
		s.step()
		a := w.Account()
		for range 5 {
			l.Settle(1)
		}
		if got := w.Account(); got != a || got.Check() != nil {
			t.Errorf("%s, then %s", a, got)
		}
		for i := range 100 {
			mustWrite(t, w, 1+i, 100)
			synctest.Wait()
		}
		if n := len(s.leases) - 1; n != 4 {
			t.Errorf("%d slabs are leased", n)
		}
		for synctest.Wait(); len(s.leases) > 0; synctest.Wait() {
			s.step()
		}
		closeNow(t, w)
	})
}

// A misbehaved consumer sometimes panics in Accept, ends its goroutine or returns an error.
type misbehaved struct {
	consumer
	leave func(*Lease)
	calls int
}

func (m *misbehaved) Accept(ctx context.Context, l *Lease) error {
	if m.calls++; m.calls%3 > 0 {
		m.leave(l)
	}
	return m.consumer.Accept(ctx, l)
}

// A call of Accept that does not return normally has settled nothing. The pump calls Accept again,
// immediately if the goroutine has ended, and after a delay if Accept panicked or returned an
// error.
func TestConsumerUnwinds(t *testing.T) {
	for name, leave := range unwinds {
		for _, inline := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " inline=", inline), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					var m memory
					var ev events
					c := consumerFor(&m)
					c.wants.Inline = inline
					b := &misbehaved{consumer: c, leave: func(*Lease) { leave() }}
					w := mustSink(t, b, &slab.Options{SlabBytes: 512, SlabCount: 4, WhenFull: slab.Block(), OnError: ev.add})
					const n = 200
					for i := range n {
						mustWrite(t, w, i, 50)
					}
					if err := w.Flush(t.Context()); err != nil {
						t.Fatal(err)
					}
					wantSequence(t, numbers(t, m.String()), 0, n)
					checkAccount(t, w, n, n, batch.Drops{})
					closeNow(t, w)
				})
			})
		}
	}
}

// If the consumer calls runtime.Goexit when the time limit of Close has passed, the records that it
// has settled are counted once. With crash-safe slabs, no other record is lost.
func TestGoexitAtTheDeadlineCountsOnce(t *testing.T) {
	for _, crash := range []bool{false, true} {
		for _, inline := range []bool{true, false} {
			t.Run(fmt.Sprint("crash=", crash, " inline=", inline), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					dir := t.TempDir()
					o := slab.Options{OnError: quiet}
					if crash {
						o.Crash = &slab.Crash{Dir: dir, Required: true}
					}
					calls := 0
					c := consumerFor(sendFunc(func(ctx context.Context, _ *batch.Batch) batch.Outcome {
						if calls++; calls == 1 {
							return partly(4)
						}
						<-ctx.Done()
						runtime.Goexit()
						return failed()
					}))
					c.wants.Inline = inline
					w := mustSink(t, c, &o)
					for i := range 10 {
						mustWrite(t, w, i, 50)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					r, _ := w.Shutdown(ctx)
					synctest.Wait()
					want := batch.Account{Accepted: 10, Delivered: 4}
					if want.Dropped[batch.Shutdown] = 6; crash {
						want.Dropped[batch.Shutdown], want.Pending.Slab = 0, 6
					}
					if r.Account != want || w.Account() != want {
						t.Errorf("%v, then %v; want %v", r.Account, w.Account(), want)
					}
					if crash {
						got, _ := recoverInto(t, dir)
						wantSequence(t, numbers(t, got), 0, 10)
					}
				})
			})
		}
	}
}

// A lingering consumer keeps a lease and hangs in Accept.
type lingering struct {
	*leaseHolder
	hang chan struct{}
}

func (b lingering) Accept(ctx context.Context, l *Lease) error {
	err := b.leaseHolder.Accept(ctx, l)
	<-b.hang
	return err
}

// Close stops waiting for a call of Accept, which may have accepted records and may return later.
// The records are counted once, both before and after Accept returns.
func TestConsumerReturnsAfterClose(t *testing.T) {
	for _, of := range []string{"heap", "crash-safe slabs", "a dead process"} {
		for seed := range uint64(20) {
			t.Run(fmt.Sprint(of, seed), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					rng := testkit.Rand(seed)
					o := slab.Options{OnError: quiet}
					if of != "heap" {
						o.Crash = &slab.Crash{Dir: t.TempDir(), Required: true}
					}
					end := func(w *pump) batch.Report {
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						r, _ := w.Shutdown(ctx)
						return r
					}
					if of == "a dead process" {
						w := mustSink(t, newLeaseHolder(rng, 0), &o)
						for i := range 10 {
							mustWrite(t, w, i, 50)
						}
						if r := end(w); r.Kept() != 10 {
							t.Fatal(r.Account)
						}
					}
					b := lingering{newLeaseHolder(rng, 1), make(chan struct{})}
					w := mustSink(t, b, &o)
					check := func(when string) {
						if a := w.Account(); a.Check() != nil {
							t.Errorf("%s: %v: %s", when, a.Check(), a)
						}
					}
					for i := range 10 {
						mustWrite(t, w, 10+i, 50)
					}
					time.Sleep(time.Second)
					check("taken")
					if r := end(w); r.Check() != nil {
						t.Errorf("report: %v", r.Check())
					}
					check("closed")
					close(b.hang)
					synctest.Wait()
					check("returned")
				})
			})
		}
	}
}
