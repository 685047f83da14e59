package otlp

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/httpclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A peer is a receiver whose responses are computed by a function. It uses no network.
type peer struct {
	mu      sync.Mutex
	got     []requestContent
	answer  func(n int, recs []string) reply
	fails   error
	headers []http.Header
}

// A requestContent is the decoded content of a request.
type requestContent struct {
	resource, scope string
	recs            []string // records as JSON
}

// A reply is the response to a request.
type reply struct {
	status int
	kind   string
	text   string
	header http.Header
}

func (p *peer) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err == nil && r.Header.Get("Content-Encoding") == "gzip" {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(z)
		}
	}
	if err != nil {
		return nil, err
	}
	g, err := decode(body)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fails != nil {
		return nil, p.fails
	}
	n := len(p.got)
	p.got = append(p.got, g)
	p.headers = append(p.headers, r.Header)
	a := reply{status: 200}
	if p.answer != nil {
		a = p.answer(n, g.recs)
	}
	h := http.Header{}
	if a.header != nil {
		h = a.header
	}
	h.Set("Content-Type", a.kind)
	return &http.Response{StatusCode: a.status, Header: h, Body: io.NopCloser(strings.NewReader(a.text)), Request: r}, nil
}

// decode returns the content of a request, or an error if it is not the protobuf of OTLP.
func decode(body []byte) (g requestContent, err error) {
	fail := fmt.Errorf("invalid request: %q", body)
	if len(body) == 0 {
		return g, nil
	}
	tag, logs, _, rest, ok := next(body)
	if !ok || tag != 0x0a || len(rest) > 0 {
		return g, fail
	}
	for len(logs) > 0 {
		tag, b, _, rest, ok := next(logs)
		if !ok {
			return g, fail
		}
		logs = rest
		switch tag {
		case 0x0a:
			js := []byte{'{'}
			for len(b) > 0 {
				_, kv, _, rest, _ := next(b)
				b = rest
				if js, ok = appendPair(js, kv, 0); !ok {
					return g, fail
				}
			}
			g.resource = string(append(js, '}'))
		case 0x12:
			for len(b) > 0 {
				tag, rec, _, rest, ok := next(b)
				if !ok {
					return g, fail
				}
				b = rest
				if tag == 0x0a {
					g.scope = fmt.Sprintf("%q", rec)
					continue
				}
				js, ok := appendRecordJSON(nil, rec)
				if !ok {
					return g, fail
				}
				g.recs = append(g.recs, string(js))
			}
		}
	}
	return g, nil
}

func (p *peer) records() (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.got {
		out = append(out, g.recs...)
	}
	return out
}

// exporterFor returns a Driver that sends to p.
func exporterFor(t testing.TB, p *peer, set func(*Config)) *Driver {
	t.Helper()
	c := Config{URL: "http://otel.test:4318", Resource: map[string]string{"service.name": "x"}, HTTP: httpclient.Options{Client: &http.Client{Transport: p}}}
	if set != nil {
		set(&c)
	}
	x, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// batchOf returns a batch of records with the given messages.
func batchOf(t testing.TB, x *Driver, messages ...string) *batch.Batch {
	t.Helper()
	b := batch.Batch{Codec: x.Encoder().Codec()}
	for _, m := range messages {
		rec, meta, err := x.AppendLine(nil, time.Unix(1, 0), slog.LevelInfo, []byte(m), nil)
		if err != nil {
			t.Fatal(err)
		}
		b.Append(rec, 0, meta)
	}
	return &b
}

// loggerFor returns a logger with one output that sends to p.
func loggerFor(t testing.TB, p *peer, opts ...forebay.OutputOption) *forebay.Logger {
	t.Helper()
	opts = append([]forebay.OutputOption{Resource("service.name", "x"), forebay.Configure(func(c *Config) { c.HTTP.Client = &http.Client{Transport: p} })}, opts...)
	log, err := forebay.New(To("http://otel.test:4318", opts...))
	if err != nil {
		t.Fatal(err)
	}
	return log
}
