package defects_test

import (
	"context"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A resetConn returns ECONNRESET at the end of the connection, like a TCP connection reset by the
// peer.
type resetConn struct{ net.Conn }

func (c resetConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == io.EOF {
		err = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	}
	return n, err
}

// noAckReset posts records without acknowledgements. The server accepts one message per connection
// and resets the connection, like fluentd with deny_keepalive.
func noAckReset(tb testing.TB) {
	b := new(received)
	auth := &testkit.ForwardAuth{Hostname: "server", Key: "key", Nonce: []byte("nonce"), NoKeepalive: true}
	f := forward(tb, func(_ int, c *testkit.ForwardConn) {
		if ok, err := c.Handshake(auth); !ok || err != nil {
			return
		}
		if m, err := c.Next(); err == nil {
			b.add(numbers(m)...)
		}
	})
	l := logger(tb, func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := f.Dial(ctx, network, addr)
		return resetConn{nc}, err
	}, func(c *forwardOutput) { c.Auth.SharedKey, c.NoAck = "key", true })
	post(tb, l, 1, 30)
	a := settled(l, time.Minute)
	if n := b.copies(); n != 30 || a.Delivered != 30 {
		tb.Errorf("30 records arrived as %d: %s", n, a)
	}
}

// unansweredForward posts 1000 records. The server reads them and does not answer. Then the Logger
// is closed.
func unansweredForward(tb testing.TB) (batch.Report, error) {
	tb.Helper()
	b := new(received)
	f := forward(tb, func(_ int, c *testkit.ForwardConn) {
		for {
			m, err := c.Next()
			if err != nil {
				return
			}
			b.add(numbers(m)...)
		}
	})
	l := logger(tb, f.Dial, nil)
	post(tb, l, 1, 1000)
	if !await(10*time.Second, func() bool { return b.copies() == 1000 }) {
		tb.Fatalf("cannot run the test: %d of 1000 records arrived", b.copies())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return l.Close(ctx)
}

func unknownForward(tb testing.TB) {
	rep, _ := unansweredForward(tb)
	checkUnknown(tb, rep)
}

func deadlineForward(tb testing.TB) {
	_, err := unansweredForward(tb)
	checkDeadline(tb, err)
}

// A hangingConn ignores deadlines and Close. Its reads and writes hang until release is closed.
type hangingConn struct {
	net.Conn
	writes  *atomic.Int64
	release <-chan struct{}
}

func (c hangingConn) Write([]byte) (int, error) {
	c.writes.Add(1)
	<-c.release
	return 0, io.ErrClosedPipe
}

func (c hangingConn) Read([]byte) (int, error) {
	<-c.release
	return 0, io.EOF
}

func (c hangingConn) Close() error                     { return nil }
func (c hangingConn) SetDeadline(time.Time) error      { return nil }
func (c hangingConn) SetReadDeadline(time.Time) error  { return nil }
func (c hangingConn) SetWriteDeadline(time.Time) error { return nil }

// hangingLogger returns a Logger with 1000 records. Its connection hangs until release is called.
func hangingLogger(tb testing.TB) (l *fluent.Logger, release func()) {
	tb.Helper()
	ch, writes := make(chan struct{}), new(atomic.Int64)
	client, server := net.Pipe()
	l = logger(tb, func(context.Context, string, string) (net.Conn, error) {
		return hangingConn{client, writes, ch}, nil
	}, func(c *forwardOutput) { c.FrameBytes = 4 << 10 })
	post(tb, l, 1, 1000)
	if !await(time.Minute, func() bool { return writes.Load() > 0 }) {
		tb.Fatalf("cannot run the test: nothing was written")
	}
	time.Sleep(time.Second)
	return l, func() {
		close(ch)
		client.Close()
		server.Close()
	}
}

// unknownHanging closes a Logger while a write to the server hangs. It repeats this, because the
// order of two goroutines at the deadline is random.
func unknownHanging(tb testing.TB) {
	for range 30 {
		l, release := hangingLogger(tb)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		rep, _ := l.Close(ctx)
		cancel()
		release()
		if rep.Unknown == 0 || rep.Unknown > 1000 {
			tb.Fatalf("a write hangs, Report.Unknown is %d: %s", rep.Unknown, rep.Account)
		}
	}
}

// hangingForward closes a Logger without a spool while the connection hangs. It tries a context
// with a deadline, one that is canceled, and one that has expired.
func hangingForward(tb testing.TB) {
	for _, end := range []func() (context.Context, context.CancelFunc){
		func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 2*time.Second)
		},
		func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		},
		func() (context.Context, context.CancelFunc) { return context.WithTimeout(context.Background(), 0) },
	} {
		l, release := hangingLogger(tb)
		ctx, cancel := end()
		rep, err := l.Close(ctx)
		now := l.Account()
		cancel()
		checkLost(tb, 1000, rep, err)
		if now != rep.Account {
			tb.Errorf("Close reports %s, the account is %s", rep.Account, now)
		}
		release()
		time.Sleep(time.Minute)
		if later := l.Account(); later != now {
			tb.Errorf("after Close the account changes to %s from %s", later, now)
		}
	}
}

// fallbackAccount posts records to a server that is down. The fallback is another Logger.
func fallbackAccount(tb testing.TB) {
	b := new(received)
	f := forward(tb, func(_ int, c *testkit.ForwardConn) { b.acceptAll(c) })
	other := logger(tb, f.Dial, nil)
	l := logger(tb, down, func(c *forwardOutput) { c.Deliver.Handler = fluent.FallbackTo(other) })
	post(tb, l, 1, 100)
	a := settled(l, time.Minute)
	settled(other, time.Minute)
	if a.Handled != 100 || b.copies() != 100 {
		tb.Fatalf("cannot run the test: %d records arrived: %s", b.copies(), a)
	}
	if a := other.Account(); a.Accepted != 100 || a.Delivered != 100 || a.Check() != nil {
		tb.Errorf("the fallback delivered 100 records, its account is %s", a)
	}
}
