package fluent

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/neterr"
)

// A conn is a connection to a server after the handshake. One goroutine at a time reads, and one
// writes. interrupt may be called at any time from any goroutine.
type conn struct {
	nc          net.Conn      // raw, or the TLS connection over it
	raw         net.Conn      // the connection that Config.Dial returned
	label       string        // name of the server in errors
	index       int           // index of the server in the roster
	keepalive   bool          // false: the server closes the connection after one message
	vectors     bool          // nc is a kernel socket, for which net.Buffers uses writev
	in          []byte        // input that is not yet parsed
	opened      time.Time     // start of the TLS handshake
	dialled     time.Duration // duration of Config.Dial, about one round trip
	conf        *resolved     // configuration; its secrets are removed from errors
	interrupted atomic.Bool   // interrupt was called
}

// The errors of a session wrap one of these errors if the server accepted the connection and then did
// not respond; see isUnresponsive.
var (
	errNoAck       = errors.New("no acknowledgement in time")
	errUnread      = errors.New("the server did not read a batch")
	errNoHeartbeat = errors.New("no heartbeat from the server")
)

// isRefusal reports whether only a change of configuration can help after err. This is the case if
// the server's certificate is invalid, or if the server has sent a TLS alert, for example because
// it requires a client certificate. Package crypto/tls reports an alert as a net.OpError with Op
// "remote error".
func isRefusal(err error) bool {
	var cert *tls.CertificateVerificationError
	var op *net.OpError
	return errors.As(err, &cert) || errors.As(err, &op) && op.Op == "remote error"
}

// isGone reports whether err means that the server closed the connection. A net.Pipe, which tests
// use, returns io.ErrClosedPipe.
func isGone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}

// isUnresponsive reports whether err means that the server does not respond although the connection
// is open.
func isUnresponsive(err error) bool {
	return errors.Is(err, errNoAck) || errors.Is(err, errUnread) || errors.Is(err, errNoHeartbeat)
}

// past is a deadline that makes current and later operations of a net.Conn fail immediately.
var past = time.Unix(1, 0)

// errRefused is wrapped by an error of dial if the server rejects this client because of its shared
// key, user, password or certificate.
var errRefused = errors.New("refused by the server")

// maxMessage is the length of the longest message that a server may send, in bytes. HELO, PONG and
// acknowledgements are shorter than 1 KB. Longer messages belong to another protocol.
const maxMessage = 16 << 10

// interrupt makes all current and later operations on the connection fail immediately. It does not
// close the connection.
func (c *conn) interrupt() {
	c.interrupted.Store(true)
	if c.nc.SetDeadline(past) != nil {
		c.raw.Close() // nc does not support deadlines
	}
}

// readUntil sets the deadline for reads. The zero time means no deadline. After interrupt,
// readUntil has no effect.
func (c *conn) readUntil(t time.Time) {
	c.nc.SetReadDeadline(t)
	// interrupt may have set its own deadline just before SetReadDeadline replaced it. That
	// deadline is set again.
	if c.interrupted.Load() {
		c.interrupt()
	}
}

// writeUntil sets the deadline for writes. After interrupt it has no effect.
func (c *conn) writeUntil(t time.Time) {
	c.nc.SetWriteDeadline(t)
	if c.interrupted.Load() {
		c.interrupt()
	}
}

// tlsCloseTimeout limits how long tls.Conn.Close waits to send its close_notify alert if the server
// does not read. The timeout of package crypto/tls is 5 s.
const tlsCloseTimeout = 200 * time.Millisecond

// close closes the connection. It may be called several times.
func (c *conn) close() {
	// Closing the raw socket unblocks a Close that cannot send close_notify.
	if c.nc != c.raw {
		t := time.AfterFunc(tlsCloseTimeout, func() { c.raw.Close() })
		defer t.Stop()
	}
	c.nc.Close()
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

// answers parses and removes the complete messages in c.in. It calls the function acked with each
// acknowledged id. After any other message it returns an error, and the connection can no longer be
// used.
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
			return unexpectedMessage(noForward, rest, c.conf.credentials)
		}
		id, ok, err := parseAck(rest[:len(rest)-len(next)])
		if err == errNotAck {
			return unexpectedMessage(noForward, rest, c.conf.credentials)
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

// lost returns the error for a connection that ended because of err, with the name of the server.
// With TLS 1.3, a server rejects a client certificate only after the handshake, so the TLS alert
// may arrive during the session. The parameter acked reports whether the server has acknowledged a
// frame. Such a server has accepted this client, so an alert is not a refusal.
func (c *conn) lost(err error, acked bool) error {
	if errors.Is(err, io.EOF) {
		err = errors.New("closed by the server")
	}
	if isRefusal(err) && !acked {
		err = fmt.Errorf("%w: %w", errRefused, err)
	}
	return fmt.Errorf("fluent: lost the connection to %s: %w", c.label, neterr.Cause(err))
}

// noForward is the error text for a message that does not belong to the Forward protocol.
const noForward = "the server's message is not the Forward protocol"

// noAckWithin returns the error for a server whose acknowledgement did not arrive within d.
func noAckWithin(d time.Duration) error { return fmt.Errorf("%w (%s)", errNoAck, d) }

// errNotAck is the error that parseAck returns for a message that is not an acknowledgement.
var errNotAck = errors.New(noForward)

// parseAck parses the message {"ack": id}. Unknown keys are ignored. The result ok is false if
// there is no id, or if the id does not have the form of a chunkID. If the message is a HELO, the
// server requires a handshake, but this client has no key. The error then wraps errRefused.
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

// unexpectedMessage returns the error for msg, an unexpected message from a server. Its text begins
// with problem. If msg is text, such as an HTTP response, the error includes its first line without
// secrets.
func unexpectedMessage(problem string, msg []byte, secrets *credentials) error {
	// A TLS record (RFC 8446, section 5.1) begins with its content type, here an alert (0x15),
	// and the major version 3.
	if len(msg) > 2 && msg[0] == 0x15 && msg[1] == 3 {
		return fmt.Errorf("%s but a TLS alert: the server may require tls://HOST:PORT", problem)
	}
	line, _, _ := bytes.Cut(msg, []byte("\n"))
	line = bytes.TrimRight(line, "\r")
	if len(line) < 3 || slices.ContainsFunc(line, func(b byte) bool { return b != '\t' && (b < ' ' || b > '~') }) {
		return errors.New(problem)
	}
	return fmt.Errorf("%s: it sent %q", problem, printable(string(line), secrets.key, secrets.password))
}

// printable prepares text from a server for an error message: at most 200 bytes on one line,
// without control characters. It replaces the given secrets, because a server may send them back.
func printable(text string, secrets ...string) string {
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "(secret)")
		}
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "…"
	}
	return text
}
