package fluent

import (
	"bytes"
	"math/rand/v2"
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

// limitedServer returns a server that closes the connection at a frame of more than limit bytes. If
// silent is true, it keeps the connection open instead and does not acknowledge the frame.
func limitedServer(r *received, limit *atomic.Int64, silent bool) *testkit.Forward {
	return &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
		for {
			m, err := c.Next()
			if err != nil {
				return
			}
			if int64(m.Payload) > limit.Load() {
				if !silent {
					return
				}
				continue
			}
			r.add(m)
			if c.Ack(m.Chunk) != nil {
				return
			}
		}
	}}
}

// A record limit is learned after records of three different sizes were given up. Larger records
// then become dead letters immediately, without delaying other records. The limit is valid for a
// minute, and for two minutes after another record was given up. It is discarded when the server
// accepts a larger record.
func TestRecordLimitIsLearnedAndExpires(t *testing.T) {
	for _, silent := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			var r received
			var limit atomic.Int64
			limit.Store(80 << 10)
			f := limitedServer(&r, &limit, silent)
			defer f.Close()
			var deadLetters bytes.Buffer
			l := newTestLogger(t, testConfig{Config: Config{Dial: f.Dial, AckTimeout: time.Second}, DeadLetter: deliver.DeadLetters(&deadLetters, "forward")})
			big := func(n int) { l.Post("x", numbered{n, strings.Repeat("x", (n+1)<<10)}) }
			for i := range 10 {
				l.Post("x", map[string]any{"n": i})
			}
			time.Sleep(time.Second)
			dropped := func(n int) {
				t.Helper()
				for began := time.Now(); l.Account().Dropped[batch.Poison] < uint64(n); time.Sleep(time.Second) {
					if time.Since(began) > 10*time.Minute {
						t.Fatalf("silent %v: after %s %s", silent, time.Since(began), l.Account())
					}
				}
			}
			for i := range sizesToTrust {
				if st := l.Driver.Stats(); st.LearnedRecord != 0 {
					t.Errorf("silent %v: after %d records: %+v", silent, i, st)
				}
				big(100 - i)
				l.Post("x", map[string]any{"n": 10 + i})
				dropped(1 + i)
			}
			time.Sleep(time.Second)
			if st, a := l.Driver.Stats(), l.Account(); st.LearnedRecord < 99<<10 || st.LearnedRecord > 100<<10 || a.Delivered != 13 {
				t.Errorf("silent %v: %+v, %s", silent, st, a)
			}
			// One more connection is permitted, because the last one may have been closed as idle.
			conns := f.Conns() + 1
			big(101)
			l.Post("x", map[string]any{"n": 13})
			time.Sleep(time.Second)
			if a := l.Account(); a.Dropped[batch.Poison] != 4 || a.Delivered != 14 || f.Conns() > conns {
				t.Errorf("silent %v: after a second %s, %d more connections", silent, a, f.Conns()-conns)
			}
			if text := deadLetters.String(); strings.Count(text, "\n") != 4 || !strings.Contains(text, "has already refused one of") {
				t.Errorf("dead letters: %.300s", text)
			}
			time.Sleep(firstTrust)
			big(102) // the record is sent, because the limit has expired
			time.Sleep(time.Second)
			if st := l.Driver.Stats(); st.LearnedRecord != 0 {
				t.Errorf("silent %v: after a minute: %+v", silent, st)
			}
			dropped(5)
			time.Sleep(2*firstTrust - 2*time.Second)
			if st := l.Driver.Stats(); st.LearnedRecord == 0 {
				t.Errorf("silent %v: after the fourth: %+v", silent, st)
			}
			limit.Store(1 << 20)
			time.Sleep(5 * time.Second)
			big(103)
			time.Sleep(time.Minute)
			if a := l.Account(); a.Delivered != 15 || l.Driver.Stats().LearnedRecord != 0 {
				t.Errorf("silent %v: after the limit was discarded: %s", silent, a)
			}
			closeLogger(t, l)
		})
	}
}

// A server that closes connections at large frames receives smaller frames. After the time relearn
// it receives large frames again.
func TestFrameLimitIsLearnedAndExpires(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r received
		var limit atomic.Int64
		limit.Store(20 << 10)
		f := limitedServer(&r, &limit, false)
		defer f.Close()
		l := newTestLogger(t, testConfig{Config: Config{Dial: f.Dial}, WhenFull: "block"})
		n := 0
		fill := func(many int) {
			for range many {
				l.Post("x", numbered{n, strings.Repeat("x", 1000)})
				n++
			}
		}
		fill(500)
		time.Sleep(10 * time.Minute)
		st := l.Driver.Stats()
		if a := l.Account(); a.Delivered != uint64(n) || st.LearnedFrame == 0 || int64(st.LearnedFrame) > limit.Load() {
			t.Errorf("%s, %+v", a, st)
		}
		// One more connection is permitted, because the last one may have been closed as idle.
		conns, began := f.Conns()+1, time.Now()
		fill(2000)
		time.Sleep(time.Second)
		if a := l.Account(); a.Delivered != uint64(n) || f.Conns() > conns {
			t.Errorf("after %s %s, %d more connections", time.Since(began), a, f.Conns()-conns)
		}
		limit.Store(1 << 20)
		time.Sleep(relearn)
		fill(2000)
		time.Sleep(time.Minute)
		closeLogger(t, l)
		if ms := r.messages(); ms[len(ms)-2].Payload < 40<<10 {
			t.Errorf("got frames of only %d bytes", ms[len(ms)-2].Payload)
		}
		if !slices.Equal(r.firstCopies("x"), seq(0, n)) {
			t.Error("records are not in order")
		}
	})
}

// If a healthy server refuses one or two records because of their content, no limit is learned, and
// larger records are delivered.
func TestPoisonousRecordsTeachNoLimit(t *testing.T) {
	for _, silent := range []bool{false, true} {
		for _, bad := range []int{1, 2} {
			bubble.Test(t, func(t *testing.T) {
				var r received
				f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
					for {
						m, err := c.Next()
						if err != nil {
							return
						}
						if slices.ContainsFunc(m.Entries, func(e []byte) bool { return bytes.Contains(e, []byte("BAD")) }) {
							if !silent {
								return
							}
							continue
						}
						r.add(m)
						c.Ack(m.Chunk)
					}
				}}
				defer f.Close()
				l := newTestLogger(t, testConfig{Config: Config{Dial: f.Dial, AckTimeout: time.Second}})
				l.Post("x", numbered{0, "well"})
				time.Sleep(time.Second)
				for i := range bad {
					l.Post("x", numbered{1000 + i, "BAD" + strings.Repeat("x", (20+i)<<10)})
					l.Post("x", numbered{1 + i, "well"})
				}
				for began := time.Now(); l.Account().Dropped[batch.Poison] < uint64(bad) && time.Since(began) < time.Hour; {
					time.Sleep(time.Second)
				}
				for i := range 10 {
					l.Post("x", numbered{1 + bad + i, strings.Repeat("x", (25+i)<<10)})
					time.Sleep(time.Second)
				}
				time.Sleep(time.Minute)
				if rep := closeLogger(t, l); rep.Delivered != uint64(11+bad) || rep.Dropped[batch.Poison] != uint64(bad) {
					t.Errorf("silent %v: %s", silent, rep.Account)
				}
				if got := r.firstCopies("x"); !slices.Equal(got, seq(0, 11+bad)) {
					t.Errorf("silent %v: %v", silent, got)
				}
			})
		}
	}
}

// No record limit is learned from a server that resets connections at random, or from one poisonous
// record.
func TestRandomResetsTeachNoLimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r received
		rng := rand.New(rand.NewPCG(testkit.Seed(t), 0))
		var sick atomic.Bool
		sick.Store(true)
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			for {
				m, err := c.Next()
				if err != nil || sick.Load() && rng.IntN(10) < 8 || slices.ContainsFunc(m.Entries, func(e []byte) bool { return bytes.Contains(e, []byte("BAD")) }) {
					return
				}
				r.add(m)
				c.Ack(m.Chunk)
			}
		}}
		defer f.Close()
		l := newTestLogger(t, testConfig{Config: Config{Dial: f.Dial}})
		for i := range 200 {
			l.Post("x", numbered{i, strings.Repeat("x", i*i)})
			time.Sleep(time.Second)
			if st := l.Driver.Stats(); st.LearnedRecord != 0 {
				t.Fatalf("%+v", st)
			}
		}
		sick.Store(false)
		time.Sleep(10 * time.Minute)
		l.Post("x", numbered{200, "BAD" + strings.Repeat("x", 17<<10)})
		time.Sleep(10 * time.Minute)
		if st := l.Driver.Stats(); st.LearnedRecord != 0 {
			t.Errorf("%+v", st)
		}
		if rep := closeLogger(t, l); rep.Delivered != 200 || rep.Dropped[batch.Poison] != 1 {
			t.Errorf("%s", rep.Account)
		}
	})
}

// A Driver learns the limit also if its output was made with deliver.NewOutput.
func TestDriverOfOtherOutputsLearnsRecordLimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r received
		var limit atomic.Int64
		limit.Store(80 << 10)
		f := limitedServer(&r, &limit, false)
		defer f.Close()
		c, err := New(Config{Dial: f.Dial})
		if err != nil {
			t.Fatal(err)
		}
		out, err := deliver.NewOutput(c, &deliver.OutputOptions{Codec: Codec(), OnError: func(batch.Event) {}})
		if err != nil {
			t.Fatal(err)
		}
		write := func(n, size int) {
			t.Helper()
			event, err := AppendEvent(nil, time.Now(), numbered{n, strings.Repeat("x", size)})
			if err == nil {
				err = out.WriteRecord(event, batch.Meta{Stream: dictionary{}.Stream([]byte("x"))})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		write(0, 10)
		time.Sleep(time.Second)
		for i := range sizesToTrust {
			write(100, 102<<10-i)
			time.Sleep(time.Second)
		}
		for out.Account().Dropped[batch.Poison] < sizesToTrust && time.Since(began) < time.Hour {
			time.Sleep(time.Second)
		}
		if st := c.Stats(); st.LearnedRecord < 100<<10 {
			t.Errorf("no limit was learned: %+v", st)
		}
		write(101, 103<<10)
		write(1, 10)
		time.Sleep(time.Second)
		if a := out.Account(); a.Dropped[batch.Poison] != 4 || a.Delivered != 2 {
			t.Errorf("%s", a)
		}
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	})
}
