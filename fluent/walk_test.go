package fluent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// A randomWalk posts records through one to three Loggers, one after another, to servers that fail
// at random. It stores which records were accepted and which arrived.
type randomWalk struct {
	t    *testing.T
	seed uint64
	rng  *rand.Rand
	c    testConfig

	mu       sync.Mutex
	dice     *rand.Rand // of the servers
	good     bool       // the servers no longer fail
	down     map[string]bool
	arrived  map[int]bool
	copies   map[string][]int // records by tag, in the order of arrival
	handled  map[int]bool
	suspects map[int]bool
	accepted []int
	next     int
}

func (k *randomWalk) errorf(format string, args ...any) {
	k.t.Helper()
	k.t.Errorf("FOREBAY_SEED=%d: %s", k.seed, fmt.Sprintf(format, args...))
}

// roll returns a random number below n or, after the servers have been repaired, -1.
func (k *randomWalk) roll(n int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.good {
		return -1
	}
	return k.dice.IntN(n)
}

func (k *randomWalk) setDown(name string, down bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.down[name] = down
}

// suspect marks record n. It was the only record of a message that was not acknowledged
// immediately. Package deliver may suspect that the record is the cause and send it later, so it
// may arrive out of order.
func (k *randomWalk) suspect(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.suspects[n] = true
}

// arrive marks the records of a message as arrived.
func (k *randomWalk) arrive(m *testkit.ForwardMessage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range m.Entries {
		n := recordNumber(e)
		k.arrived[n] = true
		k.copies[m.Tag] = append(k.copies[m.Tag], n)
	}
}

// inOrder fails the test unless the first copies of the records of each tag arrived in the order of
// Post. Suspects are ignored.
func (k *randomWalk) inOrder() {
	for tag, ns := range k.copies {
		seen, most := map[int]bool{}, -1
		for _, n := range ns {
			if !seen[n] && n < most && !k.suspects[n] {
				k.errorf("%s: the first copy of record %d arrived after that of %d", tag, n, most)
			}
			seen[n], most = true, max(most, n)
		}
	}
}

// serve handles one connection to a server. At random it accepts, loses or delays messages.
func (k *randomWalk) serve(_ int, c *testkit.ForwardConn) {
	var held []string
	for {
		m, err := c.Next()
		if err != nil {
			return
		}
		roll := k.roll(20)
		if len(m.Entries) == 1 && roll >= 0 && roll < 9 {
			k.suspect(recordNumber(m.Entries[0]))
		}
		switch roll {
		case 0: // the server loses the message and closes the connection
			return
		case 1: // the server stores the message and closes the connection
			k.arrive(m)
			return
		case 2:
			k.arrive(m)
			if c.Ack("unknown id") != nil {
				return
			}
		case 3:
			_, _ = c.Write([]byte("\xc1garbage"))
			return
		case 4: // the server stores the message and does not acknowledge it
			k.arrive(m)
		case 5, 6: // the server acknowledges the message later
			k.arrive(m)
			held = append(held, m.Chunk)
			continue
		case 7:
			k.arrive(m)
			time.Sleep(3 * time.Second)
			held = append(held, m.Chunk)
		case 8:
			k.arrive(m)
			held = append(held, m.Chunk, m.Chunk)
		default:
			k.arrive(m)
			held = append(held, m.Chunk)
		}
		for _, id := range held {
			if id != "" && c.Ack(id) != nil {
				return
			}
		}
		held = held[:0]
	}
}

// options chooses the Config at random.
func (k *randomWalk) options() {
	r := k.rng
	k.c = testConfig{
		Config: Config{
			Servers:    []string{"a", "b"}[:1+r.IntN(2)],
			Window:     1 + r.IntN(5),
			FrameBytes: 100 << r.IntN(5),
			AckTimeout: 2 * time.Second,
			Failback:   5 * time.Second,
		},
		SlabBytes:     1 << (9 + r.IntN(4)),
		FlushInterval: time.Millisecond,
		MaxRecord:     4000,
		CloseTimeout:  time.Hour,
		WhenFull:      []string{"block", "drop-newest", "drop-oldest", "block-for=10ms"}[r.IntN(4)],
		Retry:         &deliver.RetryOptions{Min: time.Millisecond, Max: 100 * time.Millisecond},
		OnError:       func(batch.Event) {},
	}
	c := &k.c
	c.BufferBytes = c.SlabBytes * (2 + r.IntN(6))
	if r.IntN(2) == 0 {
		c.SpoolDir = k.t.TempDir()
		if r.IntN(2) == 0 {
			c.WhenFull = "spill"
		}
	}
	if r.IntN(2) == 0 {
		c.CrashDir = k.t.TempDir()
	}
	if r.IntN(3) == 0 {
		c.Compress = "gzip"
	} else if r.IntN(3) == 0 {
		c.Mode = []string{modeForward, modeMessage}[r.IntN(2)]
	}
	if len(c.Servers) == 2 {
		switch r.IntN(4) {
		case 0:
			c.Weights = []int{1 + r.IntN(3), 1 + r.IntN(3)}
		case 1:
			c.Servers, c.Standby = c.Servers[:1], c.Servers[1:]
		}
		c.Heartbeat = time.Duration(r.IntN(3)-1) * 300 * time.Millisecond // 0: the default
	}
	if r.IntN(3) == 0 {
		c.PendingLimit = r.IntN(20)
		c.ErrorHandler = deliver.ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome {
			k.mu.Lock()
			defer k.mu.Unlock()
			for _, rec := range b.All() {
				k.handled[recordNumber(rec.Data)] = true
			}
			return batch.Outcome{}
		})
	}
}

// runLogger posts records through one Logger and closes it after a random time. The last Logger has
// enough time to deliver everything.
func (k *randomWalk) runLogger(dial func(context.Context, string, string) (net.Conn, error), last bool) (a batch.Account) {
	c := k.c
	c.Dial = dial
	l, err := c.logger()
	if err != nil {
		k.t.Fatal(err)
	}
	for range 60 {
		switch k.rng.IntN(12) {
		case 0:
			time.Sleep(time.Duration(k.rng.IntN(3000)) * time.Millisecond)
		case 1:
			name := []string{"a", "b"}[k.rng.IntN(2)]
			k.setDown(name, k.rng.IntN(2) == 0)
			// The servers are repaired within a minute. A Post may wait for them, and no record may
			// reach the maximum age of a day.
			time.AfterFunc(time.Duration(k.rng.IntN(60))*time.Second, func() { k.setDown(name, false) })
		case 2:
			ctx, cancel := context.WithTimeout(k.t.Context(), time.Duration(k.rng.IntN(100))*time.Millisecond)
			_ = l.Flush(ctx)
			cancel()
		default:
			size := k.rng.IntN(200)
			if k.rng.IntN(30) == 0 {
				size = k.rng.IntN(3500)
			}
			switch err := l.Post([]string{"x", "y"}[k.rng.IntN(2)], struct {
				N    int    `json:"n"`
				Text string `json:"text"`
			}{k.next, strings.Repeat("x", size)}); {
			case err == nil:
				k.accepted = append(k.accepted, k.next)
			case !errors.Is(err, slab.ErrDropped):
				k.errorf("%v", err)
			}
			k.next++
		}
		synctest.Wait()
		if a := l.Account(); a.Check() != nil {
			k.errorf("%v: %v", a.Check(), a)
		}
	}
	patience := time.Duration(k.rng.IntN(20)) * 100 * time.Millisecond
	if last {
		k.mu.Lock()
		k.good = true
		clear(k.down)
		k.mu.Unlock()
		time.Sleep(time.Hour)
		patience = time.Hour
	}
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	_, err = l.Close(ctx)
	synctest.Wait()
	a = l.Account()
	if a.Check() != nil || last && a.Pending.Total() > 0 {
		k.errorf("after Close: %v, %v", a, err)
	}
	return a
}

func (k *randomWalk) run() {
	f := &testkit.Forward{Script: k.serve}
	defer f.Close()
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		k.mu.Lock()
		down := k.down[addr[:1]]
		k.mu.Unlock()
		if down {
			return nil, errors.New("connection refused")
		}
		return f.Dial(ctx, network, addr)
	}
	k.options()
	dropped := batch.Drops{}
	loggers := 1 + k.rng.IntN(3)
	for i := range loggers {
		a := k.runLogger(dial, i == loggers-1)
		for reason, n := range a.Dropped {
			dropped[reason] += n
		}
		if k.t.Failed() {
			return
		}
	}
	// A dropped record may have arrived before and is not sent again, which changes the order.
	if dropped.Total() == 0 {
		k.inOrder()
	}
	lost := 0
	for _, n := range k.accepted {
		if !k.arrived[n] && !k.handled[n] {
			lost++
		}
	}
	if uint64(lost) > dropped.Total() {
		k.errorf("%d of %d records are lost, %v dropped", lost, len(k.accepted), dropped)
	}
}

// Even if servers fail at random, every record that Post has accepted is counted as dropped or
// arrives, in order within its tag.
func TestWalk(t *testing.T) {
	for seed := range testkit.Walks(t, 24) {
		bubble.Test(t, func(t *testing.T) {
			k := &randomWalk{t: t, seed: seed, rng: testkit.Rand(seed), dice: testkit.Rand(seed + 1<<32),
				down: map[string]bool{}, arrived: map[int]bool{}, copies: map[string][]int{}, handled: map[int]bool{}, suspects: map[int]bool{}}
			k.run()
		})
	}
}
