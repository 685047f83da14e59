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

// phaseSteps are those of the drawing at phase.
var phaseSteps = []phaseStep{
	{begun, probing}, {begun, oneBatch}, {begun, serving},
	{probing, serving}, {probing, leaving}, {probing, over},
	{oneBatch, leaving}, {oneBatch, over},
	{serving, leaving}, {serving, over},
	{leaving, over},
}

// phasesOf is told of the steps of sessions, by Client.
var phasesOf sync.Map

// checkPhases has all tests of this package fail at a step that is not drawn.
func checkPhases() {
	phaseEntered = func(s *session, from, to phase) {
		if !slices.Contains(phaseSteps, phaseStep{from, to}) {
			panic(fmt.Sprintf("a session went from phase %d to %d, which is not drawn", from, to))
		}
		if f, ok := phasesOf.Load(s.c); ok {
			f.(func(*session, phase, phase))(s, from, to)
		}
	}
}

// Each way through the phases of a session, and together all that are drawn.
func TestPhases(t *testing.T) {
	walked := map[phaseStep]bool{}
	noKeepalive := &testkit.ForwardAuth{Hostname: "server", Key: "k", Nonce: []byte("nonce"), NoKeepalive: true}
	for name, tt := range map[string]struct {
		conf   testConfig
		script func(r *received, c *testkit.ForwardConn) // nil: obedient
		do     func(t *testing.T, p *peer, q *trio)      // nil: one batch is sent
		want   []phase                                   // of the first session
	}{
		"acknowledged": {want: []phase{begun, serving, over}},
		"the server ends the connection": {
			script: func(*received, *testkit.ForwardConn) {},
			do:     func(t *testing.T, p *peer, _ *trio) { p.try(numbers(t, 0, 10)) },
			want:   []phase{begun, serving, over},
		},
		"idle": {
			conf: testConfig{Config: Config{IdleTimeout: time.Minute}},
			do:   func(t *testing.T, p *peer, _ *trio) { sendOK(t, p, numbers(t, 0, 10)); time.Sleep(2 * time.Minute) },
			want: []phase{begun, serving, over},
		},
		"a better server is back": {
			conf: testConfig{Config: Config{Servers: []string{"a", "b"}, Failback: time.Second}},
			do: func(t *testing.T, p *peer, q *trio) {
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
		"another server's turn": {
			conf: testConfig{Config: Config{Servers: []string{"a", "b"}, Weights: []int{1, 1}}},
			do: func(t *testing.T, p *peer, _ *trio) {
				sendOK(t, p, numbers(t, 0, 10))
				sendOK(t, p, numbers(t, 10, 20))
				time.Sleep(rotateEvery)
				sendOK(t, p, numbers(t, 20, 30))
			},
			want: []phase{begun, serving, leaving, over},
		},
		"a hung server": {
			conf: testConfig{Config: Config{Servers: []string{"a", "b"}, Heartbeat: time.Second}},
			do: func(t *testing.T, p *peer, q *trio) {
				sendOK(t, p, numbers(t, 0, 10))
				q.hang["a"].Store(true)
				p.try(numbers(t, 10, 20))
			},
			want: []phase{begun, serving, over},
		},
		"one message a connection": {
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
		"one message a connection, which it does not take": {
			conf:   testConfig{Config: Config{Auth: Auth{SharedKey: "k"}}},
			script: func(_ *received, c *testkit.ForwardConn) { c.Handshake(noKeepalive) },
			do:     func(t *testing.T, p *peer, _ *trio) { p.try(numbers(t, 0, 10)) },
			want:   []phase{begun, oneBatch, over},
		},
		"no acknowledgements": {
			conf: testConfig{Config: Config{NoAck: true}},
			do: func(t *testing.T, p *peer, _ *trio) {
				sendOK(t, p, numbers(t, 0, 10))
				sendOK(t, p, numbers(t, 10, 20))
			},
			want: []phase{begun, probing, serving, over},
		},
		"no acknowledgements, and one message a connection": {
			conf:   testConfig{Config: Config{NoAck: true}},
			script: func(_ *received, c *testkit.ForwardConn) { c.Next() },
			want:   []phase{begun, probing, leaving, over},
		},
		"no acknowledgements, and nothing to send": {
			conf: testConfig{Config: Config{NoAck: true}},
			do: func(t *testing.T, p *peer, _ *trio) {
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
				q := newTrio()
				defer q.close()
				f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
					if tt.script == nil {
						r.obedient(c)
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
				p := &peer{Driver: client, t: t}
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
					t.Errorf("it went %v, want %v", got, tt.want)
				}
			})
		})
	}
	for _, s := range phaseSteps {
		if !walked[s] {
			t.Errorf("nothing went from %d to %d", s.from, s.to)
		}
	}
}
