package listen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/forebay-log/forebay/internal/units"
)

// ReadBytes is the maximum size of a read, and of the buffer that a connection keeps between two
// messages.
const ReadBytes = 64 << 10

// A Reader reads data of one connection. The caller finds the ends of the messages. The buffer
// counts toward the memory budget of the server.
type Reader struct {
	*Conn
	Limits *Limits
	Begun  bool // a message was received; from then on, there is no time limit for the beginning of a message

	lease    *Lease
	buf      []byte
	start    int       // index in buf of the unread data
	deadline time.Time // time limit for all reads of one message; zero means none
}

// Reader returns a reader of c. The caller must call Release after the last read.
func (s *Server) Reader(c *Conn) Reader {
	return Reader{Conn: c, Limits: &s.c.Limits, lease: s.Lease()}
}

// Rest returns the unread data. It is valid until the next call of Read.
func (r *Reader) Rest() []byte { return r.buf[r.start:] }

// Consume removes the first n bytes, a complete message, from the unread data and returns them.
func (r *Reader) Consume(n int) []byte {
	msg := r.buf[r.start : r.start+n]
	r.start += n
	r.Begun, r.deadline = true, time.Time{}
	return msg
}

// TooLong returns the error for a message that exceeds Limits.MessageBytes.
func (r *Reader) TooLong() error {
	return fmt.Errorf("the message is longer than %s", units.Size(float64(r.Limits.MessageBytes)))
}

// errCut is wrapped by the error of Read if the connection ends within a message.
var errCut = errors.New("the connection ended within a message")

// IsCut reports whether err means that the connection has ended within a message.
func IsCut(err error) bool { return errors.Is(err, errCut) }

// Release returns the memory of the reader to the budget of the server. The Reader must not be used
// afterwards.
func (r *Reader) Release() { r.lease.Release() }

// Read waits for more data. If the unread data is the beginning of a message, Read waits at most
// until the time limit for the message.
func (r *Reader) Read(ctx context.Context) error {
	rest := len(r.buf) - r.start
	if r.start > 0 {
		copy(r.buf, r.buf[r.start:])
	}
	r.buf, r.start = r.buf[:rest], 0
	var timeout time.Duration
	switch {
	case rest > 0:
		if timeout = r.Limits.MessageTime; r.deadline.IsZero() {
			r.deadline = time.Now().Add(timeout)
		}
	case !r.Begun:
		timeout = 6 * r.Limits.HelloTime
		r.deadline = time.Now().Add(timeout)
	default:
		r.deadline = time.Time{}
	}
	r.SetReadDeadline(r.deadline)
	if err := r.makeRoom(ctx); err != nil {
		return err
	}
	n, err := r.Conn.Read(r.buf[rest:cap(r.buf)])
	r.buf = r.buf[:rest+n]
	switch {
	case n > 0:
		if rest == 0 {
			r.deadline = time.Time{}
		}
		return nil
	case errors.Is(err, io.EOF) && rest > 0:
		return fmt.Errorf("%w: %s received", errCut, units.Size(float64(rest)))
	case errors.Is(err, os.ErrDeadlineExceeded) && rest == 0:
		return fmt.Errorf("no data for %v", timeout)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the rest of the message did not arrive within %v: %s received", timeout, units.Size(float64(rest)))
	}
	return err
}

// makeRoom enlarges buf if the room for a read is too small.
func (r *Reader) makeRoom(ctx context.Context) error {
	used := len(r.buf)
	size := cap(r.buf)
	switch {
	case used == 0:
		size = ReadBytes
	case size-used < ReadBytes/4:
		size = max(2*size, ReadBytes)
	}
	if size == cap(r.buf) {
		return nil
	}
	if size > cap(r.buf) && !r.deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.deadline)
		defer cancel()
	}
	if err := r.lease.Hold(ctx, size); err != nil {
		return err
	}
	buf := make([]byte, used, size)
	copy(buf, r.buf)
	r.buf = buf
	return nil
}
