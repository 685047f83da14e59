package fluent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/forebay-log/forebay/internal/neterr"
)

// dial connects to the server with the given index, including TLS and the handshake. DialTimeout
// limits Config.Dial, and HandshakeTimeout limits everything after it. The error names the server
// and the failed step. It wraps errRefused if only a change of configuration can help.
func (c *resolved) dial(ctx context.Context, index int) (_ *conn, err error) {
	srv, began := c.servers[index], time.Now()
	fail := func(what string, err error) (*conn, error) {
		if isRefusal(err) {
			err = fmt.Errorf("%w: %w", errRefused, err)
		}
		return nil, fmt.Errorf("fluent: cannot %s %s: %w", what, srv.label, err)
	}
	dctx, cancel := context.WithTimeoutCause(ctx, c.DialTimeout, fmt.Errorf("no connection within %s", c.DialTimeout))
	defer cancel()
	nc, err := dialContext(dctx, func() (net.Conn, error) { return c.Dial(dctx, srv.network, srv.address) })
	if err != nil {
		return fail("connect to", neterr.Cause(cause(dctx, err)))
	}
	defer func() {
		if err != nil {
			nc.Close()
		}
	}()
	// TLS and the handshake have their own timeout. If the server process hangs, its kernel still
	// accepts connections.
	hctx, cancel := context.WithTimeoutCause(ctx, c.HandshakeTimeout, fmt.Errorf("not finished within %s", c.HandshakeTimeout))
	defer cancel()
	cn := &conn{
		nc: nc, raw: nc, label: srv.label, index: index, keepalive: true, opened: time.Now(), dialled: time.Since(began),
		conf: c,
	}
	if srv.tls {
		conf := c.tls
		// The certificate must be valid for the host of the address.
		if conf.ServerName == "" {
			conf = conf.Clone()
			conf.ServerName = srv.host
		}
		t := tls.Client(nc, conf)
		if err := t.HandshakeContext(hctx); err != nil {
			return fail("begin TLS with", cause(hctx, err))
		}
		cn.nc = t
	} else {
		// net.Buffers uses writev only for these types. For any other net.Conn it would call Write
		// for each part.
		switch nc.(type) {
		case *net.TCPConn, *net.UnixConn:
			cn.vectors = true
		}
	}
	if !c.Auth.Secured {
		return cn, nil
	}
	deadline, _ := hctx.Deadline()
	// The handshake reads and writes without a context, so its time limit is a deadline of the
	// connection.
	cn.nc.SetDeadline(deadline)
	stop := context.AfterFunc(hctx, func() { nc.SetDeadline(past) })
	h := &handshaker{nc: cn.nc, hostname: c.Auth.Hostname, key: c.credentials.key, user: c.Auth.User, password: c.credentials.password}
	cn.keepalive, err = h.do()
	cn.in = h.in
	// If stop returns false, hctx has ended and the connection's deadline has been set.
	stopped := stop()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		<-hctx.Done() // hctx has the same deadline, and its cause is the better error
	}
	if err != nil {
		return fail("authenticate with", cause(hctx, err))
	}
	if !stopped {
		return fail("authenticate with", context.Cause(hctx))
	}
	// The session sets separate deadlines for reading and writing.
	cn.nc.SetDeadline(time.Time{})
	return cn, nil
}

// dialContext calls the function dial. It returns when ctx ends, even if dial does not, because a
// Config.Dial may ignore its context. If dial returns a connection later, the connection is closed.
func dialContext(ctx context.Context, dial func() (net.Conn, error)) (net.Conn, error) {
	type result struct {
		nc  net.Conn
		err error
	}
	ch := make(chan result, 1)
	go func() {
		nc, err := dial()
		ch <- result{nc, err}
	}()
	select {
	case r := <-ch:
		return r.nc, r.err
	case <-ctx.Done():
	}
	// If both cases are ready, select may choose ctx.Done.
	select {
	case r := <-ch: // dial has returned in the meantime
		return r.nc, r.err
	default:
	}
	// If the function dial returns a connection later, the connection is closed.
	go func() {
		if r := <-ch; r.err == nil {
			r.nc.Close()
		}
	}()
	return nil, ctx.Err()
}

// cause returns the cause of ctx if err is a consequence of the end of ctx. Otherwise it returns
// err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, os.ErrDeadlineExceeded)) {
		return context.Cause(ctx)
	}
	return err
}
