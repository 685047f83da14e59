package fluent

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/forebay-log/forebay/internal/msgpack"
)

// A conn is a connection to a server after the handshake. One goroutine reads and one writes at a time;
// interrupt may be called at any time from any goroutine.
type conn struct {
	nc        net.Conn      // the TLS connection or raw
	raw       net.Conn      // the connection of Config.Dial
	label     string        // name of the server in messages
	index     int           // of the server in the roster
	keepalive bool          // false: the server closes after one message
	vectors   bool          // nc is a kernel socket, for which net.Buffers uses writev
	in        []byte        // input that is not parsed yet
	opened    time.Time     // start of the TLS handshake
	dialled   time.Duration // time that Config.Dial took, about one round trip
	of        *resolved     // configuration; its secrets are removed from errors
	cut       atomic.Bool   // interrupt was called
}

// dial connects to the server index, including TLS and the handshake. Config.Dial is limited by
// DialTimeout, the rest by HandshakeTimeout. The error names the server and the step, and wraps
// errRefused if only another configuration can help.
func (c *Driver) dial(ctx context.Context, index int) (_ *conn, err error) {
	srv, began := c.c.servers[index], time.Now()
	fail := func(what string, err error) (*conn, error) {
		if isRefusal(err) {
			err = fmt.Errorf("%w: %w", errRefused, err)
		}
		return nil, fmt.Errorf("fluent: cannot %s %s: %w", what, srv.label, err)
	}
	dctx, cancel := context.WithTimeoutCause(ctx, c.c.DialTimeout, fmt.Errorf("no connection within %s", c.c.DialTimeout))
	defer cancel()
	nc, err := dialContext(dctx, func() (net.Conn, error) { return c.c.Dial(dctx, srv.network, srv.address) })
	if err != nil {
		return fail("connect to", cause(dctx, err))
	}
	defer func() {
		if err != nil {
			nc.Close()
		}
	}()
	// TLS and the handshake have a separate time, because a listening kernel accepts connections for
	// a process that hangs.
	hctx, cancel := context.WithTimeoutCause(ctx, c.c.HandshakeTimeout, fmt.Errorf("not finished within %s", c.c.HandshakeTimeout))
	defer cancel()
	cn := &conn{
		nc: nc, raw: nc, label: srv.label, index: index, keepalive: true, opened: time.Now(), dialled: time.Since(began),
		of: c.c,
	}
	if srv.tls {
		conf := c.c.tls
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
		// For any other net.Conn, net.Buffers would call Write for each part.
		switch nc.(type) {
		case *net.TCPConn, *net.UnixConn:
			cn.vectors = true
		}
	}
	if !c.c.Auth.Secured {
		return cn, nil
	}
	deadline, _ := hctx.Deadline()
	cn.nc.SetDeadline(deadline)
	stop := context.AfterFunc(hctx, func() { nc.SetDeadline(past) })
	h := &handshaker{nc: cn.nc, hostname: c.c.Auth.Hostname, key: c.c.credentials.key, user: c.c.Auth.User, password: c.c.credentials.password}
	cn.keepalive, err = h.do()
	cn.in = h.in
	// stop returns false if the function that sets the deadline has been called: hctx has ended.
	stopped := stop()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		<-hctx.Done() // hctx has the same deadline and provides the cause
	}
	if err != nil {
		return fail("authenticate with", cause(hctx, err))
	}
	if !stopped {
		return fail("authenticate with", context.Cause(hctx))
	}
	cn.nc.SetDeadline(time.Time{})
	return cn, nil
}

// dialContext calls dial and returns when ctx ends, even if dial ignores its context, as a Config.Dial
// may. A connection that dial returns after that is closed.
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
	// Both cases of the select may have been ready.
	select {
	case r := <-ch: // dial has returned in the meantime
		return r.nc, r.err
	default:
	}
	// dial cannot be stopped. Its connection is closed when it returns one.
	go func() {
		if r := <-ch; r.err == nil {
			r.nc.Close()
		}
	}()
	return nil, ctx.Err()
}

// cause returns the cause of ctx if err is a consequence of the end of ctx, otherwise err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, os.ErrDeadlineExceeded)) {
		return context.Cause(ctx)
	}
	return err
}

// isRefusal reports whether only another configuration can help: the certificate of the server is not
// valid, or the server has sent a TLS alert, for example because it requires a client certificate.
// Package crypto/tls reports an alert as a net.OpError with Op "remote error".
func isRefusal(err error) bool {
	var cert *tls.CertificateVerificationError
	var op *net.OpError
	return errors.As(err, &cert) || errors.As(err, &op) && op.Op == "remote error"
}

// isGone reports whether err means that the server closed the connection. io.ErrClosedPipe is the error
// of a net.Pipe, which tests use.
func isGone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}

// isMute reports whether err means that the server does not respond although the connection is open.
func isMute(err error) bool {
	return errors.Is(err, errNoAck) || errors.Is(err, errUnread) || errors.Is(err, errNoBeat)
}

// past is a deadline that makes current and later operations of a net.Conn fail at once.
var past = time.Unix(1, 0)

// interrupt makes all current and later operations on the connection fail immediately. It does not
// close the connection.
func (c *conn) interrupt() {
	c.cut.Store(true)
	if c.nc.SetDeadline(past) != nil {
		c.raw.Close() // it does not support deadlines
	}
}

// readUntil sets the deadline for reads; the zero time means none. It has no effect after interrupt.
func (c *conn) readUntil(t time.Time) {
	c.nc.SetReadDeadline(t)
	if c.cut.Load() { // interrupt may have set its deadline between the two calls
		c.interrupt()
	}
}

// writeUntil sets the deadline for writes. It has no effect after interrupt.
func (c *conn) writeUntil(t time.Time) {
	c.nc.SetWriteDeadline(t)
	if c.cut.Load() {
		c.interrupt()
	}
}

// tlsCloseTimeout is how long tls.Conn.Close may take to send its close_notify alert to a server that
// does not read. The timeout of package crypto/tls is 5 s.
const tlsCloseTimeout = 200 * time.Millisecond

// close closes the connection. It may be called more than once.
func (c *conn) close() {
	// Closing the socket below TLS ends a blocked close_notify.
	if c.nc != c.raw {
		t := time.AfterFunc(tlsCloseTimeout, func() { c.raw.Close() })
		defer t.Stop()
	}
	c.nc.Close()
}

// write writes the frames of j with indexes in [from, to) within timeout, and returns the number of
// bytes written. Over a kernel socket the records of a batch of one tag are written with writev
// directly from the memory of the batch; otherwise they are copied into one buffer.
func (c *conn) write(w *framer, j *job, from, to int, timeout time.Duration) (int64, error) {
	c.writeUntil(time.Now().Add(timeout))
	var n int64
	var err error
	if c.vectors && w.zip == nil && j.lay.order == nil {
		n, err = c.writeVectors(w, j, from, to)
	} else {
		var k int
		k, err = w.whole(&j.lay, j.lay.frames[from:to], j.b, c.nc.Write)
		n = int64(k)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w within %s", errUnread, timeout)
	}
	return n, err
}

// writeVectors writes frames with writev, without copying their records.
func (c *conn) writeVectors(w *framer, j *job, from, to int) (int64, error) {
	frames := j.lay.frames[from:to]
	size := 0
	for i := range frames {
		size += headBytes + len(frames[i].tag)
	}
	lent, _ := scratch.Get(size)
	defer scratch.Put(lent)
	buf := lent[:0] // large enough for all heads and tails: j.vec refers to it
	j.vec = j.vec[:0]
	add := func(p []byte) { j.vec = append(j.vec, p) }
	for i := range frames {
		f := &frames[i]
		at := len(buf)
		buf = w.head(buf, f, f.bytes)
		add(buf[at:len(buf):len(buf)])
		w.pieces(&j.lay, j.b, f, add)
		at = len(buf)
		buf = w.tail(buf, f)
		add(buf[at:len(buf):len(buf)])
	}
	j.out = j.vec // a copy of the slice header, because WriteTo consumes it
	n, err := j.out.WriteTo(c.nc)
	clear(j.vec[:cap(j.vec)]) // no references to the memory of the batch remain
	return n, err
}

// read waits for input and appends it to c.in. It returns nil if it has read at least one byte.
func (c *conn) read() error {
	c.in = slices.Grow(c.in, 512)
	n, err := c.nc.Read(c.in[len(c.in):cap(c.in)])
	c.in = c.in[:len(c.in)+n]
	if n > 0 {
		return nil
	}
	return err
}

// answers parses the complete messages in c.in, calls acked for each acknowledged id, and keeps the
// rest. It returns an error for any other message: the connection cannot be used further.
func (c *conn) answers(acked func(chunkID)) error {
	rest := c.in
	defer func() { c.in = append(c.in[:0], rest...) }()
	for len(rest) > 0 {
		next, err := msgpack.Skip(rest)
		if err == msgpack.ErrShort {
			if len(rest) > maxMessage {
				return fmt.Errorf("the server's message is longer than %d bytes", maxMessage)
			}
			break
		}
		if err != nil {
			return unexpectedMessage(noForward, rest, c.of.credentials)
		}
		id, ok, err := parseAck(rest[:len(rest)-len(next)])
		if err == errNotAck {
			return unexpectedMessage(noForward, rest, c.of.credentials)
		}
		if err != nil {
			return err
		}
		if ok {
			acked(id)
		}
		rest = next
	}
	return nil
}

// lost returns the error of a connection that ended because of err, with the name of the server. With
// TLS 1.3 a refused client certificate is noticed only here, after the handshake. A server that has
// acknowledged something (acked) accepts this client, so its alert is not a refusal.
func (c *conn) lost(err error, acked bool) error {
	if errors.Is(err, io.EOF) {
		err = errors.New("closed by the server")
	}
	if isRefusal(err) && !acked {
		err = fmt.Errorf("%w: %w", errRefused, err)
	}
	return fmt.Errorf("fluent: lost the connection to %s: %w", c.label, err)
}

const noForward = "the server's message is not the Forward protocol"

// noAckWithin returns the error for a server whose acknowledgement did not arrive within d.
func noAckWithin(d time.Duration) error { return fmt.Errorf("%w (%s)", errNoAck, d) }

// errNotAck is the error of parseAck for a message of another form.
var errNotAck = errors.New(noForward)

// parseAck parses the message {"ack": id}. Unknown keys are ignored. ok is false if there is no id, or
// if it does not have the form of a chunkID. A HELO instead of an acknowledgement means that the
// server requires a handshake, for which this client has no key.
func parseAck(msg []byte) (id chunkID, ok bool, err error) {
	t, msg, err := msgpack.Next(msg)
	if err == nil && t.Kind == msgpack.Array && t.Len > 0 {
		if w, _, err := msgpack.Next(msg); err == nil && w.Text() && string(w.Bytes) == "HELO" {
			return id, false, fmt.Errorf("%w: the server requires a handshake: set Config.Auth.SharedKey, or Secured if the key is empty (--shared-key-file, --secured)", errRefused)
		}
	}
	if err != nil || t.Kind != msgpack.Map {
		return id, false, errNotAck
	}
	for range t.Len {
		var k msgpack.Token
		if k, msg, err = msgpack.Next(msg); err != nil || !k.Text() {
			return id, false, errNotAck
		}
		value := msg
		if msg, err = msgpack.Skip(msg); err != nil {
			return id, false, err
		}
		if string(k.Bytes) == "ack" {
			v, _, _ := msgpack.Next(value)
			ok = v.Text() && copy(id[:], v.Bytes) == len(id) && len(v.Bytes) == len(id)
		}
	}
	return id, ok, nil
}

// unexpectedMessage returns an error with the text problem for an unexpected message of a server. If
// the message is text, such as the answer of an HTTP server, its first line follows, without secrets.
func unexpectedMessage(problem string, msg []byte, secrets *credentials) error {
	if len(msg) > 2 && msg[0] == 0x15 && msg[1] == 3 { // content type alert, major version 3: RFC 8446, section 5.1
		return fmt.Errorf("%s but a TLS alert: the server may require tls://HOST:PORT", problem)
	}
	line, _, _ := bytes.Cut(msg, []byte("\n"))
	line = bytes.TrimRight(line, "\r")
	if len(line) < 3 || slices.ContainsFunc(line, func(b byte) bool { return b != '\t' && (b < ' ' || b > '~') }) {
		return errors.New(problem)
	}
	return fmt.Errorf("%s: it sent %q", problem, printable(string(line), secrets.key, secrets.password))
}
