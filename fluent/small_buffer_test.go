package fluent

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// If the buffer for a tag is full, fluentd closes the connection at the next record of the tag. A
// backlog therefore ends many sessions although no record is bad. With a buffer for 38 records that
// is emptied every 200 ms, all records arrive within a minute.
func TestFullReceiverBufferCondemnsNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const n, room = 600, 38
		var r received
		var mu sync.Mutex
		used, since := 0, time.Now()
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			for {
				m, err := c.Next()
				if err != nil {
					return
				}
				if m.Tag == "full" {
					mu.Lock()
					if time.Since(since) > 200*time.Millisecond {
						used, since = 0, time.Now()
					}
					ends := used+len(m.Entries) > room
					if !ends {
						used += len(m.Entries)
					}
					mu.Unlock()
					if ends {
						return
					}
				}
				r.add(m)
				c.Ack(m.Chunk)
			}
		}}
		defer f.Close()
		l := newTestLogger(t, testConfig{Config: Config{Dial: f.Dial, FrameBytes: 2 << 10}, SpoolDir: t.TempDir(), WhenFull: "spill", OnError: func(batch.Event) {}})
		l.Post("healthy", map[string]any{"n": 0})
		time.Sleep(time.Second)
		began := time.Now()
		for i := range n {
			l.Post("full", map[string]any{"n": i, "d": strings.Repeat("x", 400)})
		}
		for l.Account().Pending.Total() > 0 && time.Since(began) < time.Hour {
			time.Sleep(100 * time.Millisecond)
		}
		took := time.Since(began)
		if a := l.Account(); a.Delivered != n+1 || took > time.Minute {
			t.Errorf("after %s: %s", took, a)
		}
		st := l.Output.Stats().Deliver
		t.Logf("%s, %d sessions, %d suspects, %d trips", took, f.Conns(), st.Suspects, st.Trips)
		l.Close(context.Background())
	})
}
