package fluent

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// threeServers are the test servers a, b and c.
type threeServers struct {
	r    map[string]*received
	f    map[string]*testkit.Forward
	down map[string]*atomic.Bool // servers that refuse connections
	hang map[string]*atomic.Bool // servers that neither accept connections nor acknowledge records
}

func newThreeServers() *threeServers {
	q := &threeServers{map[string]*received{}, map[string]*testkit.Forward{}, map[string]*atomic.Bool{}, map[string]*atomic.Bool{}}
	for _, name := range []string{"a", "b", "c"} {
		r := new(received)
		q.r[name], q.down[name], q.hang[name] = r, new(atomic.Bool), new(atomic.Bool)
		hang := q.hang[name]
		q.f[name] = &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			for {
				m, err := c.Next()
				if err != nil {
					return
				}
				if hang.Load() {
					continue
				}
				r.add(m)
				c.Ack(m.Chunk)
			}
		}}
	}
	return q
}

func (q *threeServers) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	name := addr[:1]
	switch {
	case q.down[name].Load():
		return nil, errors.New("connection refused")
	case q.hang[name].Load():
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return q.f[name].Dial(ctx, network, addr)
}

func (q *threeServers) close() {
	for _, f := range q.f {
		f.Close()
	}
}

// counts returns how many records a, b and c have received.
func (q *threeServers) counts() (out [3]int) {
	for i, name := range []string{"a", "b", "c"} {
		out[i] = len(q.r[name].get("x"))
	}
	return out
}

// With weights, each server is used for a share of the time in proportion to its weight. The
// standby server is used only while all other servers are down.
func TestWeightsShareTimeAndStandbyComesLast(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		q := newThreeServers()
		defer q.close()
		l := newTestLogger(t, testConfig{
			Config: Config{
				Servers: []string{"a", "b"},
				Weights: []int{30, 60},
				Standby: []string{"c"},
				Dial:    q.dial,
			},
		})
		n := 0
		run := func(d time.Duration) {
			for range int(d / time.Second) {
				l.Post("x", map[string]any{"n": n})
				n++
				time.Sleep(time.Second)
			}
		}
		run(600 * time.Second)
		if got := q.counts(); got[0] < 180 || got[0] > 220 || got[1] < 380 || got[2] != 0 {
			t.Errorf("servers received %v of 600 records", got)
		}
		q.down["b"].Store(true)
		before := q.counts()
		run(100 * time.Second)
		if got := q.counts(); got[0]-before[0] < 85 || got[2] != 0 {
			t.Errorf("%v after %v", got, before)
		}
		q.down["a"].Store(true)
		run(100 * time.Second)
		before = q.counts()
		if before[2] < 80 {
			t.Errorf("%v: standby is not used", before)
		}
		q.down["a"].Store(false)
		q.down["b"].Store(false)
		run(600 * time.Second)
		got := q.counts()
		if d := got[2] - before[2]; d > 75 || got[0]-before[0] < 150 || got[1]-before[1] < 320 {
			t.Errorf("%v after %v", got, before)
		}
		rep := closeLogger(t, l)
		if rep.Delivered != uint64(n) || rep.Dropped.Total() != 0 {
			t.Errorf("%s", rep.Account)
		}
		if st := l.Output.Stats().Deliver; st.Trips != 0 {
			t.Errorf("%+v", st)
		}
		seen := slices.Concat(q.r["a"].get("x"), q.r["b"].get("x"), q.r["c"].get("x"))
		slices.Sort(seen)
		if !slices.Equal(seen, seq(0, n)) {
			t.Errorf("%d of %d records, each once", len(seen), n)
		}
	})
	for _, c := range []testConfig{
		{Config: Config{Servers: []string{"a", "b"}, Weights: []int{1}}},
		{Config: Config{Servers: []string{"a", "b"}, Weights: []int{1, 0}}},
		{Config: Config{Standby: []string{"a:b:c"}}},
	} {
		if _, err := c.driver(); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

// If a server accepts no connections, the session ends after a failed heartbeat, long before
// AckTimeout. If the server accepts connections but acknowledges nothing, the session ends after
// AckTimeout.
func TestHeartbeatLeavesUnreachableServer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		q := newThreeServers()
		defer q.close()
		l := newTestLogger(t, testConfig{Config: Config{Servers: []string{"a", "b"}, Dial: q.dial, Failback: -1}})
		l.Post("x", map[string]any{"n": 0})
		time.Sleep(time.Second)
		q.hang["a"].Store(true)
		l.Post("x", map[string]any{"n": 1})
		time.Sleep(defaultHeartbeat + defaultDialTimeout + time.Second)
		if got := q.r["b"].get("x"); !slices.Equal(got, []int{1}) {
			t.Errorf("%v: %v", got, l.Driver.Stats())
		}
		closeLogger(t, l)
	})
	bubble.Test(t, func(t *testing.T) { // the kernel of the server accepts connections, but the process hangs
		q := newThreeServers()
		defer q.close()
		l := newTestLogger(t, testConfig{
			Config: Config{
				Servers:  []string{"a", "b"},
				Failback: -1,
				Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
					return q.f[addr[:1]].Dial(ctx, network, addr)
				},
			},
		})
		q.hang["a"].Store(true)
		began := time.Now()
		l.Post("x", map[string]any{"n": 1})
		for len(q.r["b"].get("x")) == 0 && time.Since(began) < time.Hour {
			time.Sleep(time.Second)
		}
		if took := time.Since(began); took > defaultAckTimeout+2*time.Second {
			t.Errorf("the session left the server after %s", took)
		}
		closeLogger(t, l)
	})
}

// Clients return to a preferred server at different times.
func TestFailbackHasJitter(t *testing.T) {
	c, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[time.Duration]bool{}
	for range 50 {
		d := time.Until(c.nextPreferredProbe()).Round(time.Millisecond)
		seen[d] = true
		if d < 44*time.Second || d > defaultFailback {
			t.Errorf("after %s", d)
		}
	}
	if len(seen) < 20 {
		t.Errorf("%d different times of 50", len(seen))
	}
}
