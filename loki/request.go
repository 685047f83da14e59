package loki

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/golang/snappy"

	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/compression"
	"github.com/forebay-log/forebay/internal/httpsend"
	"github.com/forebay-log/forebay/internal/secrets"
)

// layout divides an uncompressed protobuf body into pieces: for each stream a header, and then the
// entries. Entries that are adjacent in memory, such as those of a stream in one slab, form one
// piece. The pieces are parts of b.heads and of the memory of the batch.
func (b *requestBuf) layout(p *push, segs []segment) {
	const before = 1 + lenBytes + 1 + binary.MaxVarintLen32 // size of the header before the labels
	n := 0
	for i := range segs {
		// All headers are allocated together. If heads grew later, the headers to which spans
		// refers would move.
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
			// Entries that are adjacent in memory form one piece.
			for k++; k < len(seg.order) && seg.order[k] == r+1 && p.recs[r+1].next; k++ {
				r++
				n += len(p.recs[r].data)
			}
			// The field next of these records is true, so their bytes are contiguous, in one run of
			// the batch.
			b.spans = append(b.spans, unsafe.Slice(unsafe.SliceData(first), n))
			entries += n
		}
		// The length of the stream is known only now. Its varint has a fixed size, so the length
		// can be stored afterwards.
		putPadded(head[1:1+lenBytes], uint64(len(head)-1-lenBytes+entries))
		b.size += len(head) + entries
	}
	b.heads = heads
}

// build returns the compressed body of a request. It is valid until b is returned to the stack.
func (s *client) build(b *requestBuf, p *push, segs []segment) []byte {
	switch p.form.requestWire(s.c.Wire) {
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
		s.bufs.buildJSON(b, p, segs)
		b.out = s.bufs.alloc(b.own[1], gzipBound(b.size))
		// A compressor is large, so each requestBuf keeps its own compressor.
		if b.zip == nil {
			b.zip = compression.NewGzip()
		}
		b.zip.Reset(b)
		b.zip.Write(b.plain) // requestBuf.Write never returns an error
		b.zip.Close()
		return b.out
	}
	s.bufs.buildJSON(b, p, segs)
	return b.plain
}

// buildJSON writes the JSON body of a request to b.plain.
func (s *bufStack) buildJSON(b *requestBuf, p *push, segs []segment) {
	n := len(`{"streams":[]}`)
	for i := range segs {
		seg := &segs[i]
		n += 64 + 2*len(seg.st.labels) // labels with space for the escapes of their quotes
		for _, k := range seg.order {
			n += len(p.recs[k].data) + 1
		}
	}
	b.plain = appendJSON(s.alloc(b.own[0], n), p, segs)
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

// post sends one request with segs, which belong to one tenant, and returns the interpreted
// response. Before sending, it waits as the rate limits require. If the HTTP client panics, the
// answer has the kind unanswered, because the request may have been sent.
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
	header := s.headers.get(segs[0].st.tenant, p.form.requestWire(s.c.Wire))
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

// do sends req and returns the response, like http.Client.Do. It calls the transport directly if
// the client has no cookie jar and no timeout, because http.Client would allocate memory for
// redirects, which are not followed. After RoundTrip, the result is checked like in http.Client.
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

// panicked returns the error for an HTTP client that has panicked with the value v. MaybeStored is
// true, because the client may have sent the request before the panic.
func panicked(v any) error {
	return &httpclient.Error{Package: "loki", Message: fmt.Sprintf("the http client panicked: %v", v), MaybeStored: true}
}

// noResponse returns the answer for a request that failed with err and has no complete response.
// The kind of the answer depends on whether the request may have reached Loki.
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

// errorText returns the text of a transport error, without secrets. If the port does not seem to
// speak HTTP, the text includes an explanation, because net/http reports only the part of a
// response that it could not parse.
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

// maxRefusals returns the maximum length of the text of a response with status 400, in bytes. The
// text has one message per entry, with the labels of its stream and a few labels that Loki adds.
func maxRefusals(segs []segment) (n int) {
	for i := range segs {
		n += len(segs[i].order) * (512 + 2*len(segs[i].st.labels))
	}
	return n
}
