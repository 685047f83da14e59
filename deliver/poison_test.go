package deliver

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// ---- the destination refuses some records without naming them --------------------

// mostRequests returns the maximum number of requests for finding one record among n.
func mostRequests(n int) int { return 2*bits.Len(uint(n)) + 2 }

// One refused record, at any position in a batch of any size, is found within mostRequests
// requests. All other records are delivered once and in order. The circuit stays closed, and the
// search does not wait.
func TestSearchOne(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, n := range []int{1, 2, 3, 4, 5, 7, 8, 100, 1000} {
			for _, at := range []int{1, n/2 + 1, n} {
				sink := testkit.NewSink(testkit.Poisoned(hasTicket(uint64(at)), 400))
				dead := &handlerLog{}
				x := mustNew(t, destOf(sink), &Options{DeadLetter: dead})
				m := &testkit.Model{}
				began := time.Now()
				send(t, m, x, m.Batch(n, 32, batch.Meta{}))
				mustFlush(t, x)
				if got := sink.Got(); !slices.Equal(got, expect(n, uint64(at))) {
					t.Errorf("%d of %d: delivered %v", at, n, got)
				}
				if a := balance(t, m, x); a.Dropped != (batch.Drops{batch.Poison: 1}) || a.Delivered != uint64(n-1) || time.Since(began) > 0 {
					t.Errorf("%d of %d: after %s: %s", at, n, time.Since(began), a)
				}
				if cost := sink.Calls() - 1; cost > mostRequests(n) {
					t.Errorf("%d of %d: %d requests, at most %d", at, n, cost, mostRequests(n))
				}
				if s := x.Stats(); s.Breaker != Closed || s.Trips != 0 || s.Dropped[batch.Poison] != 1 {
					t.Errorf("%d of %d: %+v", at, n, s)
				}
				mustClose(t, x)
				if got := dead.all(); !slices.Equal(got, []uint64{uint64(at)}) {
					t.Errorf("%d of %d: dead letters %v", at, n, got)
				}
			}
		}
	})
}

// For any set of refused records, a search delivers no record twice, keeps the order, drops only
// the refused records, and needs a bounded number of requests.
func TestSearchRandom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		seed := testkit.Seed(t)
		rng := testkit.Rand(seed)
		for round := range testkit.Rounds(t, 300, 50000) {
			n := 1 + rng.IntN(300)
			faults := make([]uint64, rng.IntN(5))
			if rng.IntN(10) == 0 {
				faults = make([]uint64, rng.IntN(n+1))
			}
			for i := range faults {
				faults[i] = uint64(1 + rng.IntN(n))
			}
			slices.Sort(faults)
			faults = slices.Compact(faults)
			answer := testkit.Poisoned(hasTicket(faults...), 422)
			if rng.IntN(3) == 0 {
				answer = testkit.PoisonedByIndex(hasTicket(faults...), 422)
			}
			cuts := rng.IntN(3) == 0
			if cuts { // batches may also be too large
				small, next := testkit.AtMost(32*(1+rng.IntN(n+1))), answer
				answer = func(ctx context.Context, call int, b *batch.Batch) ([]int, batch.Outcome) {
					if _, o := small(ctx, call, b); !o.Open.Empty() {
						return nil, o
					}
					return next(ctx, call, b)
				}
			}
			if rng.IntN(3) == 0 { // sends also fail at times
				next := answer
				answer = func(ctx context.Context, call int, b *batch.Batch) ([]int, batch.Outcome) {
					if call%7 == 3 {
						return nil, batch.FailedOutcome(testkit.ErrDown)
					}
					return next(ctx, call, b)
				}
			}
			sink := testkit.NewSink(answer)
			dead := &handlerLog{}
			x := mustNew(t, destOf(sink), &Options{DeadLetter: dead})
			m := &testkit.Model{}
			send(t, m, x, m.Batch(n, 32, batch.Meta{}))
			flushUntil(t, x)
			a := balance(t, m, x)
			mustClose(t, x)
			if !slices.Equal(sink.Got(), expect(n, faults...)) || !slices.Equal(dead.all(), faults) || a.Dropped[batch.Poison] != uint64(len(faults)) {
				t.Fatalf("seed %d, round %d: %d records, %v at fault: %s, delivered %v, dead %v", seed, round, n, faults, a, sink.Got(), dead.all())
			}
			if cost := sink.Calls() - 1; !cuts && cost > (len(faults)+1)*(mostRequests(n)+bits.Len(uint(n)))*3/2+40 {
				t.Fatalf("seed %d, round %d: %d requests for %d of %d", seed, round, cost, len(faults), n)
			}
		}
	})
}

// No record is dropped if a batch is refused only because of the combination of its records: each
// record is sent alone before it may be dropped.
func TestSearchTogether(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(func(_ context.Context, _ int, b *batch.Batch) ([]int, batch.Outcome) {
			if b.Len() > 5 {
				return nil, testkit.Malformed(errors.New("too many streams"))
			}
			return nil, batch.Outcome{}
		})
		x := mustNew(t, destOf(sink), nil)
		m := &testkit.Model{}
		for range 3 {
			send(t, m, x, m.Batch(20, 32, batch.Meta{}))
		}
		mustFlush(t, x)
		if !slices.Equal(sink.Got(), expect(60)) {
			t.Errorf("got %v", sink.Got())
		}
		mustBalance(t, m, x, 60)
		mustClose(t, x)
	})
}

// If a destination refuses every record, all records become dead letters.
func TestSearchAll(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Return(testkit.Malformed(errors.New("gone"))))
		dead, ev := &handlerLog{}, &testkit.Events{}
		x := mustNew(t, destOf(sink), &Options{DeadLetter: dead, OnError: ev.Add})
		m := &testkit.Model{}
		send(t, m, x, m.Batch(1000, 32, batch.Meta{}))
		mustFlush(t, x)
		if a := balance(t, m, x); a.Dropped[batch.Poison] != 1000 {
			t.Error(a)
		}
		mustClose(t, x)
		if cost := sink.Calls(); cost > 3*1000 || !slices.Equal(dead.all(), expect(1000)) || ev.Count("poison") != 1 {
			t.Errorf("%d requests, %d dead letters, events %v", cost, len(dead.all()), ev.Ops())
		}
	})
}

// ---- the destination ends the session without an answer ----------------------------

// endingPeer returns a peer that ends the session at each batch with a record for which bad returns
// true. It stores no record of that batch.
func endingPeer(window int, bad func(batch.Record) bool) *peer {
	d := newPeer(window, testkit.Rand(1), 0)
	d.fault = func(_ int, b *batch.Batch) fault {
		for _, rec := range b.All() {
			if bad(rec) {
				return fault{kind: resets}
			}
		}
		return fault{}
	}
	return d
}

// stored returns the tickets of the records that d stored, sorted and without duplicates.
func stored(d *peer) []uint64 { return slices.Compact(slices.Sorted(slices.Values(d.Got()))) }

// A record that ends every session in which it is sent is found among good records, and dropped as
// poison after half a minute, not earlier. The other records are delivered in order within 20
// seconds.
func TestPoisonThatResets(t *testing.T) {
	for _, window := range []int{1, 4} {
		for _, at := range []uint64{15, 40, 101, 150, 200} {
			bubble.Test(t, func(t *testing.T) {
				dead, ev := &handlerLog{}, &testkit.Events{}
				d := endingPeer(window, hasTicket(at))
				x := mustNew(t, d, &Options{DeadLetter: dead, OnError: ev.Add})
				m := &testkit.Model{}
				began := time.Now()
				for range 10 {
					send(t, m, x, m.Batch(20, 32, batch.Meta{}))
				}
				time.Sleep(time.Until(began.Add(20 * time.Second)))
				if a := balance(t, m, x); a.Delivered != 199 || a.Pending.Inflight != 1 || dead.calls() > 0 {
					t.Errorf("window %d, record %d: after 20 s: %s", window, at, a)
				}
				if got := firstCopies(d.Got()); !slices.Equal(got, expect(200, at)) {
					t.Errorf("window %d, record %d: %v", window, at, got)
				}
				time.Sleep(5 * time.Minute)
				if a := balance(t, m, x); a.Dropped[batch.Poison] != 1 || a.Pending.Total() != 0 {
					t.Errorf("window %d, record %d: %s", window, at, a)
				}
				if s := x.Stats(); s.Breaker != Closed || s.Dropped[batch.Poison] != 1 || ev.Count("poison") != 1 {
					t.Errorf("window %d, record %d: %+v, events %v", window, at, s, ev.Ops())
				}
				d.check(t, 0)
				mustClose(t, x)
				if !slices.Equal(dead.all(), []uint64{at}) || !errors.Is(dead.errs[0], testkit.ErrDown) {
					t.Errorf("window %d: dead letters %v, %v", window, dead.all(), dead.errs)
				}
			})
		}
	}
}

// The last record ends sessions. The outlet therefore sends reference records, which were accepted
// before, to find out whether the record or the server is at fault. This gives enough evidence to
// drop the record as poison. Only delivered records serve as reference records.
func TestPoisonThatIsLast(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := endingPeer(1, hasTicket(11))
		x := mustNew(t, d, nil)
		m := &testkit.Model{}
		send(t, m, x, m.Batch(11, 32, batch.Meta{}))
		time.Sleep(10 * time.Minute)
		if a := balance(t, m, x); a.Delivered != 10 || a.Dropped[batch.Poison] != 1 {
			t.Error(a)
		}
		mustClose(t, x)

		// If the bad record is the first and only one, there is no evidence against it.
		d = endingPeer(1, hasTicket(1))
		x = mustNew(t, d, nil)
		m = &testkit.Model{}
		send(t, m, x, m.Batch(1, 32, batch.Meta{}))
		time.Sleep(10 * time.Hour)
		if a := balance(t, m, x); a.Pending.Inflight != 1 {
			t.Error(a)
		}
		send(t, m, x, m.Batch(1, 32, batch.Meta{})) // a good record provides the evidence
		time.Sleep(10 * time.Minute)
		if a := balance(t, m, x); a.Delivered != 1 || a.Dropped[batch.Poison] != 1 {
			t.Error(a)
		}
		mustClose(t, x)
	})
}

// Many bad records are found and dropped in less than half a minute each, and all good records are
// delivered.
func TestManyPoison(t *testing.T) {
	seed := testkit.Seed(t)
	for i, tt := range []struct {
		name string
		bad  func(i uint64) bool
		n    uint64
		most time.Duration
	}{
		{"scattered", func(i uint64) bool { return i%37 == 5 }, 54, 15 * time.Minute},
		{"in a row", func(i uint64) bool { return i > 500 && i <= 550 }, 50, 15 * time.Minute},
		{"from the beginning", func(i uint64) bool { return i <= 40 }, 40, 150 * time.Minute}, // no evidence exists before the first good record
		{"more than may be suspected", func(i uint64) bool { return i%13 == 5 }, 154, 60 * time.Minute},
	} {
		for j, window := range []int{1, 4} {
			if !testkit.Share(seed, i+j, 2) {
				continue
			}
			t.Run(fmt.Sprintf("%s,window=%d", tt.name, window), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					dead := &handlerLog{}
					d := endingPeer(window, func(r batch.Record) bool { return tt.bad(r.Ticket) })
					x := mustNew(t, d, &Options{DeadLetter: dead, spill: &testkit.Spill{}})
					m := &testkit.Model{}
					began := time.Now()
					for range 40 {
						send(t, m, x, m.Batch(50, 32, batch.Meta{}))
					}
					for range 200 {
						if x.Account().Pending.Total() == 0 {
							break
						}
						time.Sleep(time.Minute)
					}
					if a := balance(t, m, x); a.Dropped[batch.Poison] != tt.n || a.Delivered != 2000-tt.n {
						t.Errorf("after %s: %s", time.Since(began), a)
					}
					if took := time.Since(began); took > tt.most {
						t.Errorf("%d of 2000 took %s", tt.n, took)
					}
					if n := uint64(len(stored(d))); n != 2000-tt.n {
						t.Errorf("%d stored", n)
					}
					d.check(t, 0)
					mustClose(t, x)
					if n := uint64(len(dead.all())); n != tt.n {
						t.Errorf("%d dead letters", n)
					}
				})
			})
		}
	}
}

// If a server accepts only every nth message and ends the session at all others, no record is
// dropped, because the server is at fault.
func TestEveryNthMessage(t *testing.T) {
	for n := 2; n <= 5; n++ {
		for _, window := range []int{1, 3} {
			for _, phase := range []bool{false, true} { // whether the message count continues in the next session
				t.Run(fmt.Sprintf("n=%d,window=%d,phase=%t", n, window, phase), func(t *testing.T) {
					bubble.Test(t, func(t *testing.T) {
						well := false
						count := 0
						d := newPeer(window, testkit.Rand(1), 0)
						d.fault = func(int, *batch.Batch) fault {
							if count++; well || count%n == 0 {
								return fault{}
							}
							return fault{kind: resets}
						}
						if phase {
							d.cannot = func() error { count += n - 2; return nil }
						}
						testFailingServer(t, d, func() { well = true })
					})
				})
			}
		}
	}
}

// If a server ends the session at random, at more than half of the batches, for a quarter of an
// hour, no record is dropped.
func TestRandomResets(t *testing.T) {
	for _, p := range []float64{0.6, 0.7, 0.8, 0.9, 0.95} {
		for _, window := range []int{1, 4} {
			t.Run(fmt.Sprintf("%v,window=%d", p, window), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					rng := testkit.Rand(testkit.Seed(t))
					for range testkit.Rounds(t, 5, 500) {
						well := false
						d := newPeer(window, rng, 10*time.Millisecond)
						d.fault = func(_ int, b *batch.Batch) fault {
							if well || rng.Float64() >= p {
								return fault{}
							}
							return fault{kind: resets, n: rng.IntN(b.Len() + 1)}
						}
						testFailingServer(t, d, func() { well = true })
					}
				})
			})
		}
	}
}

// testFailingServer sends records to the failing server d for a while, then calls recover and
// checks that all records are delivered and none is dropped.
func testFailingServer(t *testing.T, d *peer, recover func()) {
	t.Helper()
	dead := &handlerLog{}
	x := mustNew(t, d, &Options{DeadLetter: dead, spill: &testkit.Spill{}})
	m := &testkit.Model{}
	for range 90 {
		send(t, m, x, m.Batch(5, 32, batch.Meta{}))
		time.Sleep(10 * time.Second)
		if x.Stats().Dropped[batch.Poison] > 0 {
			t.Fatalf("condemned %v although the server is at fault: %s", dead.all(), x.Account())
		}
	}
	d.mu.Lock()
	recover()
	d.mu.Unlock()
	for range 30 {
		if x.Account().Pending.Total() == 0 {
			break
		}
		time.Sleep(time.Minute)
	}
	mustBalance(t, m, x, 450)
	if got := stored(d); !slices.Equal(got, expect(450)) {
		t.Fatalf("%d stored", len(got))
	}
	d.check(t, 0)
	mustClose(t, x)
}

// A record is suspected of ending sessions, but the destination finally accepts it. It is not
// dropped, and is delivered once.
func TestSuspectThatIsAccepted(t *testing.T) {
	for _, after := range []time.Duration{5 * time.Second, 15 * time.Second, 25 * time.Second} {
		bubble.Test(t, func(t *testing.T) {
			began := time.Now()
			d := endingPeer(1, func(r batch.Record) bool { return r.Ticket == 33 && time.Since(began) < after })
			x := mustNew(t, d, nil)
			m := &testkit.Model{}
			for range 5 {
				send(t, m, x, m.Batch(20, 32, batch.Meta{}))
			}
			time.Sleep(4 * time.Second)
			if a := x.Account(); a.Delivered != 99 {
				t.Errorf("the others wait: %s", a)
			}
			time.Sleep(time.Minute)
			mustBalance(t, m, x, 100)
			if n := len(slices.DeleteFunc(d.Got(), func(k uint64) bool { return k != 33 })); n != 1 {
				t.Errorf("%d copies", n)
			}
			mustClose(t, x)
		})
	}
}

// A record that is suspected of ending sessions stays parked during outages of the destination.
// Finally, only the bad record is dropped.
func TestSuspectBesideAnOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		down := false
		d := endingPeer(1, hasTicket(7))
		d.cannot = func() error {
			if down {
				return testkit.ErrDown
			}
			return nil
		}
		kill := d.fault
		d.fault = func(call int, b *batch.Batch) fault {
			if down {
				return fault{kind: resets}
			}
			return kill(call, b)
		}
		x := mustNew(t, d, &Options{spill: &testkit.Spill{}})
		m := &testkit.Model{}
		set := func(on bool) { d.mu.Lock(); down = on; d.mu.Unlock() }
		for i := range 30 {
			set(i%2 == 1)
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
			time.Sleep(5 * time.Second)
		}
		set(true)
		for range 60 {
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
			time.Sleep(time.Minute)
		}
		before := balance(t, m, x).Dropped[batch.Poison]
		set(false)
		time.Sleep(10 * time.Minute)
		if a := balance(t, m, x); a.Delivered != 899 || a.Dropped[batch.Poison] != 1 || a.Pending.Total() != 0 {
			t.Errorf("%d were condemned in the outage, in the end %s", before, a)
		}
		if !slices.Equal(stored(d), expect(900, 7)) {
			t.Errorf("stored %v", stored(d))
		}
		mustClose(t, x)
	})
}

// A parked record that is suspected of ending sessions may also be handled, expire, be moved to the
// spool, be dropped, or stay in the log at Close. In each case it is counted once.
func TestSuspectIsCountedOnce(t *testing.T) {
	for seed := range testkit.Walks(t, 100) {
		bubble.Test(t, func(t *testing.T) {
			rng := testkit.Rand(seed)
			down := false
			d := newPeer(1+rng.IntN(3), rng, time.Duration(rng.IntN(50))*time.Millisecond)
			d.fault = func(_ int, b *batch.Batch) fault {
				if down && d.rng.IntN(3) > 0 {
					return fault{kind: resets}
				}
				for _, rec := range b.All() {
					if rec.Ticket%7 == 3 {
						return fault{kind: resets}
					}
				}
				return fault{}
			}
			d.cannot = func() error {
				if down && d.rng.IntN(2) == 0 {
					return testkit.ErrDown
				}
				return nil
			}
			o := &Options{Breaker: &BreakerOptions{Failures: 1 + rng.IntN(8)}}
			if rng.IntN(2) == 0 {
				o.Handler, o.PendingLimit = &handlerLog{answer: func(call int, _ *batch.Batch, err error) batch.Outcome {
					if call%2 == 0 {
						return batch.FailedOutcome(err)
					}
					return batch.Outcome{}
				}}, rng.IntN(20)
			}
			if rng.IntN(2) == 0 {
				o.spill = &testkit.Spill{}
			}
			if rng.IntN(2) == 0 {
				o.Retry = &RetryOptions{MaxAge: time.Duration(1+rng.IntN(60)) * time.Second}
			}
			x := mustNew(t, d, o)
			if o.spill != nil && rng.IntN(2) == 0 {
				defer fullAtRandom(t, x, rng)()
			}
			m := &testkit.Model{}
			p := logFor(x, logKinds[rng.IntN(2)])
			var held uint64
			for range 10 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rng.IntN(60))*time.Second)
				b := m.Batch(1+rng.IntN(10), 32, batch.Meta{Time: time.Now().UnixNano()})
				if rest := m.Sent(b, p.Send(ctx, b)); rest != nil {
					held += uint64(rest.Len())
				}
				cancel()
				time.Sleep(time.Duration(rng.IntN(10)) * time.Second)
				d.mu.Lock()
				down = rng.IntN(2) == 0
				d.mu.Unlock()
				if _, err := m.Account(x.Account(), held); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if rng.IntN(2) == 0 {
				d.mu.Lock()
				down = false
				d.mu.Unlock()
				time.Sleep(20 * time.Minute)
				if a, err := m.Account(x.Account(), held); err != nil || a.Pending.Total() != held && a.Delivered > 0 { // no evidence exists without a delivered record
					t.Fatalf("seed %d: %v, held %d: %s", seed, err, held, a)
				}
			}
			r, _ := shutdown(x, time.Duration(rng.IntN(5000))*time.Millisecond)
			if a, err := m.Account(r.Account, held); err != nil || a.Pending.Inflight != p.unsettled() {
				t.Fatalf("seed %d: %v: %s", seed, err, a)
			}
			d.check(t, seed)
		})
	}
}

// Bad records in the spool are also found and dropped.
func TestPoisonInTheSpool(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		old := &testkit.Model{}
		for range 20 {
			if _, err := store.Append(old.Batch(10, 32, batch.Meta{})); err != nil {
				t.Fatal(err)
			}
		}
		store.Reopen()
		d := endingPeer(3, hasTicket(55, 56, 120))
		x := mustNew(t, d, &Options{spill: store})
		time.Sleep(10 * time.Minute)
		if a := x.Account(); a.Check() != nil || a.Recovered != 200 || a.Delivered != 197 || a.Dropped[batch.Poison] != 3 {
			t.Error(a)
		}
		if got := firstCopies(d.Got()); !slices.Equal(got, expect(200, 55, 56, 120)) {
			t.Errorf("got %v", got)
		}
		mustClose(t, x)
	})
}

// Close moves records that are suspected of ending sessions to the spool, or counts them as dropped
// if there is no spool.
func TestSuspectAtShutdown(t *testing.T) {
	for _, spill := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			o := &Options{}
			if spill {
				o.spill = &testkit.Spill{}
			}
			x := mustNew(t, endingPeer(1, hasTicket(7)), o)
			m := &testkit.Model{}
			send(t, m, x, m.Batch(10, 32, batch.Meta{}))
			time.Sleep(8 * time.Second)
			r, err := shutdown(x, 2*time.Second)
			a, bad := m.Account(r.Account, 0)
			if bad != nil || a.Delivered != 9 || spill && (err != nil || a.Pending.Spill != 1) || !spill && (err == nil || a.Dropped[batch.Shutdown] != 1) {
				t.Errorf("%v, %v: %s", err, bad, a)
			}
		})
	}
}

// A server that fails at all records from the start, for hours, does not change their order, except
// for one record: without an accepted record nothing shows whether the server or a record is at fault.
func TestServerErrorsFromTheStartKeepOrder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Return(batch.Outcome{Open: batch.All(), Why: testkit.ErrDown, Advice: batch.ServerError}))
		x := mustNew(t, destOf(sink), &Options{spill: &testkit.Spill{}})
		for i := range uint64(200) {
			if err := x.Send(t.Context(), ofTicket(i+1)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Hour)
		sink.Answer(nil)
		time.Sleep(10 * time.Minute)
		late, last := 0, uint64(0)
		all := firstCopies(sink.Got())
		for _, ticket := range all {
			if ticket < last {
				late++
			}
			last = max(last, ticket)
		}
		if len(all) != 200 || late > 1 {
			t.Errorf("%d records have arrived, %d of them late: %v", len(all), late, all)
		}
		mustClose(t, x)
	})
}

// ofTicket returns a batch with one record that has the given ticket.
func ofTicket(ticket uint64) *batch.Batch {
	var b batch.Batch
	b.Append([]byte("x\n"), ticket, batch.Meta{})
	return &b
}

// If the storage behind one stream is full, the server ends the session at every record of that
// stream, and accepts all other streams. No record of the full stream is dropped. The other streams
// are delivered, and the full stream is delivered when there is room again. A bad record of an
// accepted stream is nevertheless dropped as poison.
func TestOneStreamRefused(t *testing.T) {
	for _, window := range []int{1, 4} {
		bubble.Test(t, func(t *testing.T) {
			dead := &handlerLog{}
			var full atomic.Bool
			full.Store(true)
			d := newPeer(window, testkit.Rand(1), 0)
			d.fault = func(_ int, b *batch.Batch) fault {
				for _, rec := range b.All() {
					if rec.Stream == 2 && full.Load() || rec.Ticket == 100 {
						return fault{kind: resets}
					}
				}
				return fault{}
			}
			x := mustNew(t, d, &Options{DeadLetter: dead})
			m := &testkit.Model{}
			for i := range 300 {
				send(t, m, x, ofStream(m, 1, uint32(1+i%2)))
				time.Sleep(time.Second)
				if n := len(stored(d)); i%20 == 0 && n < i/2-10 {
					t.Fatalf("window %d: %d of %d records of the other stream arrived: %v", window, n, i/2, x.Account())
				}
			}
			if a := x.Account(); a.Dropped.Total() > 0 || a.Delivered != 150 {
				t.Errorf("window %d, while it is full: %v, %v", window, a, dead.all())
			}
			full.Store(false)
			time.Sleep(10 * time.Minute)
			if a := x.Account(); a.Delivered != 299 || a.Dropped[batch.Poison] != 1 {
				t.Errorf("window %d: %v, %v", window, a, dead.all())
			}
			if n := len(dead.all()); n != 1 {
				t.Errorf("%d dead letters", n)
			}
			mustClose(t, x)
		})
	}
}

// If a destination stops answering at the records of one stream, the other streams wait 30 s for
// each of two suspects and for each retry of the silent stream. In total they wait one sixth of the
// time. No record is dropped.
func TestOneStreamSilent(t *testing.T) {
	const silence, n = 30 * time.Second, 1200
	for _, window := range []int{1, 4} {
		bubble.Test(t, func(t *testing.T) {
			var full atomic.Bool
			d := &mute{streams: newStreams(window), at: func(rec batch.Record) bool { return rec.Stream == 2 && full.Load() }, d: silence}
			x := mustNew(t, d, nil)
			m := &testkit.Model{}
			var most time.Duration
			first := time.Now()
			for i := range n {
				full.Store(i > 100)
				posted := m.Accepted()
				began := time.Now()
				send(t, m, x, ofStream(m, 1, uint32(1+i%2)))
				if i%2 == 0 {
					go func() {
						for !slices.Contains(d.Got(), posted+1) {
							time.Sleep(time.Second)
						}
						d.mu.Lock()
						defer d.mu.Unlock()
						most = max(most, time.Since(began))
					}()
				}
				time.Sleep(time.Second)
			}
			d.mu.Lock()
			lost := time.Since(first) - n*time.Second
			if most > 5*silence/2 || lost > n*time.Second/5 {
				t.Errorf("window %d: others waited %s at most, %s in all", window, most, lost)
			}
			d.mu.Unlock()
			if a := x.Account(); a.Dropped.Total() > 0 {
				t.Errorf("window %d: %v", window, a)
			}
			full.Store(false)
			time.Sleep(20 * time.Minute)
			mustBalance(t, m, x, n)
			for stream := range uint64(2) {
				of := slices.DeleteFunc(d.Got(), func(k uint64) bool { return k%2 != stream })
				if len(slices.Compact(slices.Sorted(slices.Values(of)))) != n/2 {
					t.Errorf("window %d, stream %d: %d records", window, stream, len(of))
				}
			}
			mustClose(t, x)
		})
	}
}

// mute is the destination streams, but its sessions stop answering at certain records, and end
// after the time d.
type mute struct {
	*streams
	at func(batch.Record) bool
	d  time.Duration
}

func (d *mute) Open(l Life) (Session, error) {
	s, err := d.streams.Open(l)
	return &muteSession{Session: s, l: l, of: d}, err
}

type muteSession struct {
	Session
	l    Life
	of   *mute
	gone atomic.Bool
}

func (s *muteSession) Send(b *batch.Batch) error {
	for _, rec := range b.All() {
		if s.of.at(rec) && !s.gone.Swap(true) {
			time.AfterFunc(s.of.d, func() { s.l.End(testkit.ErrDown) })
		}
	}
	if s.gone.Load() {
		return nil
	}
	return s.Session.Send(b)
}

// A server accepts only records of up to 32 KiB, and ends the session or stops answering at a
// larger record. Each larger record is dropped as poison within half an hour, and no other record
// is dropped. This holds even if all other records are larger than the usual reference record of a
// few kilobytes.
func TestSizeThatIsNotAccepted(t *testing.T) {
	const most = 32 << 10
	for _, silent := range []bool{false, true} {
		for _, usual := range []int{100, 8 << 10} {
			t.Run(fmt.Sprintf("silent=%t,usual=%d", silent, usual), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					tooLarge := func(rec batch.Record) bool { return len(rec.Data) > most }
					var d Destination = endingPeer(1, tooLarge)
					if silent {
						d = &mute{streams: newStreams(1), at: tooLarge, d: 30 * time.Second}
					}
					dead := &handlerLog{}
					x := mustNew(t, d, &Options{DeadLetter: dead, spill: &testkit.Spill{}})
					m := &testkit.Model{}
					for i := range 200 {
						size := usual
						if i == 70 || i == 140 {
							size = most + 1
						}
						send(t, m, x, m.Batch(1, size, batch.Meta{}))
						time.Sleep(time.Second)
					}
					time.Sleep(30 * time.Minute)
					if a := balance(t, m, x); a.Delivered != 198 || a.Dropped[batch.Poison] != 2 || a.Pending.Total() != 0 {
						t.Error(a)
					}
					if got := dead.all(); !slices.Equal(got, []uint64{71, 141}) {
						t.Errorf("condemned %v", got)
					}
					mustClose(t, x)
				})
			})
		}
	}
}
