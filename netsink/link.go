package netsink

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// errPeerClosed is why a connection ended that the peer closed in good order.
var errPeerClosed = errors.New("the peer closed the connection")

// A link is one connection, from dial to end. Its reader is the goroutine that
// notices the end.
type link struct {
	conn net.Conn
	dead chan struct{} // closed when the reader has ended

	mu  sync.Mutex // leaf; guards err
	err error      // why the link ended
}

func newLink(conn net.Conn) *link {
	l := &link{conn: conn, dead: make(chan struct{})}
	go l.read()
	return l
}

// read throws away what the peer sends until there is nothing more.
func (l *link) read() {
	defer close(l.dead)
	var buf [512]byte
	for {
		if _, err := l.conn.Read(buf[:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = errPeerClosed
			}
			l.end(err)
			return
		}
	}
}

// end closes the connection because of err. The first reason stays.
func (l *link) end(err error) {
	l.mu.Lock()
	if l.err == nil {
		l.err = err
	}
	l.mu.Unlock()
	_ = l.conn.Close()
}

// why returns the reason for the end.
func (l *link) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// isDead reports whether the peer is gone.
func (l *link) isDead() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

// write writes all of p, each piece of it in its time. It returns how many bytes
// the kernel took. Whoever ends ctx sets a write deadline that is over.
func (l *link) write(ctx context.Context, p []byte, timeout time.Duration) (done int, err error) {
	for done < len(p) {
		if err := l.conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
			return done, l.reason(err)
		}
		if ctx.Err() != nil { // looked at after setting the deadline, not to undo the other
			return done, context.Cause(ctx)
		}
		n, err := l.conn.Write(p[done:min(len(p), done+writeBytes)])
		done += n
		if err != nil {
			return done, l.reason(err)
		}
	}
	return done, nil
}

// writeBytes is the largest single write. Each has its own deadline, so that a
// peer that is slow, but not dead, is not given up.
const writeBytes = 64 << 10

// reason returns why the link ended, if that is known better than from err.
func (l *link) reason(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		if why := l.why(); why != nil {
			return why
		}
	}
	return err
}
