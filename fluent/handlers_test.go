package fluent

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/testkit"
)

// calls notes when a handler was called, and takes everything.
type calls struct {
	mu   sync.Mutex
	at   []time.Time
	took int
}

func (c *calls) HandleError(_ error, b *batch.Batch) batch.Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.took = append(c.at, time.Now()), c.took+b.Len()
	return batch.Outcome{}
}

func (c *calls) since(t time.Time) (n int, first time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.at {
		if at.After(t) {
			if n++; n == 1 {
				first = at.Sub(t)
			}
		}
	}
	return n, first
}

// While the server is down, the handler on the Logger is asked when PendingLimit is passed,
// at the next flush interval, whether the server refuses connections or hangs.
func TestHandlerIsAskedInTime(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { c.Next(); c.Next() }}
			defer f.Close()
			h := &calls{}
			l := newTestLogger(t, Config{
				PendingLimit: 500, Window: 1, SlabBytes: 4 << 10,
				Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
					if hangs {
						return f.Dial(ctx, network, addr)
					}
					return nil, errors.New("connection refused")
				},
			})
			l.ErrorHandler = h
			transitions, stop := l.Subscribe()
			defer stop()
			for range 300 {
				l.Post("x", map[string]any{"n": 1})
			}
			for tr := range transitions {
				if tr.To == deliver.Open {
					break
				}
			}
			time.Sleep(10 * time.Minute)
			if n, _ := h.since(time.Time{}); n != 0 {
				t.Errorf("hangs %v: asked %d times below the limit", hangs, n)
			}
			for round := range 20 {
				for l.Account().Pending.Total() < 490 { // bit by bit: the outlet has taken what it takes
					l.Post("x", map[string]any{"n": 1})
					time.Sleep(time.Millisecond)
				}
				time.Sleep(time.Second)
				began := time.Now()
				for range 30 {
					l.Post("x", map[string]any{"n": 1})
				}
				time.Sleep(40 * time.Second)
				n, first := h.since(began)
				// A probe of a server that hangs begins at any time, and has a second.
				if most := 200 * time.Millisecond; n == 0 || first > most && !hangs || first > most+time.Second {
					t.Errorf("hangs %v, round %d: asked %d times, first after %s; %s", hangs, round, n, first, l.Account())
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			rep, _ := l.Close(ctx)
			synctest.Wait()
			if h.took == 0 || rep.Handled != uint64(h.took) {
				t.Errorf("%d taken, %s", h.took, rep.Account)
			}
		})
	}
}

// The ErrorHandler of the Logger takes the place of that of the Config.
func TestHandlerOnTheLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") }
		a, b := &calls{}, &calls{}
		l := newTestLogger(t, Config{Dial: down, ErrorHandler: a})
		l.ErrorHandler = b
		l.Post("x", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if a.took != 0 || b.took != 1 || l.Account().Handled != 1 {
			t.Errorf("%d and %d, %s", a.took, b.took, l.Account())
		}
		closeLogger(t, l)
	})
}
