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

// A record at which the server closes every connection becomes a dead letter. All other records
// arrive. Some may arrive twice, but their first copies are in order.
func TestPoisonousRecordBecomesDeadLetter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const bad = 321
		var r received
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			for {
				m, err := c.Next()
				if err != nil {
					return
				}
				if slices.ContainsFunc(m.Entries, func(e []byte) bool { return recordNumber(e) == bad }) {
					return
				}
				r.add(m)
				c.Ack(m.Chunk)
			}
		}}
		defer f.Close()
		var deadLetters bytes.Buffer
		l := newTestLogger(t, testConfig{Config: Config{Dial: f.Dial}, DeadLetter: deliver.DeadLetters(&deadLetters, "forward"), OnError: func(batch.Event) {}})
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
		if text := deadLetters.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `"tag":"poison.tag"`) || !strings.Contains(text, `{"n":321}`) {
			t.Errorf("dead letters: %s", text)
		}
		want := slices.DeleteFunc(seq(0, 1000), func(n int) bool { return n == bad })
		if got := r.firstCopies("poison.tag"); !slices.Equal(got, want) {
			t.Errorf("%d records arrived, in order: %v", len(got), slices.IsSorted(got))
		}
	})
}

// In this test, the server closes the connection at bad records, which precede good ones. If the
// server has accepted a record with another tag, up to 31 bad records are all given up within a
// limited time. If there are more, and no record with their tag was ever accepted, the server
// appears to be full: all records wait, and none is given up.
func TestManyPoisonousRecordsDelayOthersBoundedly(t *testing.T) {
	seed := testkit.Seed(t)
	for i, tt := range []struct {
		bad, good int
		pause     time.Duration // pause between bad and good records, so that they are in different chunks
		within    time.Duration // time limit; 0: all records wait
	}{
		{bad: 1, good: 0, within: 65 * time.Minute},
		{bad: 4, good: 96, within: 2 * time.Minute},
		{bad: 20, good: 80, within: 5 * time.Minute},
		{bad: 31, good: 69, within: time.Hour},
		{bad: 300, good: 100},
		{bad: 300, good: 100, pause: 150 * time.Millisecond},
	} {
		if tt.within == 0 && !testkit.Share(seed, i, 4) {
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
				l.Post("y", map[string]any{"n": 0}) // becomes a reference record, which shows that the server works
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

// If a server closes every connection for an hour, no record becomes a dead letter.
func TestServerFailureCondemnsNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r received
		var healthy atomic.Bool
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			if healthy.Load() {
				r.ackAll(c)
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
		healthy.Store(true)
		time.Sleep(5 * time.Minute)
		if err := l.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		got := r.firstCopies("x")
		slices.Sort(got) // a parked suspect may arrive later
		if !slices.Equal(got, seq(0, 100)) || l.Account().Dropped.Total() > 0 {
			t.Errorf("%s, arrived: %v", l.Account(), got)
		}
		l.Close(context.Background())
	})
}

// If an output has only one record, the record is sent until the server accepts it, because no
// second record can prove that the server works.
func TestOnlyRecordIsSentAgainUntilAccepted(t *testing.T) {
	for _, crash := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			var r received
			f := &testkit.Forward{Script: func(n int, c *testkit.ForwardConn) {
				if n < 10 {
					c.Next()
					return
				}
				r.ackAll(c)
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
