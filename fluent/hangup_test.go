package fluent

import (
	"bufio"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// Without acknowledgements, a server that soon closes each connection causes one event "no-ack"
// with advice to the user. A server that keeps connections for 20 s causes no event. The idle
// timeout of most proxies is longer.
func TestRepeatedHangUpsPostOneNoAckEvent(t *testing.T) {
	closeAtOnce := func(c *testkit.ForwardConn) {}
	for name, tt := range map[string]struct {
		script func(c *testkit.ForwardConn)
		ack    bool
		want   int
	}{
		"accepts and closes": {closeAtOnce, false, 1},
		"reads a request":    {func(c *testkit.ForwardConn) { _, _ = bufio.NewReader(c).ReadByte() }, false, 1},
		"closes a bit later": {func(c *testkit.ForwardConn) { _, _ = c.Next(); time.Sleep(500 * time.Millisecond) }, false, 1},
		"closes after a while": {func(c *testkit.ForwardConn) {
			time.AfterFunc(20*time.Second, func() { c.Close() })
			for {
				if _, err := c.Next(); err != nil {
					return
				}
			}
		}, false, 0},
		"accepts and closes, acknowledgements requested": {closeAtOnce, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var events []string
				f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { tt.script(c) }}
				defer f.Close()
				l := newTestLogger(t, testConfig{
					Config: Config{
						Dial:  f.Dial,
						NoAck: !tt.ack,
					},
					OnError: func(e batch.Event) {
						mu.Lock()
						defer mu.Unlock()
						if e.Op == "no-ack" {
							events = append(events, e.Err.Error())
						}
					},
				})
				for range 300 {
					_ = l.Post("x", map[string]any{"n": 1})
					time.Sleep(time.Second)
				}
				mu.Lock()
				if len(events) != tt.want || slices.ContainsFunc(events, func(s string) bool { return !strings.Contains(s, "acknowledgements") || !strings.Contains(s, "NoAck") }) {
					t.Errorf("events: %q", events)
				}
				mu.Unlock()
				_, _ = l.Close(t.Context())
			})
		})
	}
}

// The event is repeated if short connections follow a long one.
func TestNoAckEventRepeatsAfterAKeptConnection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		events, keeps := 0, false
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			mu.Lock()
			keep := keeps
			mu.Unlock()
			if !keep {
				return
			}
			time.AfterFunc(time.Minute, func() { c.Close() })
			for {
				if _, err := c.Next(); err != nil {
					return
				}
			}
		}}
		defer f.Close()
		l := newTestLogger(t, testConfig{
			Config: Config{
				Dial:  f.Dial,
				NoAck: true,
			},
			OnError: func(e batch.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Op == "no-ack" {
					events++
				}
			},
		})
		for i := range 300 {
			mu.Lock()
			keeps = i >= 100 && i < 200
			mu.Unlock()
			_ = l.Post("x", map[string]any{"n": 1})
			time.Sleep(time.Second)
		}
		mu.Lock()
		if events != 2 {
			t.Errorf("%d events", events)
		}
		mu.Unlock()
		_, _ = l.Close(t.Context())
	})
}
