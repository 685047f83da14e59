package loki

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"

	"github.com/forebay-log/forebay/batch"
)

// maxAnswer is how much of an answer is read, in bytes.
const maxAnswer = 64 << 10

// A requestBuf is the memory of one request. There are as many as requests may be
// under way at once.
type requestBuf struct {
	plain []byte
	zip   *gzip.Writer
	out   bytes.Buffer // of zip
	snap  []byte
	in    []byte

	// A transport may still read a request's body after it has answered. Since
	// the memory is used again, bodies of an earlier generation read nothing.
	mu   sync.Mutex
	gen  uint64
	wire []byte
}

// A bufStack holds requestBufs that are not in use. The one used last comes out
// first, so that there are no more large ones than requests at once.
type bufStack struct {
	mu   sync.Mutex
	free []*requestBuf
}

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

func (s *bufStack) put(b *requestBuf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, b)
}

// A bodyReader is the body of a request. It reads from a requestBuf.
type bodyReader struct {
	b   *requestBuf
	gen uint64
	off int
}

var errStale = errors.New("loki: request is over")

func (r *bodyReader) Read(p []byte) (int, error) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if r.gen != r.b.gen {
		return 0, errStale
	}
	if r.off == len(r.b.wire) {
		return 0, io.EOF
	}
	n := copy(p, r.b.wire[r.off:])
	r.off += n
	return n, nil
}

func (r *bodyReader) Close() error { return nil }

// begin makes wire what bodies read, and returns the first.
func (b *requestBuf) begin(wire []byte) *bodyReader {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gen++
	b.wire = wire
	return &bodyReader{b: b, gen: b.gen}
}

func (b *requestBuf) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gen++
	b.wire = nil
}

// build makes the request's body before compression.
func (s *Sink) build(dst []byte, p *push, segs []segment) []byte {
	if s.enc.json {
		return buildJSON(dst, p, segs)
	}
	for _, seg := range segs {
		at := len(dst)
		dst = append(dst, tagStreams, 0, 0, 0, 0, tagLabels)
		dst = binary.AppendUvarint(dst, uint64(len(seg.st.labels)))
		dst = append(dst, seg.st.labels...)
		for _, i := range seg.order {
			dst = append(dst, p.recs[i].data...)
		}
		putPadded(dst[at+1:at+1+lenBytes], uint64(len(dst)-at-1-lenBytes))
	}
	return dst
}

func buildJSON(dst []byte, p *push, segs []segment) []byte {
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

// compress returns b.plain as it goes over the wire. The result is b's memory.
func (s *Sink) compress(b *requestBuf) []byte {
	switch s.c.Wire {
	case Protobuf:
		if n := s2.MaxEncodedLen(len(b.plain)); cap(b.snap) < n {
			b.snap = make([]byte, n)
		}
		return s2.EncodeSnappy(b.snap[:cap(b.snap)], b.plain)
	case JSONGzip:
		b.out.Reset()
		if b.zip == nil {
			b.zip, _ = gzip.NewWriterLevel(&b.out, gzip.BestSpeed) // the level is one
		} else {
			b.zip.Reset(&b.out)
		}
		b.zip.Write(b.plain) // a bytes.Buffer does not fail
		b.zip.Close()
		return b.out.Bytes()
	}
	return b.plain
}

// post makes one request of segs, all of one tenant, and reads the answer.
func (s *Sink) post(ctx context.Context, p *push, segs ...segment) (out answer) {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return answer{verdict: tryAgain, err: batch.RetryAfter(errors.New("loki: cannot push: "+context.Cause(ctx).Error()), 0)}
	}
	b := s.bufs.get()
	defer func() {
		if v := recover(); v != nil {
			out = answer{verdict: tryAgain, err: panicked(v)}
		}
		if out.verdict != taken {
			s.failed.Add(1)
			text := out.err.Error()
			s.lastErr.Store(&text)
		}
		b.end()
		s.bufs.put(b)
		<-s.slots
	}()
	b.plain = s.build(b.plain[:0], p, segs)
	wire := s.compress(b)
	s.requests.Add(1)
	s.bodyBytes.Add(uint64(len(b.plain)))
	s.wireBytes.Add(uint64(len(wire)))
	header, err := s.headers.get(segs[0].st.tenant)
	if err != nil {
		return answer{verdict: hold, err: batch.Fatal(err)}
	}
	req := (&http.Request{
		Method: http.MethodPost, URL: s.c.endpoint, Host: s.c.endpoint.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: b.begin(wire), ContentLength: int64(len(wire)),
	})
	gen := b.gen
	req.GetBody = func() (io.ReadCloser, error) { return &bodyReader{b: b, gen: gen}, nil }
	ctx, cancel := context.WithTimeout(ctx, s.c.Timeout)
	defer cancel()
	res, err := s.client.Do(req.WithContext(ctx))
	if err != nil {
		s.unreachable.Store(true)
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // without the URL, which may have a secret in its query
		}
		return answer{verdict: tryAgain, err: batch.RetryAfter(&PushError{Message: s.redact(err.Error()), cause: err}, 0)}
	}
	s.unreachable.Store(false)
	text := b.read(res.Body)
	return s.judge(res, text, len(b.plain), segs)
}

// read returns the beginning of an answer, and takes the rest so that the
// connection can be used again.
func (b *requestBuf) read(r io.ReadCloser) []byte {
	defer r.Close()
	if cap(b.in) == 0 {
		b.in = make([]byte, 4<<10)
	}
	in, n := b.in[:cap(b.in)], 0
	for n < maxAnswer {
		if n == len(in) {
			in = append(in, make([]byte, len(in))...)
		}
		k, err := r.Read(in[n:])
		n += k
		if err != nil {
			break
		}
	}
	b.in = in
	return in[:n]
}
