package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"
)

// Config is what listeners have in common.
type Config struct {
	Name   string // of the listener: the source of its records
	Sink   Sink
	Limits Limits

	// Refused, which may be nil, is called for each refused message, push or connection, one call
	// at a time for each connection. It must not block.
	Refused func(Refusal)

	// Action decides what to do with each message, before it is accepted. It may wait until its
	// context is done, which Close causes. nil: Take.
	Action func(context.Context) Action
}

// A Refusal is a message, push or connection that a listener has refused.
type Refusal struct {
	Listener string
	Peer     string // its address; empty where the network has none
	Err      error  // the reason; on one line, short, without secrets
}

// String returns the refusal as one line.
func (r Refusal) String() string {
	if r.Peer == "" {
		return fmt.Sprintf("%s: refused: %v", r.Listener, r.Err)
	}
	return fmt.Sprintf("%s: %s: refused: %v", r.Listener, r.Peer, r.Err)
}

// Stats counts what a listener has done.
type Stats struct {
	Conns    uint64 // connections that were accepted
	Messages uint64 // messages, chunks or pushes that were taken
	Records  uint64 // records in them
	Refused  uint64 // messages, pushes and connections that were refused
	Memory   int64  // bytes of messages at present, beyond 64 KiB for each connection
}

// A Server serves the connections of one listener.
//
//	open ──Close──▶ closing ──▶ closed
//
// While it is closing, it accepts and reads nothing new; messages that it has are taken
// and answered.
type Server struct {
	c      Config
	handle func(ctx context.Context, c *Conn) error

	base     context.Context // ends when Close has no more time
	cancel   context.CancelFunc
	reading  context.Context // ends when Close begins
	stop     context.CancelFunc
	memory   *budget
	running  sync.WaitGroup
	accepted atomic.Uint64
	messages atomic.Uint64
	records  atomic.Uint64
	refused  atomic.Uint64

	mu        sync.Mutex // a leaf
	listeners []io.Closer
	conns     map[*Conn]bool
	closing   bool
}

// NewServer returns a server that calls handle for each connection, on a separate goroutine. The
// connection is closed when handle returns. An error is a refusal, unless the connection had ended.
// ctx ends when the time to answer is over.
func NewServer(c Config, handle func(ctx context.Context, c *Conn) error) *Server {
	c.Limits.setDefaults()
	if c.Refused == nil {
		c.Refused = func(Refusal) {}
	}
	if c.Action == nil {
		c.Action = func(context.Context) Action { return Take }
	}
	s := &Server{c: c, handle: handle, memory: &budget{total: c.Limits.MemoryBytes}, conns: map[*Conn]bool{}}
	s.base, s.cancel = context.WithCancel(context.Background())
	s.reading, s.stop = context.WithCancel(s.base)
	return s
}

// Limits returns the limits with their defaults.
func (s *Server) Limits() *Limits { return &s.c.Limits }

// Sink returns the sink.
func (s *Server) Sink() Sink { return s.c.Sink }

// Lease returns an empty lease of the memory that all connections share.
func (s *Server) Lease() *Lease { return &Lease{b: s.memory} }

// Action decides what to do with a message. It reports false if the server is closing and the message
// must be ignored.
func (s *Server) Action() (Action, bool) {
	f := s.c.Action(s.reading)
	return f, s.reading.Err() == nil
}

// Taken counts messages that were taken, and the records in them.
func (s *Server) Taken(messages, records int) {
	s.messages.Add(uint64(messages))
	s.records.Add(uint64(records))
}

// Refuse counts and reports a refusal.
func (s *Server) Refuse(peer string, err error) {
	s.refused.Add(1)
	s.c.Refused(Refusal{s.c.Name, peer, err})
}

// Stats returns the counts since the start.
func (s *Server) Stats() Stats {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return Stats{s.accepted.Load(), s.messages.Load(), s.records.Load(), s.refused.Load(), s.memory.used}
}

// Serve accepts the connections of l until Close, which closes l. It returns at once.
func (s *Server) Serve(l net.Listener) {
	if !s.Own(l) {
		return
	}
	s.Go(func() { s.accept(l) })
}

// Own has Close close l, or closes it now if Close was called. It reports whether it was
// not.
func (s *Server) Own(l io.Closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		l.Close()
		return false
	}
	s.listeners = append(s.listeners, l)
	return true
}

// Go runs f on a goroutine that Close waits for. It does nothing after Close.
func (s *Server) Go(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		f()
	}()
}

// Context ends when there is no more time to answer.
func (s *Server) Context() context.Context { return s.base }

// Reading ends when Close begins.
func (s *Server) Reading() context.Context { return s.reading }

// maxPause is how long Accept rests at most when the process is out of descriptors.
const maxPause = time.Second

func (s *Server) accept(l net.Listener) {
	pause := 5 * time.Millisecond
	for {
		nc, err := l.Accept()
		switch {
		case s.reading.Err() != nil || errors.Is(err, net.ErrClosed):
			if err == nil {
				nc.Close()
			}
			return
		case err != nil: // out of descriptors, as a rule: later there may be one
			s.Refuse("", fmt.Errorf("cannot accept a connection: %w", err))
			select {
			case <-time.After(pause):
				pause = min(2*pause, maxPause)
			case <-s.reading.Done():
			}
		default:
			pause = 5 * time.Millisecond
			s.start(nc)
		}
	}
}

// Conn returns nc as a connection of s without a handler.
func (s *Server) Conn(nc net.Conn) *Conn { return &Conn{Conn: nc, s: s} }

func (s *Server) start(nc net.Conn) {
	c := s.Conn(nc)
	if !s.add(c) {
		return
	}
	go func() {
		defer s.running.Done()
		defer s.remove(c)
		err := c.handshake()
		if err == nil {
			err = s.handle(s.base, c)
		}
		if err != nil && !c.over(err) {
			s.Refuse(c.Peer(), err)
		}
	}()
}

// add admits a connection.
func (s *Server) add(c *Conn) bool {
	s.mu.Lock()
	full := len(s.conns) >= s.c.Limits.Conns
	if !full && !s.closing {
		s.conns[c] = true
		s.running.Add(1)
		s.accepted.Add(1)
		s.mu.Unlock()
		return true
	}
	s.mu.Unlock()
	if full { // reported before the peer can know it
		s.Refuse(c.Peer(), fmt.Errorf("too many connections: the limit is %d", s.c.Limits.Conns))
	}
	c.Conn.Close()
	return false
}

func (s *Server) remove(c *Conn) {
	c.Conn.Close()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// Close stops accepting and reading, and waits until the messages at hand are answered.
// When ctx is done, it ends them. Nothing runs any more when it returns. It may be called
// again.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	s.stop()
	for _, l := range s.listeners {
		l.Close()
	}
	s.listeners = nil
	for c := range s.conns {
		c.Conn.SetReadDeadline(past)
	}
	s.mu.Unlock()
	end := context.AfterFunc(ctx, func() {
		s.cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			c.Conn.Close()
		}
	})
	s.running.Wait()
	s.cancel()
	if !end() {
		return context.Cause(ctx)
	}
	return nil
}

// ErrEnded ends a connection without a report, because the peer has not caused it. A sink reports
// its errors itself.
var ErrEnded = net.ErrClosed

// past is a deadline that ends a blocked read.
var past = time.Unix(1, 0)

// A Conn is one connection.
type Conn struct {
	net.Conn
	s *Server
}

// Peer returns the address of the peer, empty if it has none.
func (c *Conn) Peer() string {
	a := c.RemoteAddr()
	if a == nil || a.Network() == "unix" || a.Network() == "pipe" {
		return ""
	}
	return a.String()
}

// SetReadDeadline sets when reads give up; the zero time: never. Closing the server ends
// them.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.closing {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// Answer writes b within Limits.WriteTime.
func (c *Conn) Answer(b []byte) error {
	c.Conn.SetWriteDeadline(time.Now().Add(c.s.c.Limits.WriteTime))
	_, err := c.Conn.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the client has not read its responses for %v", c.s.c.Limits.WriteTime)
	}
	return err
}

// Reset closes the connection so that the peer sees an error, where the network can.
func (c *Conn) Reset() { ResetConn(c.Conn) }

// ResetConn closes nc so that the peer sees an error, where the network can.
func ResetConn(nc net.Conn) {
	for {
		under, ok := nc.(interface{ NetConn() net.Conn }) // TLS and other layers
		if !ok {
			break
		}
		nc = under.NetConn()
	}
	if t, ok := nc.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	nc.Close()
}

// handshake performs the TLS handshake.
func (c *Conn) handshake() error {
	t, ok := c.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.s.reading, c.s.c.Limits.HelloTime)
	defer cancel()
	err := t.HandshakeContext(ctx)
	if err != nil && !errors.Is(err, io.EOF) { // EOF: a probe that looks whether the port is open
		return fmt.Errorf("no TLS: %w", err)
	}
	return err
}

// over reports whether err is how connections end.
func (c *Conn) over(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, io.ErrClosedPipe) || c.s.reading.Err() != nil
}

// Show makes a text of a peer fit for an error: one line, in quotation marks, short.
func Show(text []byte) string {
	const most = 60
	cut := len(text) > most
	if cut {
		text = text[:most]
	}
	s := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(text), "\ufffd"))
	if cut {
		s += "…"
	}
	return `"` + s + `"`
}
