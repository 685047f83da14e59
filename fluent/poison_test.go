package fluent

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// From Post to the dead letter: one record ends every connection, all others arrive,
// their first copies in order.
func TestPoisonGoesToTheDeadLetter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
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
		defer f.Close()
		var letters bytes.Buffer
		l := newTestLogger(t, testConfig{Config: Config{Dial: f.Dial}, DeadLetter: deliver.DeadLetters(&letters, "forward"), OnError: func(batch.Event) {}})
		for i := range 1000 {
			if err := l.Post("poison.tag", map[string]any{"n": i}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Minute)
		rep := closeLogger(t, l)
		if rep.Delivered != 999 || rep.Dropped[batch.Poison] != 1 {
			t.Errorf("%s", rep.Account)
		}
		if text := letters.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `"tag":"poison.tag"`) || !strings.Contains(text, `{"n":321}`) {
			t.Errorf("dead letters: %s", text)
		}
		want := slices.DeleteFunc(seq(0, 1000), func(n int) bool { return n == bad })
		if got := r.firstCopies("poison.tag"); !slices.Equal(got, want) {
			t.Errorf("%d records arrived, in order: %v", len(got), slices.IsSorted(got))
		}
	})
}

// Many bad records at the head of a chunk hold up the good ones behind them for a
// bounded time, and all of them are found, with the default Config, if the server took
// something before. More than there is room for look as a tag does that is full: if none of it
// was ever taken, they wait, and none are condemned.
func TestManyBadRecords(t *testing.T) {
	seed := testkit.Seed(t)
	for i, tt := range []struct {
		bad, good int
		pause     time.Duration // between the two: they go in chunks of their own
		within    time.Duration // 0: they wait
	}{
		{bad: 1, good: 0, within: 65 * time.Minute},
		{bad: 4, good: 96, within: 2 * time.Minute},
		{bad: 20, good: 80, within: 5 * time.Minute},
		{bad: 31, good: 69, within: time.Hour},
		{bad: 300, good: 100},
		{bad: 300, good: 100, pause: 150 * time.Millisecond},
	} {
		if tt.within == 0 && !testkit.Share(seed, i, 2) {
			continue
		}
		t.Run(fmt.Sprintf("%d+%d %s", tt.bad, tt.good, tt.pause), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var r received
				f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
					for {
						m, err := c.Next()
						if err != nil || slices.ContainsFunc(m.Entries, func(e []byte) bool { return bytes.Contains(e, []byte("BAD")) }) {
							return
						}
						r.add(m)
						c.Ack(m.Chunk)
					}
				}}
				defer f.Close()
				l := newTestLogger(t, testConfig{Config: Config{Dial: f.Dial}, OnError: func(batch.Event) {}})
				l.Post("y", map[string]any{"n": 0}) // the server is well
				time.Sleep(time.Second)
				began := time.Now()
				for i := range tt.bad {
					l.Post("x", map[string]any{"n": -i, "x": "BAD"})
				}
				time.Sleep(tt.pause)
				for i := range tt.good {
					l.Post("x", map[string]any{"n": i})
				}
				most := 12 * time.Hour
				if tt.within == 0 {
					most = time.Hour
				}
				for l.Account().Pending.Total() > 0 && time.Since(began) < most {
					time.Sleep(max(time.Second, time.Since(began)/100))
				}
				took := time.Since(began)
				a := l.Account()
				if tt.within == 0 {
					if a.Delivered != 1 || a.Pending.Total() != uint64(tt.bad+tt.good) {
						t.Errorf("after %s: %s", took, a)
					}
					l.Close(context.Background())
					return
				}
				if a.Delivered != uint64(tt.good)+1 || a.Dropped[batch.Poison] != uint64(tt.bad) || took > tt.within {
					t.Errorf("after %s: %s", took, a)
				}
				if got := r.firstCopies("x"); !slices.Equal(got, seq(0, tt.good)) {
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
	bubble.Test(t, func(t *testing.T) {
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
		l := newTestLogger(t, testConfig{Config: Config{Dial: f.Dial}, OnError: func(batch.Event) {}})
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
		got := r.firstCopies("x")
		slices.Sort(got) // a suspect is set aside
		if !slices.Equal(got, seq(0, 100)) || l.Account().Dropped.Total() > 0 {
			t.Errorf("%s, arrived: %v", l.Account(), got)
		}
		l.Close(context.Background())
	})
}

// A record that is alone is sent again and again: nothing else will ever show that the
// server is well.
func TestBrokenServerAndOneRecord(t *testing.T) {
	for _, crash := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			var r received
			f := &testkit.Forward{Script: func(n int, c *testkit.ForwardConn) {
				if n < 10 {
					c.Next()
					return
				}
				r.obedient(c)
			}}
			defer f.Close()
			conf := testConfig{Config: Config{Dial: f.Dial}, OnError: func(batch.Event) {}}
			if crash {
				conf.CrashDir = t.TempDir()
			}
			l := newTestLogger(t, conf)
			l.Post("x", map[string]any{"n": 7})
			time.Sleep(10 * time.Minute)
			if got := r.get("x"); !slices.Equal(got, []int{7}) {
				t.Errorf("after %d connections %s: %v", f.Conns(), l.Account(), got)
			}
			closeLogger(t, l)
		})
	}
}
