package control

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// These limits bound the load that clients can cause.
const (
	maxConns    = 16
	maxHeader   = 8 << 10
	connTimeout = 5 * time.Second       // time limit for reading a request, and also for writing an answer
	pace        = 10 * time.Millisecond // minimum time between two answers to any clients
)

// A Server answers requests on a control socket until it is closed.
type Server struct {
	srv  *http.Server
	path string
}

// Serve answers requests on ln. For GET /state, it returns the result of the function state as
// JSON. The handler rest answers all other requests. In total, both are called at most once per 10
// ms, on several goroutines. A slow client does not delay other clients.
func Serve(ln net.Listener, state func() State, rest http.Handler) *Server {
	s := &Server{newHTTP(state, rest), ln.Addr().String()}
	go func() { _ = s.srv.Serve(&limitedListener{Listener: ln}) }() // ends after Close
	return s
}

// Path returns the path of the socket.
func (s *Server) Path() string { return s.path }

// Close ends the server and closes its connections.
func (s *Server) Close() { _ = s.srv.Close() }

func newHTTP(state func() State, rest http.Handler) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		doc, err := json.Marshal(state())
		if err != nil {
			panic(err) // unreachable, because a State contains only numbers and texts
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(doc, '\n')) // an error means that the client has disconnected
	})
	mux.Handle("/", rest)
	var limiter rateLimiter
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if limiter.wait(r.Context()) {
				mux.ServeHTTP(w, r)
			}
		}),
		ReadTimeout: connTimeout, WriteTimeout: connTimeout, IdleTimeout: connTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // do not write errors of clients to standard error
	}
}

// A rateLimiter limits the rate of answers. The time between two answers is at least pace.
type rateLimiter struct {
	mu   sync.Mutex
	next time.Time
}

// wait waits until the next answer may be sent. It returns false if ctx is done first.
func (t *rateLimiter) wait(ctx context.Context) bool {
	t.mu.Lock()
	now := time.Now()
	at := now
	if t.next.After(now) {
		at = t.next
	}
	t.next = at.Add(pace)
	t.mu.Unlock()
	if at.Equal(now) {
		return true
	}
	timer := time.NewTimer(at.Sub(now))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// A limitedListener accepts at most maxConns connections at a time. It immediately closes any
// further connection.
type limitedListener struct {
	net.Listener
	open atomic.Int32
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= maxConns {
			return &limitedConn{Conn: c, l: l}, nil
		}
		l.open.Add(-1)
		_ = c.Close()
	}
}

// A limitedConn is a connection of a limitedListener. After its Close, the listener can accept
// another connection.
type limitedConn struct {
	net.Conn
	l    *limitedListener
	once sync.Once
}

func (c *limitedConn) Close() error {
	c.once.Do(func() { c.l.open.Add(-1) })
	return c.Conn.Close()
}
