// Package lokipush is a server of Loki's push API. The server answers a push when the sink has
// delivered or stored its records.
package lokipush

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/listen"
)

// Source is the protocol name in the records and in messages of this listener.
const Source = "loki"

// PushPath is the path of the push API.
const PushPath = "/loki/api/v1/push"

// A Server receives pushes. New creates it, and Close must be called at the end.
type Server struct {
	s        *listen.Server
	http     *http.Server
	conns    *connQueue
	rejected atomic.Uint64
	serving  sync.Once
	pushes   sync.Pool // values of type *push
}

// New returns a server. It sets the Name of c.
func New(c listen.Config) *Server {
	c.Name = Source
	s := &Server{}
	s.s = listen.NewServer(c, s.serveHTTP)
	l := s.s.Limits()
	s.pushes.New = func() any { return &push{w: walker{maxLabels: l.Labels}} }
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+PushPath, s.push)
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ready\n") })
	s.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Context().Value(connKey{}).(*queuedConn).parsed.Store(true)
			mux.ServeHTTP(w, r)
		}),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ConnState: func(c net.Conn, to http.ConnState) {
			if to == http.StateIdle {
				c.(*queuedConn).parsed.Store(false)
			}
		},
		ReadHeaderTimeout: l.HelloTime,
		ReadTimeout:       l.MessageTime,
		IdleTimeout:       24 * time.Hour,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo),
	}
	s.conns = &connQueue{conns: make(chan net.Conn), end: s.s.Reading()}
	return s
}

// Serve starts to accept connections on l and returns at once. Close closes l.
func (s *Server) Serve(l net.Listener) {
	s.serving.Do(func() { s.s.Go(func() { s.http.Serve(s.conns) }) })
	s.s.Serve(l)
}

// Stats returns the counters since the start.
func (s *Server) Stats() listen.Stats { return s.s.Stats() }

// Close ends the server. Until ctx is done, pushes that were already received are accepted and
// answered.
func (s *Server) Close(ctx context.Context) error {
	s.http.SetKeepAlivesEnabled(false)
	err := s.s.Close(ctx)
	s.http.Close()
	return err
}

// serveHTTP passes a connection to net/http and waits until net/http closes it.
func (s *Server) serveHTTP(ctx context.Context, c *listen.Conn) error {
	h := &queuedConn{Conn: c, refuse: s.s.Refuse, closed: make(chan struct{})}
	select {
	case s.conns.conns <- h:
		<-h.closed
	case <-s.s.Reading().Done():
	}
	return nil
}

// A connQueue is a net.Listener for net/http. It returns the connections that package listen has
// accepted.
type connQueue struct {
	conns chan net.Conn
	end   context.Context // when done, Accept returns an error
}

func (l *connQueue) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.end.Done():
		return nil, net.ErrClosed
	}
}
func (l *connQueue) Close() error   { return nil }
func (l *connQueue) Addr() net.Addr { return &net.UnixAddr{Name: Source, Net: "unix"} }

// A queuedConn is a connection in a connQueue.
type queuedConn struct {
	*listen.Conn
	refuse func(peer string, err error)
	parsed atomic.Bool // net/http has called the handler for the current request
	once   sync.Once
	closed chan struct{}
}

// connKey is the key of the queuedConn in the contexts of requests.
type connKey struct{}

// Write writes an answer. If net/http answers without calling the handler, it has received an
// invalid request, and Write reports a refusal.
func (c *queuedConn) Write(p []byte) (int, error) {
	if !c.parsed.Swap(true) {
		status, _, _ := bytes.Cut(p, []byte("\r\n"))
		_, text, _ := bytes.Cut(p, []byte("\r\n\r\n"))
		if len(text) == 0 {
			text = status
		}
		c.refuse(c.Peer(), fmt.Errorf("not a valid HTTP request: %s", listen.Quote(text)))
	}
	return c.Conn.Write(p)
}

// NetConn returns the connection of the client, so that listen.ResetConn can reset it.
func (c *queuedConn) NetConn() net.Conn { return c.Conn.Conn }

func (c *queuedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.closed) })
	return err
}

// A refusal is an error with the HTTP status of the answer.
type refusal struct {
	status int
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }

// push handles one push. Either all its records are accepted, or none.
func (s *Server) push(w http.ResponseWriter, r *http.Request) {
	p := s.pushes.Get().(*push)
	defer s.pushes.Put(p)
	p.lease = s.s.Lease()
	defer p.lease.Release()
	defer p.release()
	if err := p.read(s.s.Reading(), s.s.Limits(), r); err != nil {
		var refused *refusal
		if s.s.Reading().Err() != nil || !errors.As(err, &refused) { // no answer: the server is closing, or the connection has failed
			http.Error(w, "closing", http.StatusServiceUnavailable)
			return
		}
		s.s.Refuse(peer(r), refused.err)
		w.Header().Set("Connection", "close") // because the rest of the body was not read
		http.Error(w, refused.Error(), refused.status)
		return
	}
	switch action, ok := s.s.Action(); {
	case !ok:
		http.Error(w, "closing", http.StatusServiceUnavailable)
		return
	case action == listen.Reset:
		if nc, _, err := http.NewResponseController(w).Hijack(); err == nil {
			listen.ResetConn(nc)
			nc.Close()
		}
		return
	case action == listen.Reject && s.rejected.Add(1)%2 == 1:
		http.Error(w, "rejected on request: ingestion rate limit exceeded", http.StatusTooManyRequests)
		return
	case action == listen.Reject:
		http.Error(w, "rejected on request: internal error", http.StatusInternalServerError)
		return
	}
	records, err := p.put(s.s.Context(), s.s.Sink())
	if err == nil {
		err = s.s.Sink().Commit(s.s.Context())
	}
	if err != nil { // no answer: the sink reports the error
		http.Error(w, "the records cannot be accepted", http.StatusServiceUnavailable)
		return
	}
	s.s.CountAccepted(1, records)
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.s.Limits().WriteTime))
	w.WriteHeader(http.StatusNoContent)
}

// peer returns the address of the client, or "" if the client has none.
func peer(r *http.Request) string {
	if r.RemoteAddr == "@" || r.RemoteAddr == "pipe" { // clients of Unix sockets have no address
		return ""
	}
	return r.RemoteAddr
}
