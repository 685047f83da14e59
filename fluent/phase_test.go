package fluent

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

type phaseStep struct{ from, to phase }

// phaseSteps are the transitions that are drawn in the comment of the type phase.
var phaseSteps = []phaseStep{
	{begun, probing}, {begun, oneBatch}, {begun, serving},
	{probing, serving}, {probing, leaving}, {probing, over},
	{oneBatch, leaving}, {oneBatch, over},
	{serving, leaving}, {serving, over},
	{leaving, over},
}

// phasesOf maps a *Driver to a function that is called at each transition of its sessions.
var phasesOf sync.Map

// checkPhases makes every test of this package panic if a session makes a transition that is not in
// phaseSteps.
func checkPhases() {
	phaseEntered = func(s *session, from, to phase) {
		if !slices.Contains(phaseSteps, phaseStep{from, to}) {
			panic(fmt.Sprintf("a session went from phase %d to %d, which is not in the diagram", from, to))
		}
		if f, ok := phasesOf.Load(s.c); ok {
			f.(func(*session, phase, phase))(s, from, to)
		}
	}
}

// Each test case leads a session through the expected phases. Together, the cases use every
// transition in phaseSteps.
func TestSessionTakesEveryDrawnPhaseTransition(t *testing.T) {
	walked := map[phaseStep]bool{}
	noKeepalive := &testkit.ForwardAuth{Hostname: "server", Key: "k", Nonce: []byte("nonce"), NoKeepalive: true}
	for name, tt := range map[string]struct {
		conf   testConfig
		script func(r *received, c *testkit.ForwardConn)          // nil: acknowledge all messages
		do     func(t *testing.T, p *testClient, q *threeServers) // nil: one batch is sent
		want   []phase                                            // phases of the first session
	}{
		"acknowledged": {want: []phase{begun, serving, over}},
		"the server ends the connection": {
			script: func(*received, *testkit.ForwardConn) {},
			do:     func(t *testing.T, p *testClient, _ *threeServers) { p.sendOne(numbers(t, 0, 10)) },
			want:   []phase{begun, serving, over},
		},
		"idle": {
			conf: testConfig{Config: Config{IdleTimeout: time.Minute}},
			do: func(t *testing.T, p *testClient, _ *threeServers) {
				sendOK(t, p, numbers(t, 0, 10))
				time.Sleep(2 * time.Minute)
			},
			want: []phase{begun, serving, over},
		},
		"a preferred server is back": {
			conf: testConfig{Config: Config{Servers: []string{"a", "b"}, Failback: time.Second}},
			do: func(t *testing.T, p *testClient, q *threeServers) {
				q.down["a"].Store(true)
				sendOK(t, p, numbers(t, 0, 10))
				q.down["a"].Store(false)
				for i := range 3 {
					time.Sleep(2 * time.Second)
					sendOK(t, p, numbers(t, 10*i, 10*i+10))
				}
			},
			want: []phase{begun, serving, leaving, over},
		},
		"the next weighted server": {
			conf: testConfig{Config: Config{Servers: []string{"a", "b"}, Weights: []int{1, 1}}},
			do: func(t *testing.T, p *testClient, _ *threeServers) {
				sendOK(t, p, numbers(t, 0, 10))
				sendOK(t, p, numbers(t, 10, 20))
				time.Sleep(rotateEvery)
				sendOK(t, p, numbers(t, 20, 30))
			},
			want: []phase{begun, serving, leaving, over},
		},
		"a hung server": {
			conf: testConfig{Config: Config{Servers: []string{"a", "b"}, Heartbeat: time.Second}},
			do: func(t *testing.T, p *testClient, q *threeServers) {
				sendOK(t, p, numbers(t, 0, 10))
				q.hang["a"].Store(true)
				p.sendOne(numbers(t, 10, 20))
			},
			want: []phase{begun, serving, over},
		},
		"one message per connection": {
			conf: testConfig{Config: Config{Auth: Auth{SharedKey: "k"}}},
			script: func(r *received, c *testkit.ForwardConn) {
				if ok, _ := c.Handshake(noKeepalive); !ok {
					return
				}
				if m, err := c.Next(); err == nil {
					r.add(m)
					c.Ack(m.Chunk)
				}
			},
			want: []phase{begun, oneBatch, leaving, over},
		},
		"one message per connection, not acknowledged": {
			conf:   testConfig{Config: Config{Auth: Auth{SharedKey: "k"}}},
			script: func(_ *received, c *testkit.ForwardConn) { c.Handshake(noKeepalive) },
			do:     func(t *testing.T, p *testClient, _ *threeServers) { p.sendOne(numbers(t, 0, 10)) },
			want:   []phase{begun, oneBatch, over},
		},
		"no acknowledgements": {
			conf: testConfig{Config: Config{NoAck: true}},
			do: func(t *testing.T, p *testClient, _ *threeServers) {
				sendOK(t, p, numbers(t, 0, 10))
				sendOK(t, p, numbers(t, 10, 20))
			},
			want: []phase{begun, probing, serving, over},
		},
		"no acknowledgements, one message per connection": {
			conf:   testConfig{Config: Config{NoAck: true}},
			script: func(_ *received, c *testkit.ForwardConn) { c.Next() },
			want:   []phase{begun, probing, leaving, over},
		},
		"no acknowledgements, and nothing to send": {
			conf: testConfig{Config: Config{NoAck: true}},
			do: func(t *testing.T, p *testClient, _ *threeServers) {
				if err := p.open(t.Context()); err != nil {
					t.Error(err)
				}
			},
			want: []phase{begun, probing, over},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var r received
				q := newThreeServers()
				defer q.close()
				f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
					if tt.script == nil {
						r.ackAll(c)
						return
					}
					tt.script(&r, c)
				}}
				defer f.Close()
				if tt.conf.Dial = q.dial; tt.conf.Servers == nil {
					tt.conf.Dial = f.Dial
				}
				client, err := tt.conf.driver()
				if err != nil {
					t.Fatal(err)
				}
				p := &testClient{Driver: client, t: t}
				var mu sync.Mutex
				var first *session
				got := []phase{begun}
				phasesOf.Store(client, func(s *session, from, to phase) {
					mu.Lock()
					defer mu.Unlock()
					if first == nil {
						first = s
					}
					if s == first {
						got = append(got, to)
						walked[phaseStep{from, to}] = true
					}
				})
				defer phasesOf.Delete(client)
				if tt.do == nil {
					sendOK(t, p, numbers(t, 0, 10))
				} else {
					tt.do(t, p, q)
				}
				p.close()
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(got, tt.want) {
					t.Errorf("phases %v, want %v", got, tt.want)
				}
			})
		})
	}
	for _, s := range phaseSteps {
		if !walked[s] {
			t.Errorf("no session went from %d to %d", s.from, s.to)
		}
	}
}
