package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/forebay-log/forebay/cmd/forebay/internal/listen"
	"github.com/forebay-log/forebay/cmd/forebay/internal/units"
	"github.com/forebay-log/forebay/internal/msgpack"
)

// readBytes is how much a read asks for, and what a connection keeps between messages.
const readBytes = 64 << 10

// maxDepth is how deep values may lie within each other in a message.
const maxDepth = 64

// A scanner finds the end of a MessagePack value whose bytes come in pieces. Each byte is
// looked at once.
type scanner struct {
	left []int // values still to come at each depth
	at   int   // bytes scanned
}

// end returns the length of the value at the beginning of b, which is that of the last
// call and what came since. The error is [msgpack.ErrShort] if it is not complete.
func (s *scanner) end(b []byte) (int, error) {
	for s.at == 0 || len(s.left) > 0 {
		t, rest, err := msgpack.Next(b[s.at:])
		if err != nil {
			return 0, err
		}
		s.at = len(b) - len(rest)
		if len(s.left) > 0 {
			s.left[len(s.left)-1]--
		}
		n := t.Len
		if t.Kind == msgpack.Map {
			n *= 2
		}
		if n > 0 {
			if len(s.left) == maxDepth {
				return 0, errDepth
			}
			s.left = append(s.left, n)
		}
		for len(s.left) > 0 && s.left[len(s.left)-1] == 0 {
			s.left = s.left[:len(s.left)-1]
		}
	}
	n := s.at
	s.at = 0
	return n, nil
}

var errDepth = fmt.Errorf("values lie more than %d deep within each other", maxDepth)

// A reader reads the messages of one connection.
type reader struct {
	c     *listen.Conn
	l     *listen.Limits
	lease *listen.Lease
	buf   []byte
	from  int // where what is not used begins
	scan  scanner
	begun bool      // a message has come
	due   time.Time // for the rest of the message; zero: it has not begun
}

// buffered returns the next message if all of it is here, else nil. It is valid until the
// next call of read.
func (r *reader) buffered() ([]byte, error) {
	if r.from == len(r.buf) {
		return nil, nil
	}
	n, err := r.scan.end(r.buf[r.from:])
	switch {
	case err == nil && n <= r.l.MessageBytes:
		msg := r.buf[r.from : r.from+n]
		r.from += n
		r.begun, r.due = true, time.Time{}
		return msg, nil
	case err == nil || err == msgpack.ErrShort && len(r.buf)-r.from >= r.l.MessageBytes:
		return nil, fmt.Errorf("the message is longer than %s", units.Size(float64(r.l.MessageBytes)))
	case err == msgpack.ErrShort:
		return nil, nil
	case err == errDepth:
		return nil, err
	}
	return nil, fmt.Errorf("it does not speak the Forward protocol: it says %s", listen.Show(r.buf[r.from:]))
}

// read waits for more bytes. Nobody waits without end for the rest of a message.
func (r *reader) read(ctx context.Context) error {
	rest := copy(r.buf, r.buf[r.from:])
	r.buf, r.from = r.buf[:rest], 0
	var within time.Duration
	switch {
	case rest > 0:
		if within = r.l.MessageTime; r.due.IsZero() {
			r.due = time.Now().Add(within)
		}
	case !r.begun:
		within = 6 * r.l.HelloTime
		r.due = time.Now().Add(within)
	default:
		r.due = time.Time{}
	}
	r.c.SetReadDeadline(r.due)
	if err := r.room(ctx); err != nil {
		return err
	}
	n, err := r.c.Read(r.buf[rest:cap(r.buf)])
	r.buf = r.buf[:rest+n]
	switch {
	case n > 0:
		if rest == 0 {
			r.due = time.Time{}
		}
		return nil
	case errors.Is(err, io.EOF) && rest > 0:
		return fmt.Errorf("the connection ended within a message, after %s of it", units.Size(float64(rest)))
	case errors.Is(err, os.ErrDeadlineExceeded) && rest == 0:
		return fmt.Errorf("it says nothing for %v", within)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the rest of a message does not come within %v, after %s of it", within, units.Size(float64(rest)))
	}
	return err
}

// room makes room for more bytes.
func (r *reader) room(ctx context.Context) error {
	used := len(r.buf)
	size := cap(r.buf)
	switch {
	case used == 0:
		size = readBytes
	case size-used < readBytes/4:
		size = max(2*size, readBytes)
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
