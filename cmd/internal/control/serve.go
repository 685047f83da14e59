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

// Limits on the load that clients can cause.
const (
	maxConns    = 16
	maxHeader   = 8 << 10
	connTimeout = 5 * time.Second       // for a request to come, and for an answer to be taken
	pace        = 10 * time.Millisecond // minimum time between two answers, over all clients
)

// A Server answers requests on a control socket until it is closed.
type Server struct {
	srv  *http.Server
	path string
}

// Serve answers requests on ln: GET /state with the result of state as JSON, and all others with
// rest. It calls state and rest from any goroutine, at most every 10 ms. A slow client does not
// delay the others.
func Serve(ln net.Listener, state func() State, rest http.Handler) *Server {
	s := &Server{newHTTP(state, rest), ln.Addr().String()}
	go func() { _ = s.srv.Serve(&bounded{Listener: ln}) }() // until Close
	return s
}

// Path returns the path of the socket.
func (s *Server) Path() string { return s.path }

// Close ends the server and cuts its connections.
func (s *Server) Close() { _ = s.srv.Close() }

func newHTTP(state func() State, rest http.Handler) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		doc, err := json.Marshal(state())
		if err != nil {
			panic(err) // it is numbers and text
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(doc, '\n')) // else the client is gone
	})
	mux.Handle("/", rest)
	var turns turns
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if turns.wait(r.Context()) {
				mux.ServeHTTP(w, r)
			}
		}),
		ReadTimeout: connTimeout, WriteTimeout: connTimeout, IdleTimeout: connTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // standard error is not for what peers do
	}
}

// turns are the moments at which requests are answered.
type turns struct {
	mu   sync.Mutex
	next time.Time
}

// wait waits for a turn. It reports false if ctx is done before.
func (t *turns) wait(ctx context.Context) bool {
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

// bounded is a listener that has at most maxConns connections. Others are closed at once.
type bounded struct {
	net.Listener
	open atomic.Int32
}

func (l *bounded) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= maxConns {
			return &counted{Conn: c, l: l}, nil
		}
		l.open.Add(-1)
		_ = c.Close()
	}
}

// counted is a connection of a bounded listener.
type counted struct {
	net.Conn
	l    *bounded
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.l.open.Add(-1) })
	return c.Conn.Close()
}
