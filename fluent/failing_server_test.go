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

// A failureMode is a server that accepts only some messages. The function returns the reaction of
// the server to message number n.
type failureMode func(rng *rand.Rand, n int, m *testkit.ForwardMessage) reaction

type reaction uint8

const (
	acked  reaction = iota // the records are stored and acknowledged
	ended                  // the connection ends, and the records are not stored
	stored                 // the records are stored, and the connection ends without an acknowledgement
	silent                 // the server stops reading and answering
)

// randomly returns a failureMode that has the reaction f to a message with probability p.
func randomly(p float64, f reaction) failureMode {
	return func(rng *rand.Rand, _ int, _ *testkit.ForwardMessage) reaction {
		if rng.Float64() < p {
			return f
		}
		return acked
	}
}

var failureModes = map[string]failureMode{
	"resets 60 %":       randomly(0.6, ended),
	"resets 80 %":       randomly(0.8, ended),
	"resets 95 %":       randomly(0.95, ended),
	"silent 30 %":       randomly(0.3, silent),
	"stores, resets":    randomly(0.7, stored),
	"full disk":         func(*rand.Rand, int, *testkit.ForwardMessage) reaction { return ended },
	"accepts every 2nd": func(_ *rand.Rand, n int, _ *testkit.ForwardMessage) reaction { return reaction(min(1, n%2)) },
	"accepts every 4th": func(_ *rand.Rand, n int, _ *testkit.ForwardMessage) reaction { return reaction(min(1, n%4)) },
	"accepts every 7th": func(_ *rand.Rand, n int, _ *testkit.ForwardMessage) reaction { return reaction(min(1, n%7)) },
	// On a nearly full disk, small messages still fit into the last page.
	"nearly full disk": func(rng *rand.Rand, _ int, m *testkit.ForwardMessage) reaction {
		if m.Payload > rng.IntN(4<<10) {
			return ended
		}
		return acked
	},
	"all of it": func(rng *rand.Rand, n int, m *testkit.ForwardMessage) reaction {
		return reaction(rng.IntN(4)) * reaction(min(1, rng.IntN(10)))
	},
}

// A server that fails for ten minutes does not cause good records to be given up. All of them
// arrive, and only records suspected to cause the failure are out of order. A record that really
// ends the connection is given up.
func TestFailingServerCondemnsOnlyPoison(t *testing.T) {
	for name, mode := range failureModes {
		t.Run(name, func(t *testing.T) {
			for seed := range testkit.Walks(t, 1) {
				poison := seed%2 == 0 // two rounds of a long run test both values
				bubble.Test(t, func(t *testing.T) { failingServer(t, seed, mode, poison) })
			}
		})
	}
}

func failingServer(t *testing.T, seed uint64, mode failureMode, poison bool) {
	const bad = 1234
	n := testkit.Scale(1300, 4000)
	var r received
	var mu sync.Mutex // guards rng and count
	rng, count := testkit.Rand(seed), 0
	var healthy atomic.Bool
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
		for {
			m, err := c.Next()
			if err != nil {
				return
			}
			if slices.ContainsFunc(m.Entries, func(e []byte) bool { return bytes.Contains(e, []byte("BAD")) }) {
				return
			}
			what := acked
			mu.Lock()
			if count++; !healthy.Load() {
				what = mode(rng, count, m)
			}
			mu.Unlock()
			if what == acked || what == stored {
				r.add(m)
			}
			if what == silent { // nor does the server respond to later messages of the connection
				_, _ = io.Copy(io.Discard, c)
				return
			}
			if what == ended || what == stored || what == acked && c.Ack(m.Chunk) != nil {
				return
			}
		}
	}}
	defer f.Close()
	var deadLetters bytes.Buffer
	l := newTestLogger(t, testConfig{
		Config: Config{
			Dial:       f.Dial,
			FrameBytes: 4 << 10,
			AckTimeout: 5 * time.Second,
		},
		SpoolDir:    t.TempDir(),
		WhenFull:    "spill",
		BufferBytes: 256 << 10,
		DeadLetter:  deliver.DeadLetters(&deadLetters, "forward"),
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
		t.Errorf("while the server fails: %s", a)
	}
	healthy.Store(true)
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
