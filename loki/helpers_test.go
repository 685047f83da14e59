package loki

import (
	"compress/gzip"
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

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/bufpool"
	"github.com/forebay-log/forebay/encode"
)

var leaks = []goleak.Option{goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreTopFunction("internal/poll.runtime_pollWait")}

// A slowMain runs the tests and then waits until goroutines have ended. The package goleak itself
// waits for less than a second.
type slowMain struct{ *testing.M }

func (p slowMain) Run() int {
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
	goleak.VerifyTestMain(slowMain{m}, leaks...)
}

// A request is a push that a peer has received.
type request struct {
	header  http.Header
	url     string
	streams []gotStream
	err     error
}

// A peer is a Loki whose responses come from the function answer. It uses no network, so it works
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

// streams returns the streams of all requests, in order.
func (p *peer) streams() (out []gotStream) {
	for _, r := range p.requests() {
		out = append(out, r.streams...)
	}
	return out
}

// An answerer determines the response to request number n, like peer.answer.
type answerer = func(n int, r *request) (status int, text string, h http.Header)

// ingester responds like an ingester of Loki: it calls the function perStream for each stream, and
// returns the result for the last stream.
func ingester(perStream answerer) answerer {
	return func(n int, r *request) (status int, text string, h http.Header) {
		for _, s := range r.streams {
			status, text, h = perStream(n, &request{header: r.header, url: r.url, streams: []gotStream{s}})
		}
		return status, text, h
	}
}

// whole responds like a server that accepts or refuses a request as a whole: it returns the first
// refusal that the function perStream returns for any stream.
func whole(perStream answerer) answerer {
	return func(n int, r *request) (status int, text string, h http.Header) {
		for _, s := range r.streams {
			if status, text, h = perStream(n, &request{header: r.header, url: r.url, streams: []gotStream{s}}); status != http.StatusNoContent {
				break
			}
		}
		return status, text, h
	}
}

// lines returns the lines of all requests.
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

// sinkFor returns a Driver whose HTTP transport is p.
func sinkFor(t testing.TB, p http.RoundTripper, c Config) *Driver {
	t.Helper()
	if c.URL == "" {
		c.URL = "http://loki.test:3100"
	}
	if c.Labels == nil {
		c.Labels = map[string]string{"app": "test"}
	}
	if p != nil {
		c.HTTP.Client = &http.Client{Transport: p, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkMemory(t, s) })
	return s
}

// checkMemory fails the test if memory of requests was not released, or was used after it was
// released.
func checkMemory(t testing.TB, s *Driver) {
	t.Helper()
	for _, f := range s.push.bufs.pool.Faults() {
		t.Errorf("memory: %v", f)
	}
	for _, l := range s.push.bufs.pool.Leaks() {
		t.Errorf("memory: %v", l)
	}
	if st := s.push.bufs.pool.Stats(); st.Refused != (bufpool.Refusals{}) {
		t.Errorf("memory: refused %+v", st.Refused)
	}
}

// The type encoded is a batch of records encoded by one Driver.
type encoded struct {
	t testing.TB
	s *Driver
	batch.Batch
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

// as returns the batch with the codec c.
func (e *encoded) as(c batch.Codec) *batch.Batch {
	e.Codec = c
	return &e.Batch
}

// send sends all records in a new session. It returns nil if all are stored.
func (e *encoded) send() *sendResult {
	e.t.Helper()
	return sendIn(e.t, context.Background(), e.s, e.as(e.s.Encoder().Codec()))
}

// deliver sends all records like package deliver. It waits between attempts. Records that are
// neither stored nor refused are sent again, in order, and in parts if the advice requires it. The
// result contains the indexes of the refused records.
func (e *encoded) deliver() (refused []int) {
	e.t.Helper()
	whole := e.as(e.s.Encoder().Codec())
	todo := batch.All().Append(nil, whole.Len())
	limit, began := len(todo), time.Now()
	for wait := time.Duration(0); len(todo) > 0; {
		piece := todo[:min(limit, len(todo))]
		todo = todo[len(piece):]
		o := sendIn(e.t, context.Background(), e.s, whole.Select(nil, piece))
		if o == nil {
			wait = 0
			continue
		}
		var again []int
		for k, i := range piece {
			switch {
			case o.Open.Has(k):
				again = append(again, i)
			case o.Refused.Has(k):
				refused = append(refused, i)
			}
		}
		if o.Advice == batch.Smaller || o.Advice == batch.Search {
			limit = max(1, len(again)/2)
		}
		if todo = append(again, todo...); len(again) < len(piece) {
			wait = 0
		}
		wait = min(max(2*wait, 100*time.Millisecond), 5*time.Second)
		if time.Since(began) > time.Hour {
			e.t.Fatalf("not settled after an hour: %v", o)
		}
		time.Sleep(max(wait, o.After))
	}
	return refused
}

// A sendResult is the outcome of a batch that was not stored completely.
type sendResult struct {
	batch.Outcome
	n     int
	known bool  // the session reported an outcome
	ended error // the session ended without an outcome, for this reason
}

func (o *sendResult) open() []int    { return o.Open.Append(nil, o.n) }
func (o *sendResult) refused() []int { return o.Refused.Append(nil, o.n) }

func (o *sendResult) String() string {
	switch {
	case o != nil && o.ended != nil:
		return fmt.Sprintf("ends: %v", o.ended)
	case o == nil:
		return "stored"
	case !o.known:
		return "no answer"
	case o.Open.Empty():
		return fmt.Sprintf("refused %v: %v", o.refused(), o.Refusal)
	case o.Refused.Empty():
		return fmt.Sprintf("%v %v after %v: %v", o.Advice, o.open(), o.After, o.Why)
	}
	return fmt.Sprintf("%v %v after %v: %v; refused %v: %v", o.Advice, o.open(), o.After, o.Why, o.refused(), o.Refusal)
}

// is reports whether the text of o begins with the text want, which names the advice or a refusal,
// and the records.
func (o *sendResult) is(want string) bool { return strings.HasPrefix(o.String(), want) }

// sendIn sends b in a session with the context ctx.
func sendIn(t testing.TB, ctx context.Context, s *Driver, b *batch.Batch) *sendResult {
	t.Helper()
	l := &life{ctx: ctx}
	ses, err := s.Open(l)
	if err != nil {
		t.Fatal(err)
	}
	if err := ses.Send(b); err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	ses.Close()
	o := &sendResult{n: b.Len()}
	switch {
	case len(l.answers)+len(l.ends) > 1 || len(l.answers)+len(l.ends) == 0 && ctx.Err() == nil:
		t.Fatalf("%d answers, ends %v", len(l.answers), l.ends)
	case len(l.ends) == 1:
		o.ended = l.ends[0]
	case len(l.answers) == 1:
		o.Outcome, o.known = l.answers[0], true
		if err := o.Check(o.n); err != nil {
			t.Fatal(err)
		}
		if o.Open.Empty() != (o.Why == nil) || o.Refused.Empty() != (o.Refusal == nil) {
			t.Fatalf("open records without a cause, or refused records without an error: %+v", o.Outcome)
		}
	}
	if o.known && o.Open.Empty() && o.Refused.Empty() {
		return nil
	}
	return o
}

// The type life is a [deliver.Life] that stores the arguments of its calls.
type life struct {
	ctx     context.Context
	answers []batch.Outcome
	ends    []error
}

func (l *life) Context() context.Context               { return l.ctx }
func (l *life) Answer(_ *batch.Batch, o batch.Outcome) { l.answers = append(l.answers, o) }
func (l *life) End(err error)                          { l.ends = append(l.ends, err) }

// encodeOne encodes one record and decodes the result. It returns the entry and the labels.
func encodeOne(t testing.TB, c Config, r encode.Record, with ...func(encode.Scope) encode.Scope) (gotEntry, string) {
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

// The type stored204 is a transport that answers every request with status 204.
type stored204 struct{}

func (stored204) RoundTrip(r *http.Request) (*http.Response, error) {
	io.Copy(io.Discard, r.Body)
	r.Body.Close()
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
}
