package fluent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// Each row of the table in docs/MIGRATING-fluent-logger-go.md has a test. The name of the test is
// the beginning of the row's first cell.
func TestMigratingFromFluentLoggerGo(t *testing.T) {
	page, err := os.ReadFile("../docs/MIGRATING-fluent-logger-go.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| fluent-logger-go ") {
			rows = append(rows, strings.TrimPrefix(line, "| "))
		}
	}
	for name, f := range migrations {
		n := 0
		rows = slices.DeleteFunc(rows, func(row string) bool {
			if !strings.HasPrefix(row, name) {
				return false
			}
			n++
			return true
		})
		if n != 1 {
			t.Errorf("%d rows begin with %s", n, name)
		}
		t.Run(name, func(t *testing.T) { bubble.Test(t, f) })
	}
	for _, row := range rows {
		t.Errorf("no test for %s", row)
	}
}

func refusing(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("connection refused")
}

// downWith returns a Logger whose server is down. Its circuit breaker opens at the first failure.
func downWith(t *testing.T, c testConfig) *Logger {
	c.Dial = refusing
	if c.Breaker == nil {
		c.Breaker = &deliver.BreakerOptions{Failures: 1}
	}
	return newTestLogger(t, c)
}

// upWith returns a Logger whose server acknowledges every record. The second result contains the
// received records.
func upWith(t *testing.T, c testConfig) (*Logger, *received) {
	r := new(received)
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
	t.Cleanup(func() { f.Close() })
	c.Dial = f.Dial
	return newTestLogger(t, c), r
}

// closeNow closes l without waiting for its records.
func closeNow(l *Logger) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _ = l.Close(ctx)
}

func mustResolve(t *testing.T) *resolved {
	t.Helper()
	r, err := testConfig{}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// awaitTransition returns the first transition for which the function f returns true.
func awaitTransition(ch <-chan deliver.Transition, f func(deliver.Transition) bool) (tr deliver.Transition) {
	for tr = range ch {
		if f(tr) {
			break
		}
	}
	return tr
}

var migrations = map[string]func(t *testing.T){
	"`NewLogger` fails": func(t *testing.T) {
		l := downWith(t, testConfig{})
		defer closeNow(l)
		if l.Post("x", nil) != nil || l.Account().Pending.Total() != 1 {
			t.Error(l.Account())
		}
	},
	"`Config.Address`": func(t *testing.T) {
		s, err := parseServer("unix:/path")
		if r := mustResolve(t); err != nil || s.network != "unix" || s.address != "/path" || r.servers[0].address != "127.0.0.1:24224" {
			t.Error(s, err)
		}
	},
	"`Config.ConnectionTimeout`": func(t *testing.T) {
		if r := mustResolve(t); r.DialTimeout != 5*time.Second {
			t.Error(r.DialTimeout)
		}
	},
	"`Config.FlushInterval`": func(t *testing.T) {
		l, r := upWith(t, testConfig{})
		defer closeLogger(t, l)
		began := time.Now()
		l.Post("x", map[string]any{"n": 0})
		for len(r.get("x")) == 0 {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took > 101*time.Millisecond {
			t.Error(took)
		}
	},
	"`Config.PendingLimit`": func(t *testing.T) {
		for _, n := range []int{10, 11} { // TestHandlerIsCalledBeforeADrop tests the full buffer
			h := &handlerCalls{}
			l := downWith(t, testConfig{PendingLimit: 10, ErrorHandler: h})
			for range n {
				l.Post("x", nil)
			}
			time.Sleep(time.Minute)
			if called, _ := h.since(time.Time{}); called > 0 != (n > 10) {
				t.Errorf("%d records, called %d times", n, called)
			}
			closeNow(l)
		}
	},
	"unbounded memory for pending messages": func(t *testing.T) {
		l := downWith(t, testConfig{})
		defer closeNow(l)
		if s := l.Stats().Slab; s.SlabCount*s.SlabBytes != 4<<20 {
			t.Error(s.SlabCount, s.SlabBytes)
		}
	},
	"`Config.FailureThreshold`": func(t *testing.T) {
		for _, n := range []int{1, 5} {
			b := &deliver.BreakerOptions{Failures: 1}
			if n == 5 {
				b = &deliver.BreakerOptions{}
			}
			l := downWith(t, testConfig{Breaker: b})
			ch, _ := l.Subscribe()
			l.Post("x", nil)
			for i := range n {
				if tr := <-ch; (tr.To == deliver.Open) != (i == n-1) {
					t.Errorf("failure %d of %d: %+v", i, n, tr)
				}
			}
			closeNow(l)
		}
	},
	"`Logger.ErrorHandler`": func(t *testing.T) { // TestHandlerOfLoggerReplacesHandlerOfOutput tests the handler of Config
		h := &handlerCalls{}
		l := downWith(t, testConfig{})
		l.ErrorHandler = h
		l.Post("x", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if h.took != 1 {
			t.Error(h.took)
		}
		closeLogger(t, l)
	},
	"`HandleError(error, []byte) error`": func(t *testing.T) {
		var _ interface {
			HandleError(cause error, b *batch.Batch) batch.Outcome
		} = deliver.ErrorHandler(nil)
	},
	"`HandleError` returns nil": func(t *testing.T) {
		l := downWith(t, testConfig{ErrorHandler: deliver.ErrorHandlerFunc(func(error, *batch.Batch) (o batch.Outcome) { return o })})
		l.Post("x", nil)
		time.Sleep(time.Minute)
		if a := l.Account(); a.Handled != 1 {
			t.Error(a)
		}
		closeLogger(t, l)
	},
	"`HandleError` returns an error": func(t *testing.T) {
		n := 0
		l := downWith(t, testConfig{
			ErrorHandler: deliver.ErrorHandlerFunc(func(cause error, b *batch.Batch) batch.Outcome {
				if n++; b.Len() != 2 {
					t.Errorf("call %d has %d records", n, b.Len())
				}
				return batch.FailedOutcome(cause)
			}),
		})
		l.Post("x", nil)
		l.Post("x", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if a := l.Account(); n < 2 || a.Pending.Total() != 2 {
			t.Errorf("%d calls, %s", n, a)
		}
		closeNow(l)
	},
	"— ": func(t *testing.T) {
		l := downWith(t, testConfig{
			PendingLimit: 4,
			ErrorHandler: deliver.ErrorHandlerFunc(func(cause error, _ *batch.Batch) (o batch.Outcome) {
				if p := new(deliver.PendingError); !errors.As(cause, &p) || p.Pending != 5 {
					t.Error(cause)
				}
				return o
			}),
		})
		for range 5 {
			l.Post("x", nil)
		}
		time.Sleep(time.Minute)
		closeLogger(t, l)
	},
	"`ErrorHandlerFunc`": func(t *testing.T) {
		var _ deliver.ErrorHandler = deliver.ErrorHandlerFunc(nil)
	},
	"`NewFallbackHandler(other)`": func(t *testing.T) {
		other, r := upWith(t, testConfig{})
		l := downWith(t, testConfig{})
		l.ErrorHandler = FallbackTo(other)
		l.Post("x", map[string]any{"n": 7})
		time.Sleep(time.Minute)
		if a := l.Account(); a.Handled != 1 || !slices.Equal(r.get("x"), []int{7}) {
			t.Error(a, r.get("x"))
		}
		closeLogger(t, l)
		closeLogger(t, other)
	},
	"`NewFallbackJSONHandler(w)`": func(t *testing.T) {
		var buf bytes.Buffer
		l := downWith(t, testConfig{})
		l.ErrorHandler = deliver.JSONLines(&buf)
		l.PostWithTime("x", time.Unix(0, 0), map[string]any{"n": nan()})
		time.Sleep(time.Minute)
		closeLogger(t, l)
		if got, want := buf.String(), `{"tag":"x","time":"1970-01-01T00:00:00Z","record":{"n":"NaN"}}`+"\n"; got != want {
			t.Error(got)
		}
	},
	"`Subscribe() ": func(t *testing.T) {
		l := downWith(t, testConfig{Breaker: &deliver.BreakerOptions{Failures: 100}})
		var ch <-chan deliver.Transition
		ch, stop := l.Subscribe()
		l.Post("x", nil)
		time.Sleep(time.Hour)
		if len(ch) != 16 || cap(ch) != 16 {
			t.Errorf("%d of %d", len(ch), cap(ch))
		}
		closeNow(l)
		for range ch { // drain ch until it is closed
		}
		stop()
	},
	"`BreakerFail`": func(t *testing.T) {
		l := downWith(t, testConfig{Breaker: &deliver.BreakerOptions{Failures: 2}})
		ch, _ := l.Subscribe()
		l.Post("x", nil)
		for _, to := range []deliver.State{deliver.Closed, deliver.Open} {
			if tr := <-ch; tr.From != deliver.Closed || tr.To != to || tr.Err == nil {
				t.Errorf("%+v", tr)
			}
		}
		closeNow(l)
	},
	"`BreakerTripped`": func(t *testing.T) {
		l := downWith(t, testConfig{})
		ch, _ := l.Subscribe()
		l.Post("x", nil)
		if tr := <-ch; tr.To != deliver.Open || tr.Err == nil {
			t.Errorf("%+v", tr)
		}
		closeNow(l)
	},
	"`BreakerReady`": func(t *testing.T) {
		l := downWith(t, testConfig{})
		ch, _ := l.Subscribe()
		l.Post("x", nil)
		awaitTransition(ch, func(tr deliver.Transition) bool { return tr.To == deliver.Open })
		if tr := <-ch; tr.To != deliver.HalfOpen || tr.Err != nil {
			t.Errorf("%+v", tr)
		}
		closeNow(l)
	},
	"`BreakerReset`": func(t *testing.T) {
		down := true
		var r received
		f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
		defer f.Close()
		l := newTestLogger(t, testConfig{
			Config: Config{
				Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
					if down {
						down = false
						return nil, errors.New("connection refused")
					}
					return f.Dial(ctx, network, addr)
				},
			},
			Breaker: &deliver.BreakerOptions{Failures: 1, Successes: 1},
		})
		ch, _ := l.Subscribe()
		l.Post("x", nil)
		if tr := awaitTransition(ch, func(tr deliver.Transition) bool { return tr.To == deliver.Closed }); tr.From != deliver.HalfOpen || tr.Err != nil {
			t.Errorf("%+v", tr)
		}
		closeLogger(t, l)
	},
	"`ErrBreakerOpen`": func(t *testing.T) {
		l := downWith(t, testConfig{
			ErrorHandler: deliver.ErrorHandlerFunc(func(cause error, _ *batch.Batch) (o batch.Outcome) {
				if !errors.Is(cause, deliver.ErrOpen) {
					t.Error(cause)
				}
				return o
			}),
		})
		l.Post("x", nil)
		time.Sleep(time.Minute)
		closeLogger(t, l)
	},
	"open for 500 ms": func(t *testing.T) {
		l := downWith(t, testConfig{})
		ch, _ := l.Subscribe()
		l.Post("x", nil)
		opened := (<-ch).Time
		if d := (<-ch).Time.Sub(opened); d < 500*time.Millisecond || d > time.Second {
			t.Errorf("open for %s", d)
		}
		time.Sleep(time.Hour)
		var last time.Duration
		for len(ch) > 0 {
			if tr := <-ch; tr.To == deliver.Open {
				opened = tr.Time
			} else {
				last = tr.Time.Sub(opened)
			}
		}
		if last < 30*time.Second || last > time.Minute {
			t.Errorf("last open period: %s", last)
		}
		closeNow(l)
	},
	"`Post(tag, obj)`": func(t *testing.T) { // TestPostAllocatesNothing tests the allocations
		var _ interface{ Post(tag string, v any) error } = new(Logger)
	},
	"`PostWithTime(tag, t, obj)`": func(t *testing.T) {
		var _ interface {
			PostWithTime(tag string, t time.Time, v any) error
		} = new(Logger)
	},
	"time of events": func(t *testing.T) {
		at := time.Unix(1, 5)
		for whole, want := range map[bool]string{false: "1970-01-01T00:00:01.000000005Z", true: "1970-01-01T00:00:01Z"} {
			var buf bytes.Buffer
			l := downWith(t, testConfig{Config: Config{IntegerTime: whole}, ErrorHandler: deliver.JSONLines(&buf)})
			l.PostWithTime("x", at, nil)
			time.Sleep(time.Minute)
			closeLogger(t, l)
			if !strings.Contains(buf.String(), fmt.Sprintf("%q", want)) {
				t.Errorf("whole seconds %v: %s", whole, buf.String())
			}
		}
	},
	"`msgpack` tags": func(t *testing.T) {
		type part struct{ B int }
		e, err := AppendEvent(nil, time.Unix(0, 0), struct {
			A int  `msgpack:"a"`
			C int  `fluent:"c" msgpack:"no"`
			P part `msgpack:",inline"`
		}{1, 2, part{3}})
		if js, ok := appendEntryJSON(nil, e); err != nil || !ok || !strings.Contains(string(js), `"record":{"a":1,"c":2,"B":3}`) {
			t.Errorf("%v: %s", err, js)
		}
	},
	"embedded structs": func(t *testing.T) {
		type Part struct{ B int }
		e, err := AppendEvent(nil, time.Unix(0, 0), struct {
			Part
			A int
		}{Part{3}, 1})
		if js, ok := appendEntryJSON(nil, e); err != nil || !ok || !strings.Contains(string(js), `"record":{"B":3,"A":1}`) {
			t.Errorf("%v: %s", err, js)
		}
	},
	"`Close()` tries once": func(t *testing.T) {
		l := downWith(t, testConfig{})
		l.Post("x", nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		rep, err := l.Close(ctx)
		if took := time.Since(began); err == nil || rep.Dropped[batch.Shutdown] != 1 || took < 5*time.Second {
			t.Errorf("%v after %s: %s", err, took, rep.Account)
		}
	},
	"`Post` after `Close`": func(t *testing.T) {
		l := downWith(t, testConfig{})
		closeNow(l)
		if err := l.Post("x", nil); !errors.Is(err, batch.ErrClosed) || l.Stats().Refused != 1 {
			t.Error(err)
		}
	},
}
