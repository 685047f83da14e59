package loki

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
)

var leaks = []goleak.Option{goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreTopFunction("internal/poll.runtime_pollWait")}

// patient is a run of tests after which a busy machine has time to end goroutines: goleak
// gives them less than a second.
type patient struct{ *testing.M }

func (p patient) Run() int {
	code := p.M.Run()
	for end := time.Now().Add(20 * time.Second); goleak.Find(leaks...) != nil && time.Now().Before(end); {
		runtime.Gosched()
	}
	return code
}

func TestMain(m *testing.M) {
	debugPool = true
	if dir := os.Getenv(crashEnv); dir != "" {
		crashingChild(dir)
	}
	goleak.VerifyTestMain(patient{m}, leaks...)
}

// a request as a peer saw it.
type request struct {
	header  http.Header
	url     string
	streams []gotStream
	err     error
}

// peer is a Loki that answers as a script says. It needs no network, so it works
// in synctest bubbles.
type peer struct {
	mu     sync.Mutex
	got    []request
	answer func(n int, r *request) (status int, text string, h http.Header)
}

func (p *peer) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil {
		return nil, err
	}
	req := request{header: r.Header, url: r.URL.String()}
	switch {
	case r.Header.Get("Content-Type") == "application/x-protobuf":
		req.streams, req.err = decodeSnappy(body)
	case r.Header.Get("Content-Encoding") == "gzip":
		z, err := gzip.NewReader(strings.NewReader(string(body)))
		if err == nil {
			body, err = io.ReadAll(z)
		}
		if req.err = err; err == nil {
			req.streams, req.err = decodeJSON(body)
		}
	default:
		req.streams, req.err = decodeJSON(body)
	}
	p.mu.Lock()
	n := len(p.got)
	p.got = append(p.got, req)
	answer := p.answer
	p.mu.Unlock()
	status, text, h := http.StatusNoContent, "", http.Header{}
	if answer != nil {
		s, t, hh := answer(n, &req)
		status, text = s, t
		if hh != nil {
			h = hh
		}
	}
	if status == 0 {
		return nil, fmt.Errorf("%s", text)
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

func (p *peer) requests() []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got)
}

// lines returns all lines that came, of requests with that many streams.
func (p *peer) lines() (out []string) {
	for _, r := range p.requests() {
		for _, s := range r.streams {
			for _, e := range s.Entries {
				out = append(out, e.Line)
			}
		}
	}
	return out
}

// sinkFor returns a Pusher that talks to p.
func sinkFor(t testing.TB, p http.RoundTripper, c Config) *Pusher {
	t.Helper()
	if c.URL == "" {
		c.URL = "http://loki.test:3100"
	}
	if c.Labels == nil {
		c.Labels = map[string]string{"app": "test"}
	}
	if p != nil {
		c.Client = &http.Client{Transport: p, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	s, err := NewPusher(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkMemory(t, s) })
	return s
}

// checkMemory fails if memory of requests was used after it was given back, or was
// not given back.
func checkMemory(t testing.TB, s *Pusher) {
	t.Helper()
	for _, f := range s.bufs.pool.Faults() {
		t.Errorf("memory: %v", f)
	}
	for _, l := range s.bufs.pool.Leaks() {
		t.Errorf("memory: %v", l)
	}
	if st := s.bufs.pool.Stats(); st.Refused.Total() > 0 {
		t.Errorf("memory: outgrown %+v", st.Refused)
	}
}

// encoded is a builder of batches of the records of one sink.
type encoded struct {
	t testing.TB
	s *Pusher
	batch.Builder
}

func (e *encoded) add(scope encode.Scope, r encode.Record) *encoded {
	e.t.Helper()
	if scope == nil {
		scope = e.s.Encoder().Scope()
	}
	rec, m, err := scope.Append(nil, &r)
	if err != nil {
		e.t.Fatal(err)
	}
	e.Append(rec, 0, m)
	return e
}

func (e *encoded) send() error {
	e.t.Helper()
	return e.s.Send(context.Background(), e.Batch(e.s.Codec()))
}

// one encodes and decodes one record.
func one(t testing.TB, c Config, r encode.Record, with ...func(encode.Scope) encode.Scope) (gotEntry, string) {
	t.Helper()
	p := new(peer)
	s := sinkFor(t, p, c)
	scope := s.Encoder().Scope()
	for _, w := range with {
		scope = w(scope)
	}
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
	e := &encoded{t: t, s: s}
	if err := e.add(scope, r).send(); err != nil {
		t.Fatal(err)
	}
	got := p.requests()
	if len(got) != 1 || got[0].err != nil || len(got[0].streams) != 1 || len(got[0].streams[0].Entries) != 1 {
		t.Fatalf("got %+v", got)
	}
	return got[0].streams[0].Entries[0], got[0].streams[0].Labels
}

func with(attrs ...slog.Attr) func(encode.Scope) encode.Scope {
	return func(s encode.Scope) encode.Scope { return s.WithAttrs(attrs) }
}

func inGroup(name string) func(encode.Scope) encode.Scope {
	return func(s encode.Scope) encode.Scope { return s.WithGroup(name) }
}

// stored204 takes everything.
type stored204 struct{}

func (stored204) RoundTrip(r *http.Request) (*http.Response, error) {
	io.Copy(io.Discard, r.Body)
	r.Body.Close()
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
}
