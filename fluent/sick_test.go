package fluent

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// An ailment makes a server take some messages only. It says what becomes of one.
type ailment func(rng *rand.Rand, n int, m *testkit.ForwardMessage) fate

type fate uint8

const (
	taken  fate = iota
	ended       // the connection ends, nothing is stored
	stored      // … and it is stored
	silent      // the server hangs
)

func dice(p float64, f fate) ailment {
	return func(rng *rand.Rand, _ int, _ *testkit.ForwardMessage) fate {
		if rng.Float64() < p {
			return f
		}
		return taken
	}
}

var ailments = map[string]ailment{
	"resets 60 %":     dice(0.6, ended),
	"resets 80 %":     dice(0.8, ended),
	"resets 95 %":     dice(0.95, ended),
	"silent 30 %":     dice(0.3, silent),
	"stores, resets":  dice(0.7, stored),
	"full disk":       func(*rand.Rand, int, *testkit.ForwardMessage) fate { return ended },
	"takes every 2nd": func(_ *rand.Rand, n int, _ *testkit.ForwardMessage) fate { return fate(min(1, n%2)) },
	"takes every 4th": func(_ *rand.Rand, n int, _ *testkit.ForwardMessage) fate { return fate(min(1, n%4)) },
	"takes every 7th": func(_ *rand.Rand, n int, _ *testkit.ForwardMessage) fate { return fate(min(1, n%7)) },
	// What fits into the page that is begun still does.
	"nearly full disk": func(rng *rand.Rand, _ int, m *testkit.ForwardMessage) fate {
		if m.Payload > rng.IntN(4<<10) {
			return ended
		}
		return taken
	},
	"all of it": func(rng *rand.Rand, n int, m *testkit.ForwardMessage) fate {
		return fate(rng.IntN(4)) * fate(min(1, rng.IntN(10)))
	},
}

// Ten minutes of a server that is ill condemn nothing: everything arrives, and the first
// copies in order, but for suspects, which are counted. One record that is really bad is
// found nevertheless, alone.
func TestSickServer(t *testing.T) {
	seed := testkit.Seed(t)
	for name, ill := range ailments {
		t.Run(name, func(t *testing.T) {
			for round := range testkit.Rounds(1, 60) {
				poison := (seed+uint64(round))%2 == 0 // two rounds of a long run cover both
				bubble.Test(t, func(t *testing.T) { sickServer(t, seed+uint64(round), ill, poison) })
				if t.Failed() {
					t.Fatalf("FOREBAY_SEED=%d", seed+uint64(round))
				}
			}
		})
	}
}

func sickServer(t *testing.T, seed uint64, ill ailment, poison bool) {
	const bad = 1234
	n := testkit.Rounds(2000, 4000)
	var r received
	var mu sync.Mutex // guards rng and count
	rng, count := testkit.Rand(seed), 0
	var well atomic.Bool
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
		for {
			m, err := c.Next()
			if err != nil {
				return
			}
			if slices.ContainsFunc(m.Entries, func(e []byte) bool { return bytes.Contains(e, []byte("BAD")) }) {
				return
			}
			what := taken
			mu.Lock()
			if count++; !well.Load() {
				what = ill(rng, count, m)
			}
			mu.Unlock()
			if what == taken || what == stored {
				r.add(m)
			}
			if what == silent { // and so is what comes after it
				_, _ = io.Copy(io.Discard, c)
				return
			}
			if what == ended || what == stored || what == taken && c.Ack(m.Chunk) != nil {
				return
			}
		}
	}}
	defer f.Close()
	var letters bytes.Buffer
	l := newTestLogger(t, testConfig{
		Config: Config{
			Dial:       f.Dial,
			FrameBytes: 4 << 10,
			AckTimeout: 5 * time.Second,
		},
		SpoolDir:    t.TempDir(),
		WhenFull:    "spill",
		BufferBytes: 256 << 10,
		DeadLetter:  deliver.DeadLetters(&letters, "forward"),
	})
	sizes := testkit.Rand(seed + 1)
	for i := range n {
		text := fmt.Sprintf("%0*d", 1+sizes.IntN(200), i)
		if poison && i == bad {
			text = "BAD"
		}
		if err := l.Post("x", numbered{i, text}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute / time.Duration(n))
	}
	want := uint64(n)
	if poison {
		want--
	}
	if a := l.Account(); a.Dropped.Total() > uint64(n)-want {
		t.Errorf("while it is ill: %s", a)
	}
	well.Store(true)
	time.Sleep(time.Hour)
	a, st := l.Account(), l.Output.Stats().Deliver
	if a.Delivered != want || a.Dropped[batch.Poison] != uint64(n)-want || a.Dropped.Total() != uint64(n)-want || a.Pending.Total() != 0 {
		t.Errorf("poison %v: %s", poison, a)
	}
	late, top := uint64(0), -1
	got := r.firstCopies("x")
	for _, k := range got {
		if k < top {
			late++
		}
		top = max(top, k)
	}
	if uint64(len(got)) != want || late > st.Suspects {
		t.Errorf("poison %v: %d of %d arrived, %d late, %d suspects", poison, len(got), want, late, st.Suspects)
	}
	closeLogger(t, l)
}
