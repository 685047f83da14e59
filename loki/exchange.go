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

// An exchange is an HTTP request with its body and timeout. Reusing it saves allocations: the next
// request of a requestBuf uses the exchange of the previous one. This is permitted only if no other
// goroutine can still access it. That is the case if the transport has closed the body after EOF
// and the response was read to its end; see the documentation of [http.RoundTripper]. Any other
// exchange is left to the garbage collector.
type exchange struct {
	req *http.Request
	// template is copied to req before each request, because transports may modify req.
	template      *http.Request
	parent        context.Context // context of the session
	ctx           deadlineContext
	cancel        context.CancelCauseFunc
	timer         *time.Timer
	body          bodyReader
	getBodyCalled atomic.Bool // set if the transport has requested a second body; the exchange is then not reused
	complete      bool        // set when the response was read to its end
}

// A deadlineContext is a context whose deadline can be set for each request. Its method Done is
// that of the embedded context, which the timer of the exchange cancels.
type deadlineContext struct {
	context.Context
	until atomic.Int64 // Unix ns
}

// Deadline returns the earlier of the deadlines of the exchange and its parent.
func (t *deadlineContext) Deadline() (time.Time, bool) {
	until := time.Unix(0, t.until.Load())
	if d, ok := t.Context.Deadline(); ok && d.Before(until) {
		return d, true
	}
	return until, true
}

// Err returns context.DeadlineExceeded after the timeout, as a context with a deadline does. The
// embedded context would return context.Canceled, because the timer canceled it.
func (t *deadlineContext) Err() error {
	err := t.Context.Err()
	if err != nil && errors.Is(context.Cause(t.Context), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// A bodyReader is the body of one request. It reads from the memory of a requestBuf. Transports may
// use it from several goroutines and after the request has ended. The mutex of the requestBuf
// guards the fields that change.
type bodyReader struct {
	b      *requestBuf
	gen    uint64 // generation of the body; if it differs from that of b, Read fails
	off    int    // bytes read
	ended  bool   // Read has returned io.EOF
	closed bool
}

// errRequestEnded is returned by reads of a body after its request has ended.
var errRequestEnded = errors.New("loki: the request has ended")

// Read implements [io.Reader]. After finish it fails, because the memory may then contain the next
// request.
func (r *bodyReader) Read(p []byte) (int, error) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if r.gen != r.b.gen {
		return 0, errRequestEnded
	}
	if r.off == len(r.b.wire) {
		r.ended = true
		return 0, io.EOF
	}
	n := copy(p, r.b.wire[r.off:])
	r.off += n
	return n, nil
}

// Close records that the transport no longer reads the body. It implements [io.Closer].
func (r *bodyReader) Close() error {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.closed = true
	return nil
}

// begin prepares a request with the body wire and starts its timeout. wire must not change until
// finish. The exchange of the previous request is reused if it has the same parent context.
// Otherwise it is ended and a new one is created.
func (b *requestBuf) begin(ctx context.Context, c *Config, wire []byte) *exchange {
	x := b.last
	b.last = nil
	if x == nil || x.parent != ctx || ctx.Err() != nil {
		x.end()
		x = b.newExchange(ctx, c)
	} else {
		x.timer.Reset(c.HTTP.Timeout)
	}
	*x.req, x.complete = *x.template, false
	x.ctx.until.Store(time.Now().Add(c.HTTP.Timeout).UnixNano())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gen++
	b.wire = wire
	x.body = bodyReader{b: b, gen: b.gen}
	return x
}

// newExchange returns an exchange with the parent context ctx. Its timer is running.
func (b *requestBuf) newExchange(ctx context.Context, c *Config) *exchange {
	x := &exchange{parent: ctx}
	x.ctx.Context, x.cancel = context.WithCancelCause(ctx)
	x.timer = time.AfterFunc(c.HTTP.Timeout, func() { x.cancel(context.DeadlineExceeded) })
	req := http.Request{
		Method: http.MethodPost, URL: c.endpoint, Host: c.endpoint.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: &x.body,
		GetBody: func() (io.ReadCloser, error) {
			x.getBodyCalled.Store(true)
			return &bodyReader{b: b, gen: x.body.gen}, nil
		},
	}
	x.req, x.template = new(http.Request), req.WithContext(&x.ctx)
	return x
}

// finish ends x, or retains it for the next request of b. After finish, reads of the bodies of x
// return errRequestEnded, so the memory of wire may be reused.
func (b *requestBuf) finish(x *exchange) {
	b.mu.Lock()
	b.gen++
	b.wire = nil
	// over reports whether no other goroutine can still use x.
	over := x.complete && x.body.ended && x.body.closed && !x.getBodyCalled.Load()
	b.mu.Unlock()
	if x.timer.Stop() && over {
		b.last = x
	} else {
		x.end()
	}
}

// end releases the context of x and cancels a request that is still using it. x may be nil.
func (x *exchange) end() {
	if x != nil {
		x.cancel(nil)
	}
}

// endExchanges ends all exchanges that are kept for reuse, so that they do not retain the context
// of an ended session.
func (s *bufStack) endExchanges() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.free {
		b.last.end()
		b.last = nil
	}
}

// do sends req and returns the response, like http.Client.Do. If the client has neither cookie jar
// nor timeout, do calls the transport directly: http.Client would only add allocations for
// redirects, which are not followed. The checks after RoundTrip are those of http.Client.
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
