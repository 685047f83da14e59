package netsink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
)

// A Sink is a [batch.Sink] over a stream socket: see the package comment.
//
//	         connected                              write fails, peer gone
//	Send ──────────────▶ write ──ok──▶ delivered   ┌──────────────────────┐
//	  │                    └───────────────────────┤ Prefix: what is not  │
//	  │ not connected                              │ wholly written stays │
//	  ▼                                            └──────────────────────┘
//	dial ──fails──▶ RetryAfter: no attempt until the time is over
//
// Methods may be called from several goroutines at once; Sends take turns.
type Sink struct {
	t target
	o Options

	turn chan struct{} // held during Send and Close; capacity 1
	link *link         // nil: not connected
	buf  []byte        // framed records
	msg  []byte        // one syslog message
	ends []int         // where in buf the frames end

	fails int       // attempts to connect that failed, in a row
	next  time.Time // no attempt before
	why   error     // of the last failure

	mu     sync.Mutex // leaf; guards closed and active
	closed bool
	active *link // for Close beside a Send that hangs

	connects atomic.Uint64
	lost     atomic.Uint64
}

// New returns a Sink for a destination such as "tcp://localhost:5170" or
// "syslog+tcp://localhost:514?facility=local0&app=shop". It connects with the
// first Send. o may be nil.
func New(destination string, o *Options) (*Sink, error) {
	t, err := parse(destination)
	if err == nil && len(t.query) > 0 && !t.syslog {
		err = errors.New("only syslog destinations take parameters")
	}
	var r Options
	if o != nil {
		r = *o
	}
	if err == nil {
		err = r.Syslog.override(t.query)
	}
	if err != nil {
		return nil, fmt.Errorf("netsink: cannot read the destination: %w", err)
	}
	if r, err = r.resolve(); err != nil {
		return nil, err
	}
	return &Sink{t: t, o: r, turn: make(chan struct{}, 1)}, nil
}

// String returns the destination without its parameters.
func (s *Sink) String() string { return s.t.String() }

// Accepts reports whether records of a content type can be sent: as lines only
// text, as syslog messages any, for which see [Syslog].
func (s *Sink) Accepts(contentType string) bool { return s.t.syslog || textualType(contentType) }

// Stats is a snapshot of a [Sink].
type Stats struct {
	Connected bool
	Connects  uint64 // connections made
	Lost      uint64 // connections that ended before Close
}

// Stats returns a snapshot.
func (s *Sink) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{
		Connected: s.active != nil && !s.active.isDead(),
		Connects:  s.connects.Load(), Lost: s.lost.Load(),
	}
}

var errClosed = fmt.Errorf("netsink: %w", batch.ErrClosed)

// Send writes the records of b, connecting first if need be. It returns
// [batch.Prefix] with the number of records wholly written if the connection is
// lost in between, and [batch.Fatal] for a wire form that is no text and no
// syslog.
func (s *Sink) Send(ctx context.Context, b *batch.Batch) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	if !s.t.syslog && !textual(b.Codec) {
		return batch.Fatal(fmt.Errorf("netsink: %s takes lines of text, not %s", &s.t, b.Codec.ContentType()))
	}
	l, err := s.connect(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = l.conn.SetWriteDeadline(time.Unix(1, 0)) })
	n, err := s.write(ctx, l, b)
	stop()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	s.drop(l, err)
	err = fmt.Errorf("netsink: cannot write to %s: %w", &s.t, err)
	if n > 0 {
		return batch.Prefix(n, err)
	}
	return err
}

// connect returns the connection, a new one if the last is gone.
func (s *Sink) connect(ctx context.Context) (*link, error) {
	if l := s.link; l != nil {
		if !l.isDead() {
			return l, nil
		}
		s.drop(l, l.why())
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return nil, errClosed
	}
	if wait := time.Until(s.next); wait > 0 {
		return nil, batch.RetryAfter(s.why, wait)
	}
	dialing, cancel := context.WithTimeout(ctx, s.o.DialTimeout)
	defer cancel()
	conn, err := s.dial(dialing)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, s.failed(fmt.Errorf("netsink: cannot connect to %s: %w", &s.t, err))
	}
	s.fails = 0
	s.connects.Add(1)
	l := newLink(conn)
	s.mu.Lock()
	s.link, s.active = l, l
	closed = s.closed
	s.mu.Unlock()
	if closed { // meanwhile
		l.end(errClosed)
		return nil, errClosed
	}
	return l, nil
}

// dial makes a connection, with TLS where that is asked for.
func (s *Sink) dial(ctx context.Context) (net.Conn, error) {
	conn, err := s.o.Dial(ctx, s.t.network, s.t.address)
	if err != nil || !s.t.tls {
		return conn, err
	}
	cfg := s.o.TLS.Clone()
	if cfg == nil {
		cfg = &tls.Config{}
	}
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(s.t.address)
	}
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return secure, nil
}

// failed notes a failed attempt to connect.
func (s *Sink) failed(err error) error {
	wait := backoff.Jitter(0, backoff.Ceil(s.o.RetryMin, s.o.RetryMax, s.fails))
	s.fails++
	s.next, s.why = time.Now().Add(wait), err
	return batch.RetryAfter(err, wait)
}

// drop lets go of a connection that ended because of err. The next Send makes
// another at once: the peer may just have been restarted.
func (s *Sink) drop(l *link, err error) {
	l.end(err)
	s.lost.Add(1)
	s.link = nil
	s.mu.Lock()
	s.active = nil
	s.mu.Unlock()
}

// write writes b to l and returns how many records are wholly written.
func (s *Sink) write(ctx context.Context, l *link, b *batch.Batch) (int, error) {
	if !s.t.syslog && len(b.Runs) == 1 && allEnd(b) {
		return s.writeRun(ctx, l, &b.Runs[0])
	}
	done := 0
	s.buf, s.ends = s.buf[:0], s.ends[:0]
	for i, rec := range b.All() {
		s.frame(b.Codec, &rec)
		s.ends = append(s.ends, len(s.buf))
		if len(s.buf) < writeBytes && i < b.Len()-1 {
			continue
		}
		n, err := l.write(ctx, s.buf, s.o.WriteTimeout)
		if err != nil {
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

// keepBuf is the ceiling of the buffer kept for reuse.
const keepBuf = 1 << 20

// writeRun writes records that are lines already, without copying them.
func (s *Sink) writeRun(ctx context.Context, l *link, r *batch.Run) (int, error) {
	done, err := l.write(ctx, r.Data(), s.o.WriteTimeout)
	if err == nil {
		return r.Len(), nil
	}
	whole := 0
	for whole < r.Len() && int(r.Slot(whole).Len) <= done {
		done -= int(r.Slot(whole).Len)
		whole++
	}
	return whole, err
}

// allEnd reports whether every record ends with a newline.
func allEnd(b *batch.Batch) bool {
	for i := range b.Runs {
		r := &b.Runs[i]
		for j := range r.Len() {
			if rec := r.Record(j); len(rec) == 0 || rec[len(rec)-1] != '\n' {
				return false
			}
		}
	}
	return true
}

// frame appends a record to buf as it goes over the wire.
func (s *Sink) frame(c batch.Codec, rec *batch.Record) {
	if s.t.syslog {
		s.msg = s.o.Syslog.message(s.msg[:0], c, rec)
		s.buf = appendCounted(s.buf, s.msg)
		if cap(s.msg) > keepBuf {
			s.msg = nil
		}
		return
	}
	s.buf = append(s.buf, rec.Data...)
	if n := len(rec.Data); n == 0 || rec.Data[n-1] != '\n' {
		s.buf = append(s.buf, '\n')
	}
}

// Close closes the connection. What was written is given the chance to arrive:
// the sending side is closed first, and Close waits until the peer has closed its
// own, at most half a second or until ctx ends. A Send that is under way is given
// that time too, then ends with an error. Close may be called twice.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	active := s.active
	s.mu.Unlock()
	if again {
		return nil
	}
	patience := time.NewTimer(closeTimeout)
	defer patience.Stop()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
		active = s.link
		s.link = nil
	case <-patience.C:
	case <-ctx.Done():
	}
	if active == nil {
		return nil
	}
	if c, ok := active.conn.(interface{ CloseWrite() error }); ok {
		if err := c.CloseWrite(); err == nil {
			select {
			case <-active.dead:
			case <-patience.C:
			case <-ctx.Done():
			}
		}
	}
	active.end(errClosed)
	<-active.dead
	if why := active.why(); !errors.Is(why, errPeerClosed) && !errors.Is(why, errClosed) && !errors.Is(why, net.ErrClosed) {
		return fmt.Errorf("netsink: %s: the connection broke before it was closed, the last records may not have arrived: %w", &s.t, why)
	}
	return nil
}

// closeTimeout is how long Close waits for a Send, and for the peer.
const closeTimeout = 500 * time.Millisecond
