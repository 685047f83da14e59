package loki

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang/snappy"

	"github.com/forebay-log/forebay/bufpool"
	"github.com/forebay-log/forebay/internal/compression"
)

// maxAnswer is the maximum number of bytes that are read of a response. For a response with status
// 400, maxRefusals is added.
const maxAnswer = 64 << 10

// A requestBuf contains the memory of one request. There are as many as concurrent requests, and
// each is used by one request at a time. The first requestBuf owns buffers for a batch of the usual
// size. All other memory comes from a pool. After each request it returns to the pool, which
// releases memory to the garbage collector when requests become fewer or smaller.
type requestBuf struct {
	own   [2][]byte // buffers for plain and out that b owns; nil if b owns no buffers
	heads []byte    // header of each stream: everything before its entries
	// spans contains the uncompressed body in pieces, which are parts of heads and of the memory of
	// the batch.
	spans    [][]byte
	size     int    // length of the uncompressed body
	plain    []byte // the uncompressed body in one piece
	out      []byte // the compressed body
	zip      compression.Writer
	response []byte // memory for the response, see read

	last *exchange // exchange that the next request reuses; may be nil

	// A transport may read the body of a request even after it has returned the response. The
	// memory is reused for the next request, so each request has a generation, and reading the body
	// of an earlier generation fails. mu guards the fields below it.
	mu   sync.Mutex
	gen  uint64 // generation: incremented when a request begins and when it ends
	wire []byte // the body of the current request; nil between requests
}

// Write appends p to the field out. It implements [io.Writer] for the compressor and never fails.
func (b *requestBuf) Write(p []byte) (int, error) {
	b.out = append(b.out, p...)
	return len(p), nil
}

// A bufStack is a stack of unused requestBufs. The requestBuf that was used last is reused first.
// Therefore requests that do not overlap always use the requestBuf that owns buffers. All methods
// are safe for concurrent use.
type bufStack struct {
	mu   sync.Mutex
	free []*requestBuf
	pool *bufpool.Pool
}

// newPool returns the memory pool for the given number of concurrent requests. The parameters usual
// and largest are sizes of requests in bytes. The size classes of the pool are the size usual,
// plain and compressed, and powers of four up to the size largest.
func newPool(usual, largest, requests int) (*bufpool.Pool, error) {
	classes := []int{usual, snappy.MaxEncodedLen(usual)}
	for n := 4 << 10; ; n *= 4 {
		classes = append(classes, n)
		if n >= snappy.MaxEncodedLen(largest) {
			break
		}
	}
	slices.Sort(classes)
	classes = slices.Compact(classes)
	return bufpool.New(bufpool.Config{SizeClasses: classes, NoZero: true, Debug: debugPool,
		MaxRetainedBytes: requests * classes[len(classes)-1]})
}

// debugPool makes new pools detect misuse, see bufpool.Config.Debug. Only tests set it.
var debugPool = false

// get returns an unused requestBuf, or a new one that owns no buffers. The caller must call put.
func (s *bufStack) get() *requestBuf {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.free) - 1
	if n < 0 {
		return new(requestBuf)
	}
	b := s.free[n]
	s.free = s.free[:n]
	return b
}

// put returns b to the stack, and the pool memory of b to the pool. The caller must not use b
// afterwards.
func (s *bufStack) put(b *requestBuf) {
	s.release(b.plain, b.own[0])
	s.release(b.out, b.own[1])
	b.plain, b.out = nil, nil
	clear(b.spans)
	b.spans = b.spans[:0]
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.own[0] != nil || len(s.free) == 0 {
		s.free = append(s.free, b)
		return
	}
	// The requestBuf that owns buffers stays on top of the stack.
	s.free = slices.Insert(s.free, len(s.free)-1, b)
}

// alloc returns empty memory with capacity for n bytes. It is the buffer own if that is large
// enough, and otherwise memory of the pool, which the caller must release.
func (s *bufStack) alloc(own []byte, n int) []byte {
	if cap(own) >= n {
		return own[:0]
	}
	b, _ := s.pool.Get(n)
	return b[:0]
}

// release returns the memory b to the pool. It does nothing if b is the buffer own or has no
// memory.
func (s *bufStack) release(b, own []byte) {
	if cap(b) > 0 && (cap(own) == 0 || &b[:1][0] != &own[:1][0]) {
		s.pool.Put(b)
	}
}

// gzipBound returns the maximum size in bytes of gzip output for n bytes of input. It includes the
// headers of uncompressed blocks, and the header and trailer of the format (RFC 1952).
func gzipBound(n int) int { return n + n/1024 + 1024 }

// An exchange is an HTTP request with its body and timeout. To save allocations, the next request
// of a requestBuf reuses the exchange of the previous one if no other goroutine can still access
// it. This is the case if the transport has closed the body after EOF, and the response was read to
// its end; see the documentation of [http.RoundTripper]. Otherwise the exchange is left to the
// garbage collector.
type exchange struct {
	req *http.Request
	// template is copied to req before each request, because a transport may modify req.
	template *http.Request
	parent   context.Context // context of the session
	ctx      deadlineContext
	cancel   context.CancelCauseFunc
	timer    *time.Timer
	body     bodyReader
	// getBodyCalled is true if the transport has requested a second body. The exchange is then not
	// reused.
	getBodyCalled atomic.Bool
	complete      bool // the response was read to its end
}

// A deadlineContext is a context whose deadline can be set for each request. It inherits the method
// Done from the embedded context, which the timer of the exchange cancels.
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

// Err returns context.DeadlineExceeded after the timeout, like a context with a deadline. The
// embedded context would return context.Canceled, because the timer has canceled it.
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
	gen    uint64 // generation of the body; Read fails after the generation of b has changed
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

// Close is called by the transport when it no longer reads the body. It implements [io.Closer].
func (r *bodyReader) Close() error {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	r.closed = true
	return nil
}

// begin prepares a request whose body is wire, and starts its timeout. The slice wire must not
// change until finish is called. If the previous request has the same parent context, begin reuses
// its exchange. Otherwise begin ends that exchange and creates a new one.
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

// finish ends x, or retains it for the next request of b. Afterwards, reading a body of x returns
// errRequestEnded, so the memory of the body may be reused.
func (b *requestBuf) finish(x *exchange) {
	b.mu.Lock()
	b.gen++
	b.wire = nil
	// If over is true, no other goroutine can still use x.
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

// read reads a response and closes it. It returns up to about limit bytes, which are valid until
// the next read. The result whole reports whether the response is complete; after an incomplete
// response the connection is not reused. After an error, it is unknown whether Loki has processed
// the request.
func (b *requestBuf) read(r io.ReadCloser, limit int) (text []byte, whole bool, err error) {
	defer r.Close()
	if cap(b.response) == 0 {
		b.response = make([]byte, 4<<10)
	}
	in, n := b.response[:cap(b.response)], 0
	for err == nil && n < limit {
		if n == len(in) {
			in = append(in, make([]byte, len(in))...)
		}
		var k int
		k, err = r.Read(in[n:])
		n += k
	}
	if b.response = in; len(in) > maxAnswer {
		// The buffer is released, because so much memory is rarely needed again.
		b.response = nil
	}
	switch {
	case err == nil:
		return in[:n], false, nil
	case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return in[:n], true, nil
	}
	return nil, false, err
}

// endExchanges ends all cached exchanges, because they would retain the context of an ended
// session.
func (s *bufStack) endExchanges() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.free {
		b.last.end()
		b.last = nil
	}
}
