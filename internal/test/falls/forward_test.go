package falls_test

import (
	"context"
	"errors"
	"net"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// A book holds the numbers of the records that a server took, in the order in
// which they came.
type book struct {
	mu  sync.Mutex
	got []int
}

func (b *book) add(ns ...int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, ns...)
}

// copies returns how many records came, copies included.
func (b *book) copies() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.got)
}

// firsts returns the first copies, in the order in which they came.
func (b *book) firsts() (out []int) {
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

// numbers returns the fields n of the records of a message.
func numbers(m *testkit.ForwardMessage) (out []int) {
	for _, e := range m.Entries {
		if f := number.FindSubmatch(fluent.Codec().AppendJSON(nil, e, batch.Meta{})); f != nil {
			n, _ := strconv.Atoi(string(f[1]))
			out = append(out, n)
		}
	}
	return out
}

// obey takes all that comes.
func (b *book) obey(c *testkit.ForwardConn) {
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

// forward returns a server that runs script for each connection, until the end of
// the test.
func forward(tb TB, script func(n int, c *testkit.ForwardConn)) *testkit.Forward {
	f := &testkit.Forward{Script: script}
	tb.Cleanup(f.Close)
	return f
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

var errDown = errors.New("connection refused")

// down is the dialer of a server that is not there.
func down(context.Context, string, string) (net.Conn, error) { return nil, errDown }

// A forwardOutput is the configuration of a Logger.
type forwardOutput struct {
	fluent.Config
	deliver.OutputOptions
}

// logger opens a Logger that connects through dial. It is closed at the end of the
// test, unless the script has closed it.
func logger(tb TB, dial dialer, set func(c *forwardOutput)) *fluent.Logger {
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
		tb.Broken("%v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		_, _ = l.Close(ctx)
	})
	return l
}

// post posts the records from to to.
func post(tb TB, l *fluent.Logger, from, to int) {
	tb.Helper()
	for n := from; n <= to; n++ {
		if err := l.Post("tag", map[string]any{"n": n}); err != nil {
			tb.Broken("record %d: %v", n, err)
		}
	}
}

// An accountant says what became of its records.
type accountant interface{ Account() batch.Account }

// settled waits until nothing of a is pending, for at most limit, and returns its
// account.
func settled(a accountant, limit time.Duration) batch.Account {
	for end := time.Now().Add(limit); a.Account().Pending.Total() > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	return a.Account()
}

// await waits until ok, for at most limit.
func await(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// through waits until ch has something or is closed.
func through(tb TB, ch <-chan struct{}, what string) {
	tb.Helper()
	select {
	case <-ch:
	case <-time.After(5 * time.Second):
		tb.Broken("%s did not happen", what)
	}
}

func ascending(ns []int) bool { return slices.IsSorted(ns) }
