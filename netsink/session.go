package netsink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/neterr"
)

// A session is one connection. Send writes batches. A goroutine, the reader, runs the method read
// and detects the end of the connection at once, even while nothing is written. The end is reported
// once: by the Send in progress, after its answer, or by the reader if no Send is in progress.
type session struct {
	d    *Driver
	life deliver.Life
	conn net.Conn
	// raw is the connection under the TLS layer, or conn if there is no TLS. Closing raw sends no
	// TLS alert.
	raw  net.Conn
	stop func() bool // cancels the write deadline at the end of the context of life

	// Used only by Send:
	buf, msg []byte // framed records; one syslog message
	ends     []int  // offsets of the ends of the frames in buf

	readerDone chan struct{} // closed when the reader has ended
	readErr    error         // reason why the reader ended; valid after readerDone is closed

	mu sync.Mutex // guards the fields below; no other lock is acquired while it is held
	// sending is set while a Send is in progress. If the connection ends in that time, the Send
	// reports the end after its answer.
	sending bool
	lost    error // reason why the connection ended; nil while it is open
}

var (
	errPeerClosed = errors.New("the peer closed the connection") // reason of a session whose input ended
	errClosed     = errors.New("the session is closed")          // set by Close, not reported
)

// begin returns a session over conn, and starts its reader.
func (d *Driver) begin(l deliver.Life, conn, raw net.Conn) *session {
	s := &session{d: d, life: l, conn: conn, raw: raw, readerDone: make(chan struct{})}
	// A deadline in the past ends a write that hangs.
	s.stop = context.AfterFunc(l.Context(), func() { _ = conn.SetWriteDeadline(time.Unix(1, 0)) })
	d.connects.Add(1)
	d.mu.Lock()
	d.last = s
	d.mu.Unlock()
	go s.read()
	return s
}

// read discards the bytes that the peer sends until the connection ends. The protocols have no
// answers.
func (s *session) read() {
	defer close(s.readerDone)
	var buf [512]byte
	for {
		if _, err := s.conn.Read(buf[:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = errPeerClosed
			}
			s.readErr = err
			// A Send in progress reports the end itself, after its answer.
			if first, sending := s.lose(err); first && !sending {
				s.life.End(markFatalTLS(s.wrap(err)))
			}
			return
		}
	}
}

// lose closes the connection and stores the reason. first reports whether this is the first call,
// and sending whether a Send is in progress.
func (s *session) lose(err error) (first, sending bool) {
	s.mu.Lock()
	first, sending = s.lost == nil, s.sending
	if first {
		s.lost = err
	}
	s.mu.Unlock()
	if first {
		s.d.lost.Add(1)
		// The raw connection is closed, because Close of a TLS connection may wait for the peer.
		_ = s.raw.Close()
	}
	return first, sending
}

// lostErr returns the reason why the connection ended, or nil.
func (s *session) lostErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// setSending marks the beginning or end of a Send. It returns the reason why the connection
// ended, or nil.
func (s *session) setSending(sending bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sending = sending
	return s.lost
}

// wrap returns err prefixed with the destination.
func (s *session) wrap(err error) error {
	return fmt.Errorf("netsink: %s: %w", &s.d.t, neterr.Cause(err))
}

// Send writes the records of b and answers before it returns; see [deliver.Session]. Records that
// the kernel has completely accepted are settled, even if the connection is lost.
func (s *session) Send(b *batch.Batch) error {
	if !s.d.t.syslog && !textual(b.Codec) {
		s.life.Answer(b, batch.Outcome{Open: batch.All(), Advice: batch.Hold,
			Why: fmt.Errorf("netsink: %s accepts lines of text, not %s", &s.d.t, b.Codec.ContentType())})
		return nil
	}
	// The connection was lost before this Send, so nothing of b is written.
	if err := s.setSending(true); err != nil {
		s.setSending(false)
		return s.wrap(err)
	}
	// The protocols have no acknowledgements, so a record is settled when the kernel has accepted
	// it.
	n, err := s.writeBatch(b)
	if err == nil {
		s.life.Answer(b, batch.Outcome{})
	} else {
		s.lose(err)
	}
	// setSending follows the answer, because it allows the reader to report the end of the session.
	// Answers after that report are ignored.
	lost := s.setSending(false)
	if err == nil {
		if lost != nil {
			s.life.End(markFatalTLS(s.wrap(lost)))
		}
		return nil
	}
	// The end of the context is the reason for the write error, not a fault of the peer.
	if ended := context.Cause(s.life.Context()); ended != nil {
		lost = ended
	}
	err = fmt.Errorf("netsink: cannot write to %s: %w", &s.d.t, lost)
	if n > 0 {
		s.life.Answer(b, batch.Outcome{Open: batch.From(n), Why: err})
	}
	s.life.End(markFatalTLS(err))
	return nil
}

// writeBatch writes the records of b. It returns how many of them the kernel has completely
// accepted.
func (s *session) writeBatch(b *batch.Batch) (int, error) {
	// The usual batch of lines is written directly from the slab.
	if !s.d.t.syslog && len(b.Runs) == 1 && allEnd(b) {
		return s.writeRun(&b.Runs[0])
	}
	// Records are collected up to writeBytes, so small records need few system calls.
	done := 0
	s.buf, s.ends = s.buf[:0], s.ends[:0]
	for i, rec := range b.All() {
		s.frame(b.Codec, &rec)
		s.ends = append(s.ends, len(s.buf))
		if len(s.buf) < writeBytes && i < b.Len()-1 {
			continue
		}
		n, err := s.write(s.buf)
		if err != nil {
			// The kernel has accepted n bytes, and so each record that ends within them.
			for _, end := range s.ends {
				if end <= n {
					done++
				}
			}
			return done, err
		}
		done += len(s.ends)
		s.buf, s.ends = s.buf[:0], s.ends[:0]
		if cap(s.buf) > keepBuf {
			s.buf = nil
		}
	}
	return done, nil
}

// keepBuf is the maximum size of a buffer kept for reuse, in bytes.
const keepBuf = 1 << 20

// writeRun writes records that are already lines, without copying them. It returns how many of them
// the kernel has completely accepted.
func (s *session) writeRun(r *layout.Run) (int, error) {
	// The records of a run are contiguous in memory.
	done, err := s.write(r.Data())
	if err == nil {
		return r.Len(), nil
	}
	// Only complete records count as accepted. The peer discards the part of a record when the
	// connection ends.
	whole := 0
	for whole < r.Len() && int(r.Slot(whole).Len) <= done {
		done -= int(r.Slot(whole).Len)
		whole++
	}
	return whole, err
}

// write writes all of p, with a deadline for each piece. It returns the number of bytes that the
// kernel accepted.
func (s *session) write(p []byte) (done int, err error) {
	for done < len(p) {
		if err := s.conn.SetWriteDeadline(time.Now().Add(s.d.o.WriteTimeout)); err != nil {
			return done, err
		}
		// At the end of the context, a function started by begin sets a deadline in the past. The
		// call above may have overwritten it, so the context is checked after that call.
		if err := context.Cause(s.life.Context()); err != nil {
			return done, err
		}
		n, err := s.conn.Write(p[done:min(len(p), done+writeBytes)])
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// writeBytes is the maximum size of a single write. Each write has a separate deadline, so a slow
// peer is not considered dead.
const writeBytes = 64 << 10

// Close closes the connection. It first closes the sending side and waits until the peer has closed
// its side, so that written bytes can arrive. It waits at most 500 ms, or 20 ms if the outlet has
// no more time.
func (s *session) Close() {
	s.stop()
	timeout := closeTimeout
	if errors.Is(context.Cause(s.life.Context()), context.DeadlineExceeded) {
		timeout = lateCloseTimeout
	}
	// The reader must not report the end that Close causes. It reports none if s.lost is set.
	s.mu.Lock()
	lost := s.lost
	if lost == nil {
		s.lost = errClosed
	}
	s.mu.Unlock()
	if lost == nil {
		enough := time.AfterFunc(timeout, func() { _ = s.raw.Close() }) // also ends a blocked CloseWrite of TLS
		if c, ok := s.conn.(interface{ CloseWrite() error }); ok && c.CloseWrite() == nil {
			<-s.readerDone
		}
		enough.Stop()
	}
	_ = s.raw.Close()
	<-s.readerDone
	// A FIN from the peer or our Close is a normal end. A reset is not, because the peer has
	// discarded input.
	var err error
	if lost == nil && !errors.Is(s.readErr, errPeerClosed) && !errors.Is(s.readErr, net.ErrClosed) && !errors.Is(s.readErr, io.ErrClosedPipe) {
		err = s.wrap(fmt.Errorf("the connection broke before it was closed; the last records may not have arrived: %w", neterr.Cause(s.readErr)))
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.d.last, s.d.closeErr = nil, err
}

const (
	// closeTimeout is how long Close waits for the peer to close its side.
	closeTimeout = 500 * time.Millisecond
	// lateCloseTimeout replaces closeTimeout if the outlet's Close is out of time.
	lateCloseTimeout = 20 * time.Millisecond
)
