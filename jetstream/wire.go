package jetstream

import (
	"context"
	"net"
	"sync"
	"time"
)

// A wire opens connections for nats.go and keeps references to them, so that the method close can
// close them. nats.go closes a connection only after a blocked write has returned.
type wire struct {
	ctx     context.Context // context of the session
	timeout time.Duration   // Config.DialTimeout
	stop    func() bool     // prevents the call of close at the end of ctx

	mu     sync.Mutex // guards the fields below; no other lock is acquired while it is held
	conns  []net.Conn // all connections that were opened, because nats.go may try several servers
	closed bool       // close was called, so Dial fails
}

// newWire returns a wire that closes its connections when ctx ends.
func newWire(ctx context.Context, timeout time.Duration) *wire {
	w := &wire{ctx: ctx, timeout: timeout}
	w.stop = context.AfterFunc(ctx, w.close) // close may run before stop is set
	return w
}

// Dial implements nats.CustomDialer. nats.go calls it for one server after another.
func (w *wire) Dial(network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: w.timeout}).DialContext(w.ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	w.conns = append(w.conns, c)
	return c, nil
}

// closeAll closes every connection and stops watching the context. It may be called several times.
func (w *wire) closeAll() {
	w.stop()
	w.close()
}

// close closes every connection. After that, calls of Dial fail.
func (w *wire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, c := range w.conns {
		_ = c.Close()
	}
}
