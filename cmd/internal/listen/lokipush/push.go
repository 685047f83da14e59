package lokipush

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/golang/snappy"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/internal/compression"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/units"
)

// A push is a push request. It reuses its memory for later requests.
type push struct {
	w      walker
	lease  *listen.Lease
	tenant string
	isJSON bool
	body   []byte // a PushRequest in protobuf, or JSON converted to MessagePack
	gz     compression.Reader
}

// release releases the memory whose size depends on the push.
func (p *push) release() { p.body, p.lease = nil, nil }

// badRequest returns a refusal with status 400.
func badRequest(format string, args ...any) error {
	return &refusal{http.StatusBadRequest, fmt.Errorf(format, args...)}
}

// tooLarge returns a refusal with status 413. The text how follows the limit in the message.
func tooLarge(limit int, how string) error {
	return &refusal{http.StatusRequestEntityTooLarge, fmt.Errorf("the push is longer than %s%s", units.Size(float64(limit)), how)}
}

// read reads and validates a push. An error that is not a refusal means that the connection has
// failed.
func (p *push) read(ctx context.Context, l *listen.Limits, r *http.Request) error {
	ctx, cancel := context.WithTimeout(ctx, l.MessageTime)
	defer cancel()
	p.tenant = r.Header.Get("X-Scope-OrgID")
	if !isValidTenant(p.tenant) {
		return badRequest("the tenant %s of X-Scope-OrgID is invalid: use letters, digits and !-_.*'() , at most 150", listen.Quote([]byte(p.tenant)))
	}
	switch kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); {
	case kind == "application/json":
		p.isJSON = true
	case kind == "application/x-protobuf", kind == "" && err == nil, r.Header.Get("Content-Type") == "":
		p.isJSON = false
	default:
		return badRequest("the Content-Type %s is not supported: use application/json or application/x-protobuf",
			listen.Quote([]byte(r.Header.Get("Content-Type"))))
	}
	raw, err := p.readAll(ctx, l, r.Body, int(max(r.ContentLength, 0)), 0, "")
	if err != nil {
		return err
	}
	text, err := p.decode(ctx, l, raw, r.Header.Get("Content-Encoding"))
	if err != nil {
		return err
	}
	if p.body = text; p.isJSON {
		if err := p.lease.Hold(ctx, len(raw)+5*len(text)); err != nil {
			return &refusal{http.StatusServiceUnavailable, err}
		}
		converted, rest, err := msgpack.AppendFromJSON(make([]byte, 0, len(text)+64), text)
		if err != nil || len(bytes.TrimSpace(rest)) > 0 {
			return badRequest("the push is not valid JSON")
		}
		p.body = converted
	}
	n := 0
	if err := p.walk(func([]listen.Label, time.Time, []byte, []listen.Label) error { n++; return nil }); err != nil {
		return badRequest("the push cannot be read: %w", err)
	}
	if n == 0 && p.w.streams == 0 {
		return &refusal{http.StatusUnprocessableEntity, errors.New("the push has no streams")}
	}
	return nil
}

// walk calls the function visit for each entry of the push.
func (p *push) walk(visit visitor) error {
	if p.isJSON {
		return p.w.json(p.body, visit)
	}
	return p.w.proto(p.body, visit)
}

// put passes the records of the push to the sink.
func (p *push) put(ctx context.Context, sink listen.Sink) (n int, err error) {
	rec := listen.Record{Source: Source, Tenant: p.tenant}
	err = p.walk(func(labels []listen.Label, at time.Time, line []byte, metadata []listen.Label) error {
		rec.Labels, rec.Time, rec.Body, rec.Metadata = labels, at, line, metadata
		n++
		return sink.Put(ctx, &rec)
	})
	return n, err
}

// decode returns the decompressed body of a push.
func (p *push) decode(ctx context.Context, l *listen.Limits, raw []byte, encoding string) ([]byte, error) {
	if !p.isJSON { // like Loki, ignore Content-Encoding: protobuf always uses snappy
		n, err := snappy.DecodedLen(raw)
		switch {
		case err != nil:
			return nil, badRequest("the push is not valid snappy: %w", err)
		case n > l.MessageBytes:
			return nil, tooLarge(l.MessageBytes, " when decompressed")
		}
		if err := p.lease.Hold(ctx, len(raw)+n); err != nil {
			return nil, &refusal{http.StatusServiceUnavailable, err}
		}
		text, err := snappy.Decode(nil, raw)
		if err != nil {
			return nil, badRequest("the push is not valid snappy: %w", err)
		}
		return text, nil
	}
	var from io.Reader
	var err error
	switch encoding {
	case "", "identity", "snappy":
		return raw, nil
	case "gzip":
		if p.gz == nil {
			gzip, _ := compression.Find("gzip")
			p.gz = gzip.NewReader()
		}
		err = p.gz.Reset(bytes.NewReader(raw))
		from = p.gz
	case "deflate": // the HTTP standard requires zlib, but some clients send raw deflate data
		if from, err = zlib.NewReader(bytes.NewReader(raw)); err != nil {
			from, err = flate.NewReader(bytes.NewReader(raw)), nil
		}
	default:
		return nil, badRequest("the Content-Encoding %s is not supported: use gzip", listen.Quote([]byte(encoding)))
	}
	if err != nil {
		return nil, badRequest("the push is not valid %s: %w", encoding, err)
	}
	text, err := p.readAll(ctx, l, from, 0, len(raw), " when decompressed")
	var refused *refusal
	if err != nil && !errors.As(err, &refused) {
		return nil, badRequest("the push is not valid %s: %w", encoding, err)
	}
	return text, err
}

// readAll reads r to its end. If the data is longer than a message may be, it returns an error that
// ends in the text how. length is the expected number of bytes. held is the number of bytes that
// p.lease already includes.
func (p *push) readAll(ctx context.Context, l *listen.Limits, r io.Reader, length, held int, how string) ([]byte, error) {
	if length > l.MessageBytes {
		return nil, tooLarge(l.MessageBytes, how)
	}
	var b []byte
	for size := max(min(length, 64<<10)+1, 16<<10); ; size = 2*cap(b) + 1 {
		if err := p.lease.Hold(ctx, held+size); err != nil {
			return nil, &refusal{http.StatusServiceUnavailable, err}
		}
		grown := make([]byte, len(b), size)
		copy(grown, b)
		b = grown
		for len(b) < cap(b) {
			n, err := r.Read(b[len(b):cap(b)])
			b = b[:len(b)+n]
			switch {
			case len(b) > l.MessageBytes:
				return nil, tooLarge(l.MessageBytes, how)
			case err == io.EOF:
				return b, nil
			case errors.Is(err, os.ErrDeadlineExceeded):
				return nil, &refusal{http.StatusRequestTimeout, fmt.Errorf("the rest of the push did not arrive within %v: %s received", l.MessageTime, units.Size(float64(len(b))))}
			case err != nil:
				return nil, err
			}
		}
	}
}

// isValidTenant reports whether Loki accepts tenant as a name.
func isValidTenant(tenant string) bool {
	for _, c := range []byte(tenant) {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && strings.IndexByte("!-_.*'()", c) < 0 {
			return false
		}
	}
	return len(tenant) <= 150 && tenant != "." && tenant != ".."
}

func unixNano(ns int64) time.Time { return time.Unix(0, ns) }
