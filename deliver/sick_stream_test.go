package deliver

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A destination refuses most records of one stream at random, and accepts another stream. Finally
// it accepts the first stream again. By then none of the records of that stream was dropped, except
// one bad record. The other stream is delivered all the time.
func TestOneStreamRefusedAtRandom(t *testing.T) {
	seed := testkit.Seed(t)
	for i, tt := range []struct {
		p      float64
		window int
	}{{0.5, 4}, {0.8, 1}, {0.95, 4}, {0.98, 1}, {0.98, 4}} {
		if !testkit.Share(seed, i, 5) {
			continue
		}
		t.Run(fmt.Sprintf("%v,window=%d", tt.p, tt.window), func(t *testing.T) {
			for range testkit.Rounds(t, 1, 20) {
				bubble.Test(t, func(t *testing.T) {
					const n = 1200
					rng := testkit.Rand(testkit.Seed(t))
					well := false
					d := newPeer(tt.window, rng, 0)
					d.fault = func(_ int, b *batch.Batch) fault {
						for _, rec := range b.All() {
							if rec.Ticket == 600 || rec.Stream == 2 && !well && d.rng.Float64() < tt.p {
								return fault{kind: resets}
							}
						}
						return fault{}
					}
					dead := &handlerLog{}
					x := mustNew(t, d, &Options{DeadLetter: dead, spill: &testkit.Spill{}})
					m := &testkit.Model{}
					for i := range n {
						send(t, m, x, ofStream(m, 1, uint32(1+i%2)))
						time.Sleep(10 * time.Minute / n)
					}
					if got := dead.all(); len(got) > 1 || len(got) == 1 && got[0] != 600 {
						t.Errorf("condemned %v", got)
					}
					time.Sleep(2 * time.Minute)
					healthy := 0
					for _, k := range stored(d) {
						if k%2 == 1 {
							healthy++
						}
					}
					if healthy < n/4 {
						t.Errorf("%d of %d records of the healthy stream arrived", healthy, n/2)
					}
					d.mu.Lock()
					well = true
					d.mu.Unlock()
					time.Sleep(2 * time.Hour)
					if a := x.Account(); a.Delivered != n-1 || a.Dropped[batch.Poison] != 1 || !slices.Equal(dead.all(), []uint64{600}) {
						t.Errorf("in the end %s: %v", a, dead.all())
					}
					mustClose(t, x)
				})
			}
		})
	}
}

// The destination does not accept several streams for an hour and a half, and one record of another
// stream is bad. Within that time only the bad record is dropped. Streams that the destination
// accepts are not delayed.
func TestStreamsFullForHours(t *testing.T) {
	windows := []int{1, 4}
	if testkit.Scale(1, 2) == 1 {
		at := testkit.Seed(t) % 2
		windows = windows[at : at+1]
	}
	for _, window := range windows {
		bubble.Test(t, func(t *testing.T) {
			full := true
			const streams = 6 // stream 1 is accepted, 2 to 5 are full, 6 has a single bad record
			d := newPeer(window, testkit.Rand(1), 0)
			d.fault = func(_ int, b *batch.Batch) fault {
				for _, rec := range b.All() {
					if full && rec.Stream > 1 && rec.Stream < streams || rec.Stream == streams {
						return fault{kind: resets}
					}
				}
				return fault{}
			}
			dead := &handlerLog{}
			x := mustNew(t, d, &Options{DeadLetter: dead})
			m := &testkit.Model{}
			const minutes = 90
			var quiet, n, healthy uint64
			for i := range minutes {
				if i == 10 {
					send(t, m, x, ofStream(m, 1, streams))
					quiet = m.Accepted()
				}
				for stream := range uint32(streams - 1) {
					send(t, m, x, ofStream(m, 1, 1+stream))
					n++
				}
				healthy++
				time.Sleep(time.Minute)
				if got := uint64(len(stored(d))); got+5 < healthy {
					t.Fatalf("window %d: after %d min %d records arrived: %v", window, i, got, x.Account())
				}
			}
			if got := dead.all(); !slices.Equal(got, []uint64{quiet}) {
				t.Errorf("window %d: condemned %v, wanted %d", window, got, quiet)
			}
			d.mu.Lock()
			full = false
			d.mu.Unlock()
			time.Sleep(time.Hour)
			mustBalanceBut(t, m, x, n)
			mustClose(t, x)
		})
	}
}

// mustBalanceBut checks that n records are delivered, one is dropped as poison and none is pending.
func mustBalanceBut(t *testing.T, m *testkit.Model, x *outlet, n uint64) {
	t.Helper()
	if a := balance(t, m, x); a.Delivered != n || a.Dropped[batch.Poison] != 1 || a.Pending.Total() != 0 {
		t.Errorf("want %d delivered: %s", n, a)
	}
}
