package fluent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// The error handler handlerCalls accepts all records and stores the time of each call.
type handlerCalls struct {
	mu   sync.Mutex
	at   []time.Time
	took int
}

func (c *handlerCalls) HandleError(_ error, b *batch.Batch) batch.Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.took = append(c.at, time.Now()), c.took+b.Len()
	return batch.Outcome{}
}

func (c *handlerCalls) since(t time.Time) (n int, first time.Duration) {
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

// While the server refuses connections or does not respond, the handler is called within 200 ms
// after more than PendingLimit records are pending.
func TestHandlerIsCalledSoonAbovePendingLimit(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { c.Next(); c.Next() }}
			defer f.Close()
			h := &handlerCalls{}
			l := newTestLogger(t, testConfig{
				Config: Config{
					Window: 1,
					Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
						if hangs {
							return f.Dial(ctx, network, addr)
						}
						return nil, errors.New("connection refused")
					},
				},
				PendingLimit: 500,
				SlabBytes:    4 << 10,
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
				t.Errorf("hangs %v: called %d times below the limit", hangs, n)
			}
			for round := range 20 {
				for l.Account().Pending.Total() < 490 { // posted slowly, so that package deliver has taken the records
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
				// If the server hangs, the handler may be called up to a second later, after a
				// probe in progress.
				if most := 200 * time.Millisecond; n == 0 || first > most && !hangs || first > most+time.Second {
					t.Errorf("hangs %v, round %d: called %d times, first after %s; %s", hangs, round, n, first, l.Account())
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			rep, _ := l.Close(ctx)
			synctest.Wait()
			if h.took == 0 || rep.Handled != uint64(h.took) {
				t.Errorf("%d handled, %s", h.took, rep.Account)
			}
		})
	}
}

// If more than PendingLimit records are pending, the handler is called at the first failure: a
// refused connection, a broken connection or a missing acknowledgement.
func TestHandlerIsCalledAtTheFirstFailure(t *testing.T) {
	const ackTimeout = 2 * time.Second
	refused := errors.New("connection refused")
	for _, tt := range []struct {
		name  string
		dial  error
		never bool // the server acknowledges records
		limit int
		most  time.Duration
	}{
		{"refused", refused, false, 0, 150 * time.Millisecond},
		{"refused, above the limit", refused, false, 9, 150 * time.Millisecond},
		{"refused, at the limit", refused, false, 10, 0},
		{"breaks", nil, false, 0, 150 * time.Millisecond},
		{"never acknowledges", nil, true, 0, ackTimeout + 150*time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
					for _, err := c.Next(); err == nil && tt.never; _, err = c.Next() {
					}
				}}
				defer f.Close()
				h := &handlerCalls{}
				l := newTestLogger(t, testConfig{
					Config: Config{
						AckTimeout: ackTimeout,
						Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
							if tt.dial != nil {
								return nil, tt.dial
							}
							return f.Dial(ctx, network, addr)
						},
					},
					PendingLimit: tt.limit,
					OnError:      func(batch.Event) {},
				})
				l.ErrorHandler = h
				begun := time.Now()
				for range 10 {
					l.Post("x", map[string]any{"n": 1})
				}
				time.Sleep(time.Minute)
				if n, first := h.since(begun); (tt.most > 0) != (n > 0) || first > tt.most {
					t.Errorf("called %d times, first after %v; %s", n, first, l.Account())
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				l.Close(ctx)
			})
		})
	}
}

// Logger.ErrorHandler replaces the error handler of the output options.
func TestHandlerOfLoggerReplacesHandlerOfOutput(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		down := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") }
		a, b := &handlerCalls{}, &handlerCalls{}
		l := newTestLogger(t, testConfig{Config: Config{Dial: down}, ErrorHandler: a})
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

// During an outage, the handler is called before a record is dropped. If the handler is fast
// enough, no record is lost. This holds for any kind of outage and any policy for a full buffer.
func TestHandlerIsCalledBeforeADrop(t *testing.T) {
	const n = 2_600 // more than fit into the buffer
	body := strings.Repeat("x", 4000)
	seed, row := testkit.Seed(t), 0
	dials := map[string]func(f *testkit.Forward) func(context.Context, string, string) (net.Conn, error){
		"refuses": func(*testkit.Forward) func(context.Context, string, string) (net.Conn, error) {
			return func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") }
		},
		"does not connect": func(*testkit.Forward) func(context.Context, string, string) (net.Conn, error) {
			return func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
		},
		"does not answer": func(f *testkit.Forward) func(context.Context, string, string) (net.Conn, error) { return f.Dial },
	}
	for _, name := range slices.Sorted(maps.Keys(dials)) {
		for _, tt := range []struct {
			policy string
			every  time.Duration // interval between calls of Post; 0: no pause
			limit  int           // PendingLimit
			late   bool          // set Logger.ErrorHandler instead of the option
			wait   time.Duration // maximum duration of a Post
			crash  bool          // with CrashDir
		}{
			{"", 800 * time.Microsecond, 0, false, 125 * time.Millisecond, false},
			{"", 800 * time.Microsecond, 1 << 20, true, 125 * time.Millisecond, false},
			{"", 0, 0, true, 125 * time.Millisecond, false},
			{"", 0, 1 << 20, false, 125 * time.Millisecond, false},
			{"drop-newest", 800 * time.Microsecond, 0, false, 0, false},
			{"drop-newest", 800 * time.Microsecond, 1 << 20, false, 0, false},
			{"drop-oldest", 800 * time.Microsecond, 0, false, 0, false},
			{"", 800 * time.Microsecond, 0, false, 125 * time.Millisecond, true},
			{"drop-newest", 800 * time.Microsecond, 1 << 20, true, 0, true},
			{"block-for=1s", 0, 0, false, 500 * time.Millisecond, false},
			{"block", 0, 1 << 20, false, defaultAckTimeout + time.Second, false}, // one Post waits until the first failure
		} {
			// A normal run tests a third of the policies with each kind of outage.
			if row++; !testkit.Share(seed, row, 3) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s/%s/%d/crash=%t", name, tt.policy, tt.every, tt.limit, tt.crash), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
						for {
							if _, err := c.Next(); err != nil {
								return
							}
						}
					}}
					defer f.Close()
					h := &handlerCalls{}
					c := testConfig{Config: Config{Dial: dials[name](f)}, WhenFull: tt.policy, PendingLimit: tt.limit}
					if !tt.late {
						c.ErrorHandler = h
					}
					if tt.crash {
						c.CrashDir = t.TempDir()
					}
					l := newTestLogger(t, c)
					if tt.late {
						l.ErrorHandler = h
					}
					began, longest := time.Now(), time.Duration(0)
					for range n {
						start := time.Now()
						_ = l.Post("x", body) // after an error of Post, the account contains the drop
						longest = max(longest, time.Since(start))
						time.Sleep(tt.every)
					}
					took := time.Since(began)
					synctest.Wait()
					a := l.Account()
					if d := a.Dropped.Total(); d != 0 || a.Handled == 0 || longest > tt.wait {
						t.Errorf("%d dropped after %s, a Post took up to %s: %s", d, took, longest, a)
					}
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					if rep, err := l.Close(ctx); err != nil || rep.Handled != n {
						t.Errorf("%v: %s", err, rep.Account)
					}
				})
			})
		}
	}
}
