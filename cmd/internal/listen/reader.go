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

// ReadBytes is the size of a read, and of the buffer that a connection keeps between messages.
const ReadBytes = 64 << 10

// A Reader reads the messages of one connection, whatever their framing. Its memory counts against
// the limit of all connections.
type Reader struct {
	*Conn
	Limits *Limits
	Begun  bool // a message was received; only the first one has a deadline for its beginning

	lease *Lease
	buf   []byte
	from  int       // start of the unused data
	due   time.Time // deadline for the rest of the message; zero before it has begun
}

// Reader returns a reader of c. Release must be called when it is no longer used.
func (s *Server) Reader(c *Conn) Reader {
	return Reader{Conn: c, Limits: &s.c.Limits, lease: s.Lease()}
}

// Rest returns the received data that was not consumed. It is valid until the next call of Read.
func (r *Reader) Rest() []byte { return r.buf[r.from:] }

// Consume returns the first n bytes of Rest, which must be a complete message, and removes them.
func (r *Reader) Consume(n int) []byte {
	msg := r.buf[r.from : r.from+n]
	r.from += n
	r.Begun, r.due = true, time.Time{}
	return msg
}

// TooLong returns the error for a message above Limits.MessageBytes.
func (r *Reader) TooLong() error {
	return fmt.Errorf("the message is longer than %s", units.Size(float64(r.Limits.MessageBytes)))
}

// errCut is wrapped by the error of a connection that ends within a message.
var errCut = errors.New("the connection ended within a message")

// IsCut reports whether err means that a connection has ended within a message.
func IsCut(err error) bool { return errors.Is(err, errCut) }

// Release releases the memory. The Reader must not be used afterwards.
func (r *Reader) Release() { r.lease.Release() }

// Read waits for more data. The time for the rest of a message is limited.
func (r *Reader) Read(ctx context.Context) error {
	rest := len(r.buf) - r.from
	if r.from > 0 {
		copy(r.buf, r.buf[r.from:])
	}
	r.buf, r.from = r.buf[:rest], 0
	var within time.Duration
	switch {
	case rest > 0:
		if within = r.Limits.MessageTime; r.due.IsZero() {
			r.due = time.Now().Add(within)
		}
	case !r.Begun:
		within = 6 * r.Limits.HelloTime
		r.due = time.Now().Add(within)
	default:
		r.due = time.Time{}
	}
	r.SetReadDeadline(r.due)
	if err := r.room(ctx); err != nil {
		return err
	}
	n, err := r.Conn.Read(r.buf[rest:cap(r.buf)])
	r.buf = r.buf[:rest+n]
	switch {
	case n > 0:
		if rest == 0 {
			r.due = time.Time{}
		}
		return nil
	case errors.Is(err, io.EOF) && rest > 0:
		return fmt.Errorf("%w: %s received", errCut, units.Size(float64(rest)))
	case errors.Is(err, os.ErrDeadlineExceeded) && rest == 0:
		return fmt.Errorf("no data for %v", within)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the rest of the message did not arrive within %v: %s received", within, units.Size(float64(rest)))
	}
	return err
}

// room makes room for a read at the end of the buffer.
func (r *Reader) room(ctx context.Context) error {
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
	if size > cap(r.buf) && !r.due.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.due)
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
