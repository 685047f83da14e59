package loki

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/golang/snappy"

	"github.com/forebay-log/forebay/bufpool"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/compression"
	"github.com/forebay-log/forebay/internal/httpsend"
	"github.com/forebay-log/forebay/internal/secrets"
)

// maxAnswer limits the part of a response that is read, in bytes. For a 400 response the limit is
// larger by maxRefusals.
const maxAnswer = 64 << 10

// A requestBuf contains the memory of one request. There are as many as concurrent requests, and
// each is used by one request at a time. The first one owns buffers for a batch of the usual size.
// All other memory comes from a pool for one request. The pool releases it to the garbage collector
// when requests become fewer or smaller.
type requestBuf struct {
	own      [2][]byte // buffers for plain and out that b owns; nil if it owns none
	heads    []byte    // header of each stream: everything before its entries
	spans    [][]byte  // the uncompressed body in pieces, which alias heads and the memory of the batch
	size     int       // length of the uncompressed body
	plain    []byte    // the uncompressed body in one piece
	out      []byte    // the compressed body
	zip      compression.Writer
	response []byte // memory for the response, see read

	last *exchange // exchange that the next request reuses; may be nil

	// A transport may read the body of a request even after it has returned the response. The
	// memory is reused for the next request, so Read returns an error for the body of an earlier
	// generation. mu guards the fields below it.
	mu   sync.Mutex
	gen  uint64 // generation: incremented when a request begins and when it ends
	wire []byte // the body of the current request; nil between requests
}

// Write appends p to out. It implements [io.Writer] for zip, and never fails.
func (b *requestBuf) Write(p []byte) (int, error) {
	b.out = append(b.out, p...)
	return len(p), nil
}

// A bufStack is a stack of unused requestBufs. All methods are safe for concurrent use. The one
// used last is reused first. So the one that owns buffers is used whenever one request at a time is
// sufficient.
type bufStack struct {
	mu   sync.Mutex
	free []*requestBuf
	pool *bufpool.Pool
}

// newPool returns the pool of request memory for the given number of concurrent requests. usual and
// largest are sizes of requests in bytes. The size classes of the pool are the usual size, plain
// and compressed, and powers of four up to the largest request.
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

// put returns b to the stack and the memory that b has from the pool to the pool. The caller must
// not use b afterwards.
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

// alloc returns empty memory with capacity for n bytes. If own is large enough, the memory is own.
// Otherwise it is memory of the pool, which the caller must release.
func (s *bufStack) alloc(own []byte, n int) []byte {
	if cap(own) >= n {
		return own[:0]
	}
	b, _ := s.pool.Get(n)
	return b[:0]
}

// release returns b to the pool, unless b is own or has no memory.
func (s *bufStack) release(b, own []byte) {
	if cap(b) > 0 && (cap(own) == 0 || &b[:1][0] != &own[:1][0]) {
		s.pool.Put(b)
	}
}

// layout computes the pieces of an uncompressed protobuf body: for each stream a header, followed
// by the entries. Entries that are adjacent in memory are one piece, for example those of a stream
// in one slab. The pieces alias b.heads and the memory of the batch.
func (b *requestBuf) layout(p *push, segs []segment) {
	const before = 1 + lenBytes + 1 + binary.MaxVarintLen32 // size of the header before the labels
	n := 0
	for i := range segs {
		n += before + len(segs[i].st.labels)
	}
	heads := slices.Grow(b.heads[:0], n)
	b.size = 0
	for i := range segs {
		seg := &segs[i]
		at := len(heads)
		heads = append(heads, tagStreams, 0, 0, 0, 0, tagLabels)
		heads = binary.AppendUvarint(heads, uint64(len(seg.st.labels)))
		heads = append(heads, seg.st.labels...)
		head := heads[at:]
		b.spans = append(b.spans, head)
		entries := 0
		for k := 0; k < len(seg.order); {
			r := seg.order[k]
			first := p.recs[r].data
			n := len(first)
			// Entries that directly follow each other in memory extend the piece.
			for k++; k < len(seg.order) && seg.order[k] == r+1 && p.recs[r+1].next; k++ {
				r++
				n += len(p.recs[r].data)
			}
			b.spans = append(b.spans, unsafe.Slice(unsafe.SliceData(first), n))
			entries += n
		}
		putPadded(head[1:1+lenBytes], uint64(len(head)-1-lenBytes+entries))
		b.size += len(head) + entries
	}
	b.heads = heads
}

// build returns the compressed body of a request. It is valid until b is passed to put.
func (s *client) build(b *requestBuf, p *push, segs []segment) []byte {
	switch s.wireOf(p.form) {
	case wireProtobuf:
		b.layout(p, segs)
		b.plain = s.bufs.alloc(b.own[0], b.size)
		for _, span := range b.spans {
			b.plain = append(b.plain, span...)
		}
		b.out = s.bufs.alloc(b.own[1], snappy.MaxEncodedLen(b.size))
		b.out = snappy.Encode(b.out[:cap(b.out)], b.plain)
		return b.out
	case wireGzip:
		s.buildJSON(b, p, segs)
		b.out = s.bufs.alloc(b.own[1], gzipBound(b.size))
		if b.zip == nil {
			b.zip = compression.NewGzip()
		}
		b.zip.Reset(b)
		b.zip.Write(b.plain) // the Write method of b never returns an error
		b.zip.Close()
		return b.out
	}
	s.buildJSON(b, p, segs)
	return b.plain
}

// wireOf returns the value of Config.Wire for requests with entries of form f. It is that of the
// Config, unless the entries were encoded by an earlier process with another Config.
func (s *client) wireOf(f form) string {
	switch {
	case f == formOf(s.c.Wire):
		return s.c.Wire
	case f == jsonForm:
		return wireJSON
	}
	return wireProtobuf
}

// buildJSON writes the JSON body of a request to b.plain.
func (s *client) buildJSON(b *requestBuf, p *push, segs []segment) {
	n := len(`{"streams":[]}`)
	for i := range segs {
		seg := &segs[i]
		n += 64 + 2*len(seg.st.labels) // labels with space for the escapes of their quotes
		for _, k := range seg.order {
			n += len(p.recs[k].data) + 1
		}
	}
	b.plain = appendJSON(s.bufs.alloc(b.own[0], n), p, segs)
	b.size = len(b.plain)
}

// appendJSON appends the JSON body of a request:
// {"streams":[{"stream":{"name":"value"},"values":[ENTRY,…]},…]}.
func appendJSON(dst []byte, p *push, segs []segment) []byte {
	dst = append(dst, `{"streams":[`...)
	for k, seg := range segs {
		if k > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"stream":`...)
		dst = appendLabelsJSON(dst, seg.st.labels)
		dst = append(dst, `,"values":[`...)
		for x, i := range seg.order {
			if x > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, p.recs[i].data...)
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, "]}"...)
}

// gzipBound returns the maximum size in bytes of gzip output for n bytes of input: stored blocks
// with their headers, and the header and trailer of the format (RFC 1952).
func gzipBound(n int) int { return n + n/1024 + 1024 }

// post sends one request with segs, all of one tenant, and returns the interpreted response. Before
// sending, it waits for the rate limits. If the HTTP client panics, the answer has the kind
// unanswered, because the request may have been sent.
func (s *client) post(ctx context.Context, p *push, segs ...segment) (out answer) {
	b := s.bufs.get()
	defer func() {
		if v := recover(); v != nil {
			out = answer{kind: unanswered, err: panicked(v)}
		}
		if out.kind != accepted {
			s.failed.Add(1)
			text := out.err.Error()
			s.lastErr.Store(&text)
		}
		s.bufs.put(b)
	}()
	wire := s.build(b, p, segs)
	if a := s.waitFor(ctx, segs, b.size); a.kind != accepted {
		return a
	}
	s.requests.Add(1)
	s.bodyBytes.Add(uint64(b.size))
	s.wireBytes.Add(uint64(len(wire)))
	header := s.headers.get(segs[0].st.tenant, s.wireOf(p.form))
	x := b.begin(ctx, s.c, wire)
	defer b.finish(x)
	x.req.Header, x.req.ContentLength = header, int64(len(wire))
	res, err := s.do(x.req)
	if err != nil {
		return s.noResponse(err)
	}
	s.answeredHTTP.Store(true)
	limit := maxAnswer
	if res.StatusCode == http.StatusBadRequest {
		limit += maxRefusals(segs)
	}
	text, whole, err := b.read(res.Body, limit)
	if err != nil {
		return s.noResponse(fmt.Errorf("cannot read the answer (%d): %w", res.StatusCode, err))
	}
	x.complete = whole
	if res.ProtoMajor == 1 && res.ContentLength < 0 && len(res.TransferEncoding) == 0 && !res.Uncompressed {
		whole = false // an HTTP/1 body without a length ends with the connection and may be truncated
	}
	s.unreachable.Store(false)
	out = s.interpret(res, text, whole, b.size, segs, p.recs[segs[0].order[0]].time)
	owner := segs[0].st.owner
	if isAuthenticated(res.StatusCode) {
		owner.deniedAt.Store(0)
	}
	switch {
	case out.kind == accepted:
		s.noteAccepted(p, segs, b.size, time.Now())
	case res.StatusCode == http.StatusUnauthorized && s.headers.reloadAfter401(header):
		out.kind = tryAgain // the request is sent again with the new token
	case out.kind == denied:
		owner.deniedAt.Store(time.Now().UnixNano())
	}
	return out
}

// noResponse returns the answer for a request that failed with err, without a complete response.
// Its kind depends on whether the request can have reached Loki.
func (s *client) noResponse(err error) answer {
	s.unreachable.Store(true)
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // the URL may contain a secret in its query
	}
	failed := &httpclient.Error{Package: "loki", Message: httpsend.Printable(s.errorText(err)), Cause: err}
	out := answer{kind: unanswered, err: failed}
	switch httpsend.StateAfter(err) {
	case httpsend.NotSecure:
		out.kind = hold
	case httpsend.NotSent:
		out.kind = tryAgain
	default:
		failed.MaybeStored = true
	}
	return out
}

// errorText returns the text of an error of the transport, without credentials. net/http reports
// only the part of a response that it could not parse. So errorText adds an explanation if the port
// does not seem to speak HTTP.
func (s *client) errorText(err error) string {
	text := secrets.HideIn(err, redactedMark, s.credentials()...).Error()
	_, answer, malformed := strings.Cut(text, "malformed HTTP ") // net/http has no error type for it
	switch {
	case malformed:
		return fmt.Sprintf("%s does not speak HTTP: malformed %s", s.c.endpoint.Host, answer)
	case s.answeredHTTP.Load():
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Sprintf("%s closed the connection without an HTTP answer; it may not speak HTTP: %s", s.c.endpoint.Host, text)
	}
	return text
}

// isAuthenticated reports whether a response with this status proves that Loki accepted the
// credentials.
func isAuthenticated(status int) bool {
	return status == http.StatusNoContent || status == http.StatusBadRequest || status == http.StatusUnprocessableEntity
}

// maxRefusals returns the maximum length of the text of a 400 response, in bytes: one message per entry,
// with the labels of its stream and a few labels that Loki adds.
func maxRefusals(segs []segment) (n int) {
	for i := range segs {
		n += len(segs[i].order) * (512 + 2*len(segs[i].st.labels))
	}
	return n
}

// read reads a response and closes it. It returns up to about limit bytes, which are valid until
// the next read. whole reports whether the response is complete; only then can the connection be
// reused. After an error the outcome of the request is unknown.
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
		b.response = nil // releases the buffer, because so much memory is rarely needed again
	}
	switch {
	case err == nil:
		return in[:n], false, nil
	case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return in[:n], true, nil
	}
	return nil, false, err
}
