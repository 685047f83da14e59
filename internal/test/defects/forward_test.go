package defects_test

import (
	"context"
	"errors"
	"net"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// A received contains the numbers of the records that a server has accepted, in the order of
// arrival.
type received struct {
	mu  sync.Mutex
	got []int
}

func (b *received) add(ns ...int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, ns...)
}

// copies returns the number of accepted records, including duplicates.
func (b *received) copies() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.got)
}

// firstCopies returns the numbers of the first copies, in the order of arrival.
func (b *received) firstCopies() (out []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := map[int]bool{}
	for _, n := range b.got {
		if !seen[n] {
			out = append(out, n)
		}
		seen[n] = true
	}
	return out
}

var number = regexp.MustCompile(`"n":(\d+)`)

// numbers returns the values of the field n of the records in a message.
func numbers(m *testkit.ForwardMessage) (out []int) {
	for _, e := range m.Entries {
		if f := number.FindSubmatch(fluent.Codec().AppendJSON(nil, e, batch.Meta{})); f != nil {
			n, _ := strconv.Atoi(string(f[1]))
			out = append(out, n)
		}
	}
	return out
}

// acceptAll accepts and acknowledges every message of a connection.
func (b *received) acceptAll(c *testkit.ForwardConn) {
	for {
		m, err := c.Next()
		if err != nil {
			return
		}
		b.add(numbers(m)...)
		if c.Ack(m.Chunk) != nil {
			return
		}
	}
}

// forward returns a server that runs script for each connection. The server is closed at the end of
// the test.
func forward(tb testing.TB, script func(n int, c *testkit.ForwardConn)) *testkit.Forward {
	f := &testkit.Forward{Script: script}
	tb.Cleanup(f.Close)
	return f
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

var errDown = errors.New("connection refused")

// down is the dialer of a server that refuses connections.
func down(context.Context, string, string) (net.Conn, error) { return nil, errDown }

// A forwardOutput is the configuration of a Logger and of its delivery.
type forwardOutput struct {
	fluent.Config
	deliver.OutputOptions
}

// logger opens a Logger that connects through dial. The Logger is closed at the end of the test.
func logger(tb testing.TB, dial dialer, set func(c *forwardOutput)) *fluent.Logger {
	tb.Helper()
	c := forwardOutput{Config: fluent.Config{
		Servers: []string{"server"}, Dial: dial, ReconnectMin: time.Millisecond, ReconnectMax: 100 * time.Millisecond,
	}}
	c.Slab.FlushInterval, c.Slab.WhenFull, c.OnError = time.Millisecond, slab.Block(), func(batch.Event) {}
	c.Deliver.Retry, c.Deliver.HandlerFirst = &deliver.RetryOptions{Min: time.Millisecond, Max: 100 * time.Millisecond}, true
	if set != nil {
		set(&c)
	}
	l, err := fluent.NewLogger(c.Config, forebay.Delivery(func(o *deliver.OutputOptions) { *o = c.OutputOptions }))
	if err != nil {
		tb.Fatalf("cannot run the test: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = l.Close(ctx)
	})
	return l
}

// post posts a record for each number from first to last.
func post(tb testing.TB, l *fluent.Logger, first, last int) {
	tb.Helper()
	for n := first; n <= last; n++ {
		if err := l.Post("tag", map[string]any{"n": n}); err != nil {
			tb.Fatalf("cannot run the test: record %d: %v", n, err)
		}
	}
}

// An accounter is an output, or a Logger, with an account.
type accounter interface{ Account() batch.Account }

// settled waits up to limit until no record of a is pending, and returns the account.
func settled(a accounter, limit time.Duration) batch.Account {
	for end := time.Now().Add(limit); a.Account().Pending.Total() > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	return a.Account()
}

// await calls the function ok until it returns true, or until limit has passed. It returns the last
// result.
func await(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// waitFor waits until ch has a value or is closed. After 5 s it fails the test.
func waitFor(tb testing.TB, ch <-chan struct{}, what string) {
	tb.Helper()
	select {
	case <-ch:
	case <-time.After(5 * time.Second):
		tb.Fatalf("cannot run the test: %s did not happen", what)
	}
}

func ascending(ns []int) bool { return slices.IsSorted(ns) }
