package program

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/listen"
)

// action returns what decides about chunks; nil: all are taken.
func (m *faultInjection) action() func(context.Context) listen.Action {
	if m.stall == (stall{}) && m.reset == 0 && m.reject == 0 {
		return nil
	}
	reset, reject := &share{of: float64(m.reset)}, &share{of: float64(m.reject)}
	return func(ctx context.Context) listen.Action {
		switch {
		case m.stall.forever:
			<-ctx.Done()
		case m.stall.d > 0:
			pause(ctx, m.stall.d)
		}
		switch {
		case reset.next():
			return listen.Reset
		case reject.next():
			return listen.Reject
		}
		return listen.Take
	}
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// A share picks so many percent, evenly spread: tests are told which.
type share struct {
	of float64

	mu  sync.Mutex
	sum float64
}

func (s *share) next() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sum += s.of; s.sum < 100 {
		return false
	}
	s.sum -= 100
	return true
}

// A slowListener reads slowly from its connections.
type slowListener struct {
	net.Listener
	perSecond int64
}

func (l slowListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if t, ok := c.(*net.TCPConn); ok {
		t.SetReadBuffer(4 << 10) // or the kernel takes megabytes at once
	}
	return &slowConn{Conn: c, perSecond: l.perSecond, closed: make(chan struct{})}, nil
}

// A slowConn pauses after each read for as long as what was read should have taken.
type slowConn struct {
	net.Conn
	perSecond int64
	closed    chan struct{}
	once      sync.Once
}

// NetConn returns the connection beneath.
func (c *slowConn) NetConn() net.Conn { return c.Conn }

// Close also ends a pause.
func (c *slowConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *slowConn) Read(p []byte) (int, error) {
	most := max(c.perSecond/10, 1) // ten times a second, so that no pause is long
	n, err := c.Conn.Read(p[:min(int64(len(p)), most)])
	if n > 0 {
		t := time.NewTimer(time.Duration(float64(n) / float64(c.perSecond) * float64(time.Second)))
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.closed:
		}
	}
	return n, err
}
