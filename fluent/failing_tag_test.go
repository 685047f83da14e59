package fluent

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// If the server closes the connection at nearly every record of a tag, the records of that tag are
// kept until the server accepts them. The records of another tag arrive.
func TestFailingTagDoesNotHoldOtherTags(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const n = 1200
		var r received
		var mu sync.Mutex
		rng := testkit.Rand(testkit.Seed(t))
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
			for {
				m, err := c.Next()
				if err != nil {
					return
				}
				mu.Lock()
				ends := m.Tag == "failing" && rng.IntN(100) < 98
				mu.Unlock()
				if ends {
					return
				}
				r.add(m)
				c.Ack(m.Chunk)
			}
		}}
		defer f.Close()
		l := newTestLogger(t, testConfig{Config: Config{Dial: f.Dial}, OnError: func(batch.Event) {}})
		for i := range n {
			l.Post("failing", map[string]any{"n": i})
			l.Post("healthy", map[string]any{"n": i})
			time.Sleep(10 * time.Minute / n)
		}
		if got := len(r.firstCopies("healthy")); got < n-20 {
			t.Errorf("%d of %d records of the healthy tag arrived in ten minutes", got, n)
		} else {
			t.Logf("%d of %d", got, n)
		}
		if a := l.Account(); a.Dropped.Total() > 0 {
			t.Error(a)
		}
		l.Close(context.Background())
	})
}
