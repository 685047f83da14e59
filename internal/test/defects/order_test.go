package defects_test

import (
	"context"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/testkit"
)

// A slowError is a connection error. The first call of its method Error closes the channel asked
// and then sleeps.
type slowError struct {
	once  sync.Once
	asked chan struct{}
}

func (e *slowError) Error() string {
	e.once.Do(func() {
		close(e.asked)
		time.Sleep(30 * time.Millisecond)
	})
	return "connection reset by peer"
}

func (e *slowError) Unwrap() error { return syscall.ECONNRESET }

// A cutConn is a connection whose reads fail with err after cut is closed.
type cutConn struct {
	net.Conn
	cut <-chan struct{}
	err error
}

func (c *cutConn) Read(p []byte) (int, error) {
	got := make(chan int, 1)
	go func() {
		n, err := c.Conn.Read(p)
		if err == nil {
			got <- n
		}
	}()
	select {
	case n := <-got:
		return n, nil
	case <-c.cut:
		return 0, c.err
	}
}

// orderDuringReport ends a connection with two batches in flight, and posts a third record while
// the client reports the failure. With one processor, the posting goroutine continues only after
// the reporting one.
func orderDuringReport(tb testing.TB) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for range 10 { // repeated, because on a busy machine the events may occur in another order
		if b := reportRound(tb); !ascending(b.firstCopies()) {
			tb.Fatalf("first copies arrived as %v", b.firstCopies())
		}
	}
}

func reportRound(tb testing.TB) *received {
	b := new(received)
	cut, arrived := make(chan struct{}), make(chan struct{}, 8)
	end := &slowError{asked: make(chan struct{})}
	f := &testkit.Forward{Script: func(n int, c *testkit.ForwardConn) {
		if n > 0 {
			b.acceptAll(c)
			return
		}
		for { // these messages are lost with the connection
			if _, err := c.Next(); err != nil {
				return
			}
			arrived <- struct{}{}
		}
	}}
	defer f.Close()
	var first sync.Once
	l := logger(tb, func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := f.Dial(ctx, network, addr)
		first.Do(func() { nc = &cutConn{nc, cut, end} })
		return nc, err
	}, nil)
	for n := 1; n <= 2; n++ {
		post(tb, l, n, n)
		waitFor(tb, arrived, "a batch")
	}
	close(cut)
	select {
	case <-end.asked:
	case <-time.After(200 * time.Millisecond): // the client does not call Error
	}
	post(tb, l, 3, 3)
	if a := settled(l, 5*time.Second); a.Delivered != 3 {
		tb.Fatalf("cannot run the test: %s", a)
	}
	_, _ = l.Close(context.Background())
	return b
}

// orderOneMessage posts records to a server that closes each connection after one message. One
// connection ends without an answer while other records wait.
func orderOneMessage(tb testing.TB) {
	b := new(received)
	arrived, die := make(chan struct{}, 1), make(chan struct{})
	auth := &testkit.ForwardAuth{Hostname: "server", Key: "key", Nonce: []byte("nonce"), NoKeepalive: true}
	f := forward(tb, func(n int, c *testkit.ForwardConn) {
		if ok, err := c.Handshake(auth); !ok || err != nil {
			return
		}
		m, err := c.Next()
		if err != nil {
			return
		}
		if n == 0 {
			arrived <- struct{}{}
			<-die
			return
		}
		b.add(numbers(m)...)
		_ = c.Ack(m.Chunk)
	})
	l := logger(tb, f.Dial, func(c *forwardOutput) { c.Auth.SharedKey = "key" })
	post(tb, l, 1, 1)
	waitFor(tb, arrived, "the first message")
	for n := 2; n <= 3; n++ {
		post(tb, l, n, n)
		time.Sleep(100 * time.Millisecond)
	}
	close(die)
	if a := settled(l, time.Minute); a.Delivered != 3 {
		tb.Fatalf("cannot run the test: %s", a)
	}
	if !ascending(b.firstCopies()) {
		tb.Errorf("first copies arrived as %v", b.firstCopies())
	}
}

// orderFailback posts records after a better server has become available again. The server in use
// has not answered yet; it resets the connection.
func orderFailback(tb testing.TB) {
	b := new(received)
	arrived, die := make(chan struct{}, 8), make(chan struct{})
	better := forward(tb, func(_ int, c *testkit.ForwardConn) { b.acceptAll(c) })
	worse := forward(tb, func(_ int, c *testkit.ForwardConn) {
		m, err := c.Next()
		if err != nil {
			return
		}
		b.add(numbers(m)...)
		if c.Ack(m.Chunk) != nil {
			return
		}
		if _, err = c.Next(); err != nil {
			return
		}
		arrived <- struct{}{}
		<-die
	})
	var mu sync.Mutex
	back := false
	l := logger(tb, func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case addr == "worse:24224":
			return worse.Dial(ctx, network, addr)
		case back:
			return better.Dial(ctx, network, addr)
		}
		return nil, errDown
	}, func(c *forwardOutput) {
		c.Servers, c.Failback = []string{"better", "worse"}, time.Second
	})
	post(tb, l, 1, 1)
	if a := settled(l, time.Minute); a.Delivered != 1 {
		tb.Fatalf("cannot run the test: %s", a)
	}
	mu.Lock()
	back = true
	mu.Unlock()
	time.Sleep(2 * time.Second)
	for n := 2; n <= 4; n++ {
		post(tb, l, n, n)
		if n == 2 {
			waitFor(tb, arrived, "the second message")
		}
		time.Sleep(100 * time.Millisecond)
	}
	close(die)
	if a := settled(l, time.Minute); a.Delivered != 4 {
		tb.Fatalf("cannot run the test: %s", a)
	}
	if !ascending(b.firstCopies()) {
		tb.Errorf("first copies arrived as %v", b.firstCopies())
	}
}
