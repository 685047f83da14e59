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

// Config is the configuration that the servers of all protocols share.
type Config struct {
	Name   string // name of the listener, which is also the Source of its records
	Sink   Sink
	Limits Limits

	// Refused is called for each refused message, push or connection. Calls for the same connection
	// are never concurrent. Refused must not block. It may be nil.
	Refused func(Refusal)

	// Action is called before each message is accepted and returns the reaction to the message. It
	// may block until its context is done, which Close cancels. If Action is nil, all messages are
	// accepted.
	Action func(context.Context) Action
}

// A Refusal reports a message, push or connection that a listener has not accepted.
type Refusal struct {
	Listener string
	Peer     string // address of the client; "" if it has none
	Err      error  // reason, as one short line without secrets
}

// String returns the refusal as one line.
func (r Refusal) String() string {
	if r.Peer == "" {
		return fmt.Sprintf("%s: refused: %v", r.Listener, r.Err)
	}
	return fmt.Sprintf("%s: %s: refused: %v", r.Listener, r.Peer, r.Err)
}

// Stats contains the counters of a listener.
type Stats struct {
	Conns    uint64 // accepted connections
	Messages uint64 // accepted messages, chunks or pushes
	Records  uint64 // records in the accepted messages
	Refused  uint64 // refused messages, pushes and connections
	Memory   int64  // memory of messages being read, without the first 64 KiB of each connection
}

// A Server serves the connections of one listener.
//
//	open ──Close──▶ closing ──▶ closed
//
// In the state closing, the server accepts no connections and reads no data. Messages that were
// received before are accepted and answered.
type Server struct {
	c      Config
	handle func(ctx context.Context, c *Conn) error

	base     context.Context // done when all goroutines have ended or the context of Close is done
	cancel   context.CancelFunc
	reading  context.Context // done when Close is called
	stop     context.CancelFunc
	memory   *budget
	running  sync.WaitGroup
	accepted atomic.Uint64
	messages atomic.Uint64
	records  atomic.Uint64
	refused  atomic.Uint64

	mu        sync.Mutex // acquire no other lock while holding mu
	listeners []io.Closer
	conns     map[*Conn]bool
	closing   bool
}

// NewServer returns a server. For each connection it calls handle on a separate goroutine, and
// closes the connection when handle returns. If handle returns an error although the connection has
// not ended, the error is reported as a refusal. The context passed to handle is done when the
// context passed to Close is done.
func NewServer(c Config, handle func(ctx context.Context, c *Conn) error) *Server {
	c.Limits.setDefaults()
	if c.Refused == nil {
		c.Refused = func(Refusal) {}
	}
	if c.Action == nil {
		c.Action = func(context.Context) Action { return Accept }
	}
	s := &Server{c: c, handle: handle, memory: &budget{total: c.Limits.MemoryBytes}, conns: map[*Conn]bool{}}
	s.base, s.cancel = context.WithCancel(context.Background())
	s.reading, s.stop = context.WithCancel(s.base)
	return s
}

// Limits returns the limits, with defaults instead of zeros.
func (s *Server) Limits() *Limits { return &s.c.Limits }

// Sink returns the sink of the records.
func (s *Server) Sink() Sink { return s.c.Sink }

// Lease returns a lease of size 0 from the memory budget of the server.
func (s *Server) Lease() *Lease { return &Lease{b: s.memory} }

// Action returns the reaction to a message. ok is false if the server is closing; in this case the
// message must be ignored.
func (s *Server) Action() (a Action, ok bool) {
	f := s.c.Action(s.reading)
	return f, s.reading.Err() == nil
}

// CountAccepted adds to the counters of accepted messages and records.
func (s *Server) CountAccepted(messages, records int) {
	s.messages.Add(uint64(messages))
	s.records.Add(uint64(records))
}

// Refuse counts a refusal and passes it to Config.Refused.
func (s *Server) Refuse(peer string, err error) {
	s.refused.Add(1)
	s.c.Refused(Refusal{s.c.Name, peer, err})
}

// Stats returns the counters since the start. It is safe for concurrent use.
func (s *Server) Stats() Stats {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return Stats{s.accepted.Load(), s.messages.Load(), s.records.Load(), s.refused.Load(), s.memory.used}
}

// Serve starts to accept connections on l and returns at once. Close closes l.
func (s *Server) Serve(l net.Listener) {
	if !s.CloseLater(l) {
		return
	}
	s.Go(func() { s.accept(l) })
}

// CloseLater makes Close close l, too. If Close was called before, CloseLater closes l and returns
// false.
func (s *Server) CloseLater(l io.Closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		l.Close()
		return false
	}
	s.listeners = append(s.listeners, l)
	return true
}

// Go runs f on a goroutine that Close waits for. If Close was called before, Go does nothing.
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

// Context returns a context that is done when the context passed to Close is done, or when all
// goroutines have ended.
func (s *Server) Context() context.Context { return s.base }

// Reading returns a context that is done when Close is called.
func (s *Server) Reading() context.Context { return s.reading }

// maxPause is the maximum pause between two attempts to accept a connection while no file
// descriptor is free.
const maxPause = time.Second

// accept accepts the connections of l until Close is called.
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
		case err != nil: // usually no file descriptor is free
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

// Conn returns nc as a connection of s, without calling the handler.
func (s *Server) Conn(nc net.Conn) *Conn { return &Conn{Conn: nc, s: s} }

// start calls the handler for nc on a new goroutine.
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
		if err != nil && !c.isNormalEnd(err) {
			s.Refuse(c.Peer(), err)
		}
	}()
}

// add registers a connection. If the server is closing or has too many connections, add closes the
// connection and returns false.
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
	if full { // report the refusal before the client notices that the connection is closed
		s.Refuse(c.Peer(), fmt.Errorf("too many connections: the limit is %d", s.c.Limits.Conns))
	}
	c.Conn.Close()
	return false
}

// remove closes c and removes it from the connections.
func (s *Server) remove(c *Conn) {
	c.Conn.Close()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// Close ends the server. It stops accepting connections and reading, and waits until the received
// messages are answered. When ctx is done, it aborts the remaining connections. After Close
// returns, no goroutine of the server is running. Close may be called again.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	s.stop()
	for _, l := range s.listeners {
		l.Close()
	}
	s.listeners = nil
	for c := range s.conns {
		c.Conn.SetReadDeadline(expired)
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

// ErrEnded is returned by a handler to end a connection without a refusal.
var ErrEnded = net.ErrClosed

// expired is a deadline in the past, which ends a blocked read.
var expired = time.Unix(1, 0)

// A Conn is one connection that a Server has accepted. Close of the Server interrupts its reads.
type Conn struct {
	net.Conn
	s *Server
}

// Peer returns the address of the client, or "" if the client has none.
func (c *Conn) Peer() string {
	a := c.RemoteAddr()
	if a == nil || a.Network() == "unix" || a.Network() == "pipe" {
		return ""
	}
	return a.String()
}

// SetReadDeadline sets the deadline of reads. The zero time means no deadline. SetReadDeadline has
// no effect after Close was called, which ends all reads.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.closing {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline sets the deadlines of reads and writes.
func (c *Conn) SetDeadline(t time.Time) error {
	c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// Answer writes b to the client within Limits.WriteTime.
func (c *Conn) Answer(b []byte) error {
	c.Conn.SetWriteDeadline(time.Now().Add(c.s.c.Limits.WriteTime))
	_, err := c.Conn.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the client has not read its responses for %v", c.s.c.Limits.WriteTime)
	}
	return err
}

// Reset closes the connection. A TCP connection is closed with a reset, so that the client sees an
// error.
func (c *Conn) Reset() { ResetConn(c.Conn) }

// ResetConn closes nc. A TCP connection is closed with a reset, so that the client sees an error.
func ResetConn(nc net.Conn) {
	for {
		inner, ok := nc.(interface{ NetConn() net.Conn }) // a connection that wraps another, such as TLS
		if !ok {
			break
		}
		nc = inner.NetConn()
	}
	if t, ok := nc.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	nc.Close()
}

// handshake performs the TLS handshake, if c uses TLS.
func (c *Conn) handshake() error {
	t, ok := c.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.s.reading, c.s.c.Limits.HelloTime)
	defer cancel()
	err := t.HandshakeContext(ctx)
	if err != nil && !errors.Is(err, io.EOF) { // EOF is no error: port scanners close connections immediately
		return fmt.Errorf("no TLS: %w", err)
	}
	return err
}

// isNormalEnd reports whether err means that the client has ended the connection or the server is
// closing. Such an error is not reported as a refusal.
func (c *Conn) isNormalEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, io.ErrClosedPipe) || c.s.reading.Err() != nil
}

// Quote quotes text from a client for an error message. The result is one short line.
func Quote(text []byte) string {
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
