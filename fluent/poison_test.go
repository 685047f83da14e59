package fluent

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/testkit"
)

// From Post to the dead letter: one record ends every connection, all others
// arrive in order.
func TestPoisonGoesToTheDeadLetter(t *testing.T) {
	const bad = 321
	var r received
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
		for {
			m, err := c.Next()
			if err != nil {
				return
			}
			if slices.ContainsFunc(m.Entries, func(e []byte) bool { return number1(e) == bad }) {
				return
			}
			r.add(m)
			c.Ack(m.Chunk)
		}
	}}
	var letters bytes.Buffer
	l := newTestLogger(t, Config{
		Servers: []string{listen(t, f)}, DeadLetter: deliver.DeadLetters(&letters, "forward"),
		Retry: &deliver.RetryOptions{Min: time.Millisecond, Max: 2 * time.Millisecond},
	})
	for i := range 1000 {
		if err := l.Post("poison.tag", map[string]any{"n": i}); err != nil {
			t.Fatal(err)
		}
	}
	rep := closeLogger(t, l)
	if rep.Delivered != 999 || rep.Dropped[batch.Poison] != 1 {
		t.Errorf("%s", rep.Account)
	}
	if text := letters.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `"tag":"poison.tag"`) || !strings.Contains(text, `{"n":321}`) {
		t.Errorf("dead letters: %s", text)
	}
	// The last copies of all but the bad one are in order. There may be earlier ones of
	// a batch that was started just before the one in front of it was known to fail.
	seen := map[int]bool{}
	var last []int
	for _, n := range slices.Backward(r.get("poison.tag")) {
		if !seen[n] {
			seen[n] = true
			last = append(last, n)
		}
	}
	slices.Reverse(last)
	want := slices.DeleteFunc(seq(0, 1000), func(n int) bool { return n == bad })
	if !slices.Equal(last, want) {
		t.Errorf("%d records arrived, in order: %v", len(last), slices.IsSorted(last))
	}
}

// Many bad records at the head of a chunk hold up the good ones behind them for a
// bounded time, and all of them are found, with the default Config.
func TestManyBadRecords(t *testing.T) {
	for _, tt := range []struct {
		bad, good int
		pause     time.Duration // between the two: they go in chunks of their own
		within    time.Duration
	}{
		{bad: 1, good: 0, within: 5 * time.Second},
		{bad: 4, good: 96, within: 5 * time.Second},
		{bad: 20, good: 80, within: 10 * time.Second},
		{bad: 300, good: 100, within: 2 * time.Minute},
		{bad: 300, good: 100, pause: 150 * time.Millisecond, within: 2 * time.Minute},
	} {
		t.Run(fmt.Sprintf("%d+%d %s", tt.bad, tt.good, tt.pause), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r received
				f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
					for {
						m, err := c.Next()
						if err != nil || slices.ContainsFunc(m.Entries, func(e []byte) bool { return bytes.Contains(e, []byte("BAD")) }) {
							return
						}
						if !bytes.Contains(m.Entries[0], []byte(controlText)) {
							r.add(m)
						}
						c.Ack(m.Chunk)
					}
				}}
				defer f.Close()
				l := newTestLogger(t, Config{Dial: f.Dial})
				began := time.Now()
				for i := range tt.bad {
					l.Post("x", map[string]any{"n": -i, "x": "BAD"})
				}
				time.Sleep(tt.pause)
				for i := range tt.good {
					l.Post("x", map[string]any{"n": i})
				}
				if err := l.Flush(t.Context()); err != nil {
					t.Error(err)
				}
				took := time.Since(began)
				a := l.Account()
				if a.Delivered != uint64(tt.good) || a.Dropped[batch.Poison] != uint64(tt.bad) || took > tt.within {
					t.Errorf("after %s: %s", took, a)
				}
				if got := r.get("x"); !slices.Equal(got, seq(0, tt.good)) {
					t.Errorf("arrived: %v", got)
				}
				t.Logf("%s, %d connections", took, f.Conns())
				l.Close(context.Background())
			})
		})
	}
}

// A server that ends every connection condemns nothing, however long that lasts.
func TestBrokenServerIsNoPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r received
		var well atomic.Bool
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			if well.Load() {
				r.obedient(c)
				return
			}
			c.Next()
		}}
		defer f.Close()
		l := newTestLogger(t, Config{Dial: f.Dial, OnError: func(batch.Event) {}})
		for i := range 100 {
			l.Post("x", map[string]any{"n": i})
		}
		time.Sleep(time.Hour)
		t.Logf("%d connections", f.Conns())
		if n := f.Conns(); n > 3600 {
			t.Errorf("%d connections in an hour", n)
		}
		well.Store(true)
		time.Sleep(5 * time.Minute)
		if err := l.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		if got := r.get("x"); !slices.Equal(got, seq(0, 100)) || l.Account().Dropped.Total() > 0 {
			t.Errorf("%s, arrived: %v", l.Account(), got)
		}
		l.Close(context.Background())
	})
}

// A server that is well again while it is searched for what is at fault gets the
// records in order, whatever it takes first.
func TestOrderWhenAServerRecovers(t *testing.T) {
	for first := range 5 {
		synctest.Test(t, func(t *testing.T) {
			var r received
			well := false
			f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
				for {
					m, err := c.Next()
					if err != nil {
						return
					}
					control := bytes.Contains(m.Entries[0], []byte(controlText))
					well = well || len(m.Entries) == 1 && (control || number1(m.Entries[0]) == first && first > 0)
					if !well {
						return
					}
					if !control {
						r.add(m)
					}
					c.Ack(m.Chunk)
				}
			}}
			defer f.Close()
			l := newTestLogger(t, Config{Dial: f.Dial, OnError: func(batch.Event) {}})
			for i := range 100 {
				l.Post("x", map[string]any{"n": i})
			}
			time.Sleep(10 * time.Minute)
			if got := r.get("x"); !slices.Equal(got, seq(0, 100)) || l.Account().Dropped.Total() > 0 {
				t.Errorf("%s, arrived: %v", l.Account(), got)
			}
			closeLogger(t, l)
		})
	}
}
