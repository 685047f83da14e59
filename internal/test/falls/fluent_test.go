package falls_test

import (
	"context"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A resetConn ends as a TCP connection does that the peer resets.
type resetConn struct{ net.Conn }

func (c resetConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == io.EOF {
		err = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	}
	return n, err
}

// noAckReset posts without acknowledgements to a server that takes one message for
// each connection and then resets it, as fluentd does with deny_keepalive.
func noAckReset(tb TB) {
	b := new(book)
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

// unansweredForward closes while a server has read 1000 records and says nothing.
func unansweredForward(tb TB) (batch.Report, error) {
	tb.Helper()
	b := new(book)
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
		tb.Broken("%d of 1000 records came", b.copies())
	}
	ctx, cancel := context.WithTimeout(background, 2*time.Second)
	defer cancel()
	return l.Close(ctx)
}

func unknownForward(tb TB) {
	rep, _ := unansweredForward(tb)
	allUnknown(tb, rep)
}

func deadlineForward(tb TB) {
	_, err := unansweredForward(tb)
	outOfTime(tb, err)
}

// A deafConn reads nothing, takes no deadline, and does not end.
type deafConn struct {
	net.Conn
	writes  *atomic.Int64
	release <-chan struct{}
}

func (c deafConn) Write([]byte) (int, error) {
	c.writes.Add(1)
	<-c.release
	return 0, io.ErrClosedPipe
}

func (c deafConn) Read([]byte) (int, error) {
	<-c.release
	return 0, io.EOF
}

func (c deafConn) Close() error                     { return nil }
func (c deafConn) SetDeadline(time.Time) error      { return nil }
func (c deafConn) SetReadDeadline(time.Time) error  { return nil }
func (c deafConn) SetWriteDeadline(time.Time) error { return nil }

// hung returns a Logger with 1000 records whose connection hangs until release.
func hung(tb TB) (l *fluent.Logger, release func()) {
	tb.Helper()
	ch, writes := make(chan struct{}), new(atomic.Int64)
	client, server := net.Pipe()
	l = logger(tb, func(context.Context, string, string) (net.Conn, error) {
		return deafConn{client, writes, ch}, nil
	}, func(c *forwardOutput) { c.FrameBytes = 4 << 10 })
	post(tb, l, 1, 1000)
	if !await(time.Minute, func() bool { return writes.Load() > 0 }) {
		tb.Broken("nothing was written")
	}
	time.Sleep(time.Second)
	return l, func() {
		close(ch)
		client.Close()
		server.Close()
	}
}

// unknownHanging closes while a write to the server hangs. Two goroutines may be first
// when the time is over, so it does so many times.
func unknownHanging(tb TB) {
	for range 30 {
		l, release := hung(tb)
		ctx, cancel := context.WithTimeout(background, 2*time.Second)
		rep, _ := l.Close(ctx)
		cancel()
		release()
		if rep.Unknown == 0 || rep.Unknown > 1000 {
			tb.Fatalf("a write hangs, Report.Unknown is %d: %s", rep.Unknown, rep.Account)
		}
	}
}

// hangingForward closes while the connection hangs, without a spool: with a deadline,
// with a caller that gives up, and without any time.
func hangingForward(tb TB) {
	for _, end := range []func() (context.Context, context.CancelFunc){
		func() (context.Context, context.CancelFunc) { return context.WithTimeout(background, 2*time.Second) },
		func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(background)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		},
		func() (context.Context, context.CancelFunc) { return context.WithTimeout(background, 0) },
	} {
		l, release := hung(tb)
		ctx, cancel := end()
		rep, err := l.Close(ctx)
		now := l.Account()
		cancel()
		lost(tb, 1000, rep, err)
		if now != rep.Account {
			tb.Errorf("Close reports %s, the account says %s", rep.Account, now)
		}
		release()
		time.Sleep(time.Minute)
		if later := l.Account(); later != now {
			tb.Errorf("after Close the account becomes %s from %s", later, now)
		}
	}
}

// fallbackAccount posts to a server that is down, with another Logger to fall back
// to.
func fallbackAccount(tb TB) {
	b := new(book)
	f := forward(tb, func(_ int, c *testkit.ForwardConn) { b.obey(c) })
	other := logger(tb, f.Dial, nil)
	l := logger(tb, down, func(c *forwardOutput) { c.Deliver.Handler = fluent.FallbackTo(other) })
	post(tb, l, 1, 100)
	a := settled(l, time.Minute)
	settled(other, time.Minute)
	if a.Handled != 100 || b.copies() != 100 {
		tb.Broken("%d records came: %s", b.copies(), a)
	}
	if a := other.Account(); a.Accepted != 100 || a.Delivered != 100 || a.Check() != nil {
		tb.Errorf("the fallback delivered 100 records, its own account says %s", a)
	}
}
