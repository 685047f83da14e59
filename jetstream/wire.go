package jetstream

import (
	"context"
	"net"
	"sync"
	"time"
)

// A wire dials for nats.go and keeps the connection, so that it can be closed: nats.go closes a
// connection only after a blocked write has returned.
type wire struct {
	ctx     context.Context // of the session
	timeout time.Duration   // Config.DialTimeout
	stop    func() bool     // cancels the call of close at the end of ctx

	mu    sync.Mutex // leaf lock; guards the fields below
	conns []net.Conn // all connections made, because nats.go tries several servers
	over  bool       // close was called: no connection may be made
}

// newWire returns a wire that closes its connections when ctx ends.
func newWire(ctx context.Context, timeout time.Duration) *wire {
	w := &wire{ctx: ctx, timeout: timeout}
	w.stop = context.AfterFunc(ctx, w.close) // may run before stop is set
	return w
}

// Dial implements nats.CustomDialer. nats.go calls it for each server in turn.
func (w *wire) Dial(network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: w.timeout}).DialContext(w.ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	w.conns = append(w.conns, c)
	return c, nil
}

// cut closes every connection. It may be called more than once.
func (w *wire) cut() {
	w.stop()
	w.close()
}

// close closes every connection, and makes later calls of Dial fail.
func (w *wire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	for _, c := range w.conns {
		_ = c.Close()
	}
}
