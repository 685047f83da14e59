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

// maxAnswer limits the part of a response that is read, in bytes. For a 400 response maxRefusals is
// added.
const maxAnswer = 64 << 10

// A requestBuf holds the memory of one request. There are as many as concurrent requests. The first
// one owns buffers for a batch of the usual size; all other memory is borrowed from a pool for one
// request, and is released to the garbage collector when requests become fewer or smaller.
type requestBuf struct {
	own   [2][]byte // owned buffers for plain and out; nil if it owns none
	heads []byte    // header of each stream: everything before its entries
	spans [][]byte  // the uncompressed body in pieces, which alias heads and the batch
	size  int       // length of the uncompressed body
	plain []byte    // the uncompressed body in one piece
	out   []byte    // the compressed body
	zip   compression.Writer
	in    []byte

	last *exchange // reused by the next request; may be nil

	// A transport may read the body of a request even after it has returned the response.
	// The memory is reused, so bodies of earlier generations return an error from Read.
	mu   sync.Mutex
	gen  uint64
	wire []byte
}

// Write appends p to out. It implements the io.Writer of zip.
func (b *requestBuf) Write(p []byte) (int, error) {
	b.out = append(b.out, p...)
	return len(p), nil
}

// A bufStack is a stack of free requestBufs. The last one used is reused first, so the one that
// owns buffers is used whenever one is enough.
type bufStack struct {
	mu   sync.Mutex
	free []*requestBuf
	pool *bufpool.Pool
}

// newPool returns the pool of request memory. Its size classes are the usual batch, plain and
// compressed, and powers of four.
func newPool(usual, largest, each int) (*bufpool.Pool, error) {
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
		MaxRetainedBytes: each * classes[len(classes)-1]})
}

// debugPool makes pools detect misuse, see bufpool.Config. Tests set it.
var debugPool = false

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

// put returns b to the stack. The caller must not use b afterwards.
func (s *bufStack) put(b *requestBuf) {
	s.repay(b.plain, b.own[0])
	s.repay(b.out, b.own[1])
	b.plain, b.out = nil, nil
	clear(b.spans)
	b.spans = b.spans[:0]
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.own[0] != nil || len(s.free) == 0 {
		s.free = append(s.free, b)
		return
	}
	// The one that owns buffers stays on top.
	s.free = slices.Insert(s.free, len(s.free)-1, b)
}

// borrow returns memory for n bytes: own, if it is large enough.
func (s *bufStack) borrow(own []byte, n int) []byte {
	if cap(own) >= n {
		return own[:0]
	}
	b, _ := s.pool.Get(n)
	return b[:0]
}

func (s *bufStack) repay(b, own []byte) {
	if cap(b) > 0 && (cap(own) == 0 || &b[:1][0] != &own[:1][0]) {
		s.pool.Put(b)
	}
}

// layout computes the pieces of an uncompressed protobuf body: the header of each stream, followed
// by its entries. Entries that are adjacent in memory, such as the ones of a stream in one slab, are
// one piece.
func (b *requestBuf) layout(p *push, segs []segment) {
	const before = 1 + lenBytes + 1 + binary.MaxVarintLen32 // the labels
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

// build returns the compressed body of a request. It is valid until b is put back.
func (s *client) build(b *requestBuf, p *push, segs []segment) []byte {
	switch s.wireOf(p.form) {
	case wireProtobuf:
		b.layout(p, segs)
		b.plain = s.bufs.borrow(b.own[0], b.size)
		for _, span := range b.spans {
			b.plain = append(b.plain, span...)
		}
		b.out = s.bufs.borrow(b.own[1], snappy.MaxEncodedLen(b.size))
		b.out = snappy.Encode(b.out[:cap(b.out)], b.plain)
		return b.out
	case wireGzip:
		s.buildJSON(b, p, segs)
		b.out = s.bufs.borrow(b.own[1], gzipBound(b.size))
		if b.zip == nil {
			b.zip = compression.NewGzip()
		}
		b.zip.Reset(b)
		b.zip.Write(b.plain) // a requestBuf never returns an error
		b.zip.Close()
		return b.out
	}
	s.buildJSON(b, p, segs)
	return b.plain
}

// wireOf returns the wire form of requests with entries of form f. It is the form of the Config,
// unless the entries were encoded by an earlier process with another Config.
func (s *client) wireOf(f form) string {
	switch {
	case f == formOf(s.c.Wire):
		return s.c.Wire
	case f == jsonForm:
		return wireJSON
	}
	return wireProtobuf
}

func (s *client) buildJSON(b *requestBuf, p *push, segs []segment) {
	n := len(`{"streams":[]}`)
	for i := range segs {
		seg := &segs[i]
		n += 64 + 2*len(seg.st.labels) // room to escape quotes
		for _, k := range seg.order {
			n += len(p.recs[k].data) + 1
		}
	}
	b.plain = appendJSON(s.bufs.borrow(b.own[0], n), p, segs)
	b.size = len(b.plain)
}

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

// gzipBound returns the largest gzip output for n bytes: stored blocks with their headers, and the
// header and trailer of the file.
func gzipBound(n int) int { return n + n/1024 + 1024 }

// post sends one request with segs, all of one tenant, and returns the parsed response.
func (s *client) post(ctx context.Context, p *push, segs ...segment) (out answer) {
	b := s.bufs.get()
	defer func() {
		if v := recover(); v != nil {
			out = answer{verdict: unanswered, err: panicked(v)}
		}
		if out.verdict != accepted {
			s.failed.Add(1)
			text := out.err.Error()
			s.lastErr.Store(&text)
		}
		s.bufs.put(b)
	}()
	wire := s.build(b, p, segs)
	if a := s.waitFor(ctx, segs, b.size); a.verdict != accepted {
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
		return s.lost(err)
	}
	s.spoken.Store(true)
	limit := maxAnswer
	if res.StatusCode == http.StatusBadRequest {
		limit += maxRefusals(segs)
	}
	text, whole, err := b.read(res.Body, limit)
	if err != nil {
		return s.lost(fmt.Errorf("cannot read the answer (%d): %w", res.StatusCode, err))
	}
	x.complete = whole
	if res.ProtoMajor == 1 && res.ContentLength < 0 && len(res.TransferEncoding) == 0 && !res.Uncompressed {
		whole = false // the body ends with the connection, so it may be truncated
	}
	s.unreachable.Store(false)
	out = s.judge(res, text, whole, b.size, segs, p.recs[segs[0].order[0]].time)
	owner := segs[0].st.owner
	if isAuthenticated(res.StatusCode) {
		owner.denied.Store(0)
	}
	switch {
	case out.verdict == accepted:
		s.passed(p, segs, b.size, time.Now())
	case res.StatusCode == http.StatusUnauthorized && s.headers.renewed(header):
		out.verdict = tryAgain // with the new token
	case out.verdict == denied:
		owner.denied.Store(time.Now().UnixNano())
	}
	return out
}

// lost returns the answer for a request without a response.
func (s *client) lost(err error) answer {
	s.unreachable.Store(true)
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // without the URL, which may have a secret in its query
	}
	failed := &httpclient.Error{Package: "loki", Message: httpsend.Printable(s.plain(err)), Cause: err}
	out := answer{verdict: unanswered, err: failed}
	switch httpsend.LostBy(err) {
	case httpsend.NotSecure:
		out.verdict = hold
	case httpsend.NotSent:
		out.verdict = tryAgain
	default:
		failed.MaybeStored = true
	}
	return out
}

// plain returns the text of an error of the transport without credentials. It explains errors of a
// port that does not speak HTTP.
func (s *client) plain(err error) string {
	text := secrets.HideIn(err, hiddenMark, s.hidden()...).Error()
	_, answer, malformed := strings.Cut(text, "malformed HTTP ") // net/http has no error type for it
	switch {
	case malformed:
		return fmt.Sprintf("%s does not speak HTTP: malformed %s", s.c.endpoint.Host, answer)
	case s.spoken.Load():
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Sprintf("%s closed the connection without an HTTP answer; it may not speak HTTP: %s", s.c.endpoint.Host, text)
	}
	return text
}

// isAuthenticated reports whether the status proves that the credentials were accepted.
func isAuthenticated(status int) bool {
	return status == http.StatusNoContent || status == http.StatusBadRequest || status == http.StatusUnprocessableEntity
}

// maxRefusals returns the maximal length of the text of a 400 response, in bytes: one message per
// entry, with the labels of its stream and a few that Loki adds.
func maxRefusals(segs []segment) (n int) {
	for i := range segs {
		n += len(segs[i].order) * (512 + 2*len(segs[i].st.labels))
	}
	return n
}

// read returns up to about limit bytes of a response, and whether it is complete. Only then can the
// connection be reused. After an error the response is unknown.
func (b *requestBuf) read(r io.ReadCloser, limit int) (text []byte, whole bool, err error) {
	defer r.Close()
	if cap(b.in) == 0 {
		b.in = make([]byte, 4<<10)
	}
	in, n := b.in[:cap(b.in)], 0
	for err == nil && n < limit {
		if n == len(in) {
			in = append(in, make([]byte, len(in))...)
		}
		var k int
		k, err = r.Read(in[n:])
		n += k
	}
	if b.in = in; len(in) > maxAnswer {
		b.in = nil // rarely needed again
	}
	switch {
	case err == nil:
		return in[:n], false, nil
	case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return in[:n], true, nil
	}
	return nil, false, err
}
