package loki

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// An exchange is an HTTP request with its body and timeout. A successful exchange is reused for the
// next request of its requestBuf, but only if no other goroutine can still access it: the transport
// has closed the body after EOF, and the response was read to its end. The [http.RoundTripper]
// interface permits reuse then. Any other exchange is left to the garbage collector.
type exchange struct {
	req      *http.Request
	blank    *http.Request // copied to req before each request, because transports may modify it
	parent   context.Context
	ctx      timed
	cancel   context.CancelCauseFunc
	timer    *time.Timer
	body     bodyReader
	asked    atomic.Bool // GetBody was called
	complete bool        // the response was read to its end
}

// timed is a context whose deadline is moved for each request.
type timed struct {
	context.Context
	until atomic.Int64 // Unix ns
}

func (t *timed) Deadline() (time.Time, bool) {
	until := time.Unix(0, t.until.Load())
	if d, ok := t.Context.Deadline(); ok && d.Before(until) {
		return d, true
	}
	return until, true
}

func (t *timed) Err() error {
	err := t.Context.Err()
	if err != nil && errors.Is(context.Cause(t.Context), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// A bodyReader is the body of a request. It reads from a requestBuf.
type bodyReader struct {
	b      *requestBuf
	gen    uint64
	off    int
	ended  bool // Read has returned io.EOF
	closed bool
}

var errStale = errors.New("loki: the request has ended")

func (r *bodyReader) Read(p []byte) (int, error) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if r.gen != r.b.gen {
		return 0, errStale
	}
	if r.off == len(r.b.wire) {
		r.ended = true
		return 0, io.EOF
	}
	n := copy(p, r.b.wire[r.off:])
	r.off += n
	return n, nil
}

func (r *bodyReader) Close() error {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.closed = true
	return nil
}

// begin prepares a request with the body wire, and starts its timeout.
func (b *requestBuf) begin(ctx context.Context, c *Config, wire []byte) *exchange {
	x := b.last
	b.last = nil
	if x == nil || x.parent != ctx || ctx.Err() != nil {
		x.end()
		x = b.newExchange(ctx, c)
	} else {
		x.timer.Reset(c.HTTP.Timeout)
	}
	*x.req, x.complete = *x.blank, false
	x.ctx.until.Store(time.Now().Add(c.HTTP.Timeout).UnixNano())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gen++
	b.wire = wire
	x.body = bodyReader{b: b, gen: b.gen}
	return x
}

func (b *requestBuf) newExchange(ctx context.Context, c *Config) *exchange {
	x := &exchange{parent: ctx}
	x.ctx.Context, x.cancel = context.WithCancelCause(ctx)
	x.timer = time.AfterFunc(c.HTTP.Timeout, func() { x.cancel(context.DeadlineExceeded) })
	req := http.Request{
		Method: http.MethodPost, URL: c.endpoint, Host: c.endpoint.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: &x.body,
		GetBody: func() (io.ReadCloser, error) {
			x.asked.Store(true)
			return &bodyReader{b: b, gen: x.body.gen}, nil
		},
	}
	x.req, x.blank = new(http.Request), req.WithContext(&x.ctx)
	return x
}

// finish ends x or keeps it for the next request. Its bodies return errStale from now on.
func (b *requestBuf) finish(x *exchange) {
	b.mu.Lock()
	b.gen++
	b.wire = nil
	over := x.complete && x.body.ended && x.body.closed && !x.asked.Load()
	b.mu.Unlock()
	if x.timer.Stop() && over {
		b.last = x
	} else {
		x.end()
	}
}

// end releases the resources of x, which may be nil.
func (x *exchange) end() {
	if x != nil {
		x.cancel(nil)
	}
}

// forget ends all exchanges that are kept for reuse.
func (s *bufStack) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.free {
		b.last.end()
		b.last = nil
	}
}

// do is like http.Client.Do. A client without cookie jar and timeout adds nothing to its transport,
// except allocations for redirects, which are not followed; then do calls the transport directly.
func (s *client) do(req *http.Request) (*http.Response, error) {
	if s.http.Jar != nil || s.http.Timeout != 0 {
		req.Header = req.Header.Clone() // cookies are added to it
		return s.http.Do(req)
	}
	t := s.http.Transport
	if t == nil {
		t = http.DefaultTransport
	}
	res, err := t.RoundTrip(req)
	switch {
	case err != nil:
		var plain tls.RecordHeaderError
		if errors.As(err, &plain) && string(plain.RecordHeader[:]) == "HTTP/" {
			err = http.ErrSchemeMismatch
		}
		return nil, err
	case res == nil:
		return nil, errors.New("the transport returned neither an answer nor an error")
	case res.Body == nil:
		res.Body = http.NoBody
	}
	return res, nil
}
