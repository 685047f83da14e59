package loki

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/bubble"
)

// pushEach logs n records and flushes after each, so that there is one push per record.
func pushEach(t *testing.T, h *handler, n int) {
	t.Helper()
	for i := range n {
		slog.New(h).Info(fmt.Sprint("line ", i))
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// wantLines fails the test unless got is "line 0" to "line n-1", each once and in order.
func wantLines(t *testing.T, got []string, n int) {
	t.Helper()
	for i := range n {
		if want := fmt.Sprintf(`{"msg":"line %d"}`, i); i >= len(got) || got[i] != want {
			t.Fatalf("%d lines: %q, want %s as number %d", len(got), got, want, i)
		}
	}
	if len(got) != n {
		t.Fatalf("%d lines, want %d", len(got), n)
	}
}

// The http.Request of a push is reused only if the transport can no longer access it. Otherwise its
// body returns an error to the transport.
func TestExchangesAreReused(t *testing.T) {
	const n = 20
	for name, tt := range map[string]struct {
		transport func(p *peer, r *http.Request) (*http.Response, error)
		reused    bool
	}{
		"reusable": {func(p *peer, r *http.Request) (*http.Response, error) { return p.RoundTrip(r) }, true},
		"body not closed": {func(p *peer, r *http.Request) (*http.Response, error) {
			body := r.Body
			r.Body = io.NopCloser(r.Body)
			res, err := p.RoundTrip(r)
			r.Body = body
			return res, err
		}, false},
		"GetBody called": {func(p *peer, r *http.Request) (*http.Response, error) {
			if b, err := r.GetBody(); err != nil || b == nil {
				return nil, errors.New("no body")
			}
			return p.RoundTrip(r)
		}, false},
		"response longer than the limit": {func(p *peer, r *http.Request) (*http.Response, error) {
			res, err := p.RoundTrip(r)
			res.Body = io.NopCloser(strings.NewReader(strings.Repeat("x", 2*maxAnswer)))
			return res, err
		}, false},
		"request modified": {func(p *peer, r *http.Request) (*http.Response, error) {
			defer func() { r.Body, r.Method, r.URL, r.GetBody, r.Header = nil, "", nil, nil, nil }()
			return p.RoundTrip(r)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*http.Request
			var bodies []io.ReadCloser
			p := new(peer)
			h := handlerFor(t, roundTrip(func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodPost || r.URL.Path != pushPath || r.GetBody == nil {
					t.Errorf("%s %v", r.Method, r.URL)
				}
				all, bodies = append(all, r), append(bodies, r.Body)
				return tt.transport(p, r)
			}), Config{})
			pushEach(t, h, n)
			if _, err := h.Close(context.Background()); err != nil {
				t.Error(err)
			}
			wantLines(t, p.lines(), n)
			slices.SortFunc(all, func(a, b *http.Request) int { return strings.Compare(fmt.Sprintf("%p", a), fmt.Sprintf("%p", b)) })
			if got, want := len(slices.Compact(all)), map[bool]int{true: 1, false: n}[tt.reused]; got != want {
				t.Errorf("%d different requests for %d pushes, want %d", got, n, want)
			}
			for _, b := range bodies {
				if k, err := b.Read(make([]byte, 10)); k != 0 || err == nil {
					t.Errorf("a body of an ended request read %d bytes, %v", k, err)
				}
			}
		})
	}
}

// Requests are also reused with http.Transport, over HTTP/1 and HTTP/2. The race detector would
// find a transport that still accesses a reused request.
func TestExchangesOverRealConnections(t *testing.T) {
	for _, two := range []bool{false, true} {
		p := new(peer)
		var mu sync.Mutex
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if two != (r.ProtoMajor == 2) {
				t.Errorf("protocol %s", r.Proto)
			}
			body, err := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if _, fault := p.RoundTrip(r); err != nil || fault != nil {
				t.Error(err, fault)
			}
			w.WriteHeader(http.StatusNoContent)
		}))
		srv.EnableHTTP2 = two
		srv.StartTLS()
		h, err := newHandler(Config{URL: srv.URL, Labels: map[string]string{"app": "x"}, HTTP: httpclient.Options{Client: srv.Client()}})
		if err != nil {
			t.Fatal(err)
		}
		pushEach(t, h, 100)
		if _, err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
		srv.Close()
		wantLines(t, p.lines(), 100)
	}
}

// Each request has the full timeout, even if it reuses an exchange.
func TestTimeoutAppliesToEachRequest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, n := new(peer), 0
		h := handlerFor(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			if at, ok := r.Context().Deadline(); !ok || time.Until(at) != 3*time.Second || r.Context().Err() != nil {
				t.Errorf("push %d: %v until the deadline, %v", n, time.Until(at), r.Context().Err())
			}
			switch n++; n {
			case 3:
				<-r.Context().Done()
				return nil, r.Context().Err()
			default:
				time.Sleep(2 * time.Second)
			}
			return p.RoundTrip(r)
		}), Config{HTTP: httpclient.Options{Timeout: 3 * time.Second}})
		pushEach(t, h, 5)
		wantLines(t, p.lines(), 5)
		if text := *h.Sink.Driver.push.lastErr.Load(); n != 6 || !strings.Contains(text, context.DeadlineExceeded.Error()) {
			t.Errorf("after %d pushes: got %s", n, text)
		}
		h.Close(context.Background())
	})
}

// The cookies and the timeout of a user-supplied http.Client are used.
func TestJarAndTimeoutOfClientAreRespected(t *testing.T) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse("http://loki.test:3100")
	if err != nil {
		t.Fatal(err)
	}
	jar.SetCookies(to, []*http.Cookie{{Name: "session", Value: "7"}})
	p := new(peer)
	h, err := newHandler(Config{URL: to.String(), Labels: map[string]string{"app": "x"}, HTTP: httpclient.Options{Client: &http.Client{Transport: p, Jar: jar}}})
	if err != nil {
		t.Fatal(err)
	}
	pushEach(t, h, 3)
	for _, r := range p.requests() {
		if r.header.Get("Cookie") != "session=7" {
			t.Errorf("header %v", r.header)
		}
	}
	if _, err := h.Close(context.Background()); err != nil {
		t.Error(err)
	}

	bubble.Test(t, func(t *testing.T) {
		var took time.Duration
		s := sinkFor(t, nil, Config{
			HTTP: httpclient.Options{Client: &http.Client{Timeout: time.Second, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				defer func(start time.Time) { took = time.Since(start) }(time.Now())
				<-r.Context().Done()
				return nil, r.Context().Err()
			})}},
		})
		e := &encoded{t: t, s: s}
		if got := e.add(nil, event(time.Now(), 0, "x")).send(); !got.is("again [0]") || took != time.Second {
			t.Errorf("got %v after %v, want again after 1s", got, took)
		}
	})
}

// A transport that violates the contract of http.RoundTripper causes the same errors as in
// http.Client.
func TestMisbehavingTransportsAreErrors(t *testing.T) {
	for text, f := range map[string]roundTrip{
		"neither an answer nor an error": func(*http.Request) (*http.Response, error) { return nil, nil },
		"server gave HTTP response to HTTPS client": func(r *http.Request) (*http.Response, error) {
			srv := httptest.NewServer(http.NotFoundHandler())
			defer srv.Close()
			r.URL, _ = url.Parse("https" + strings.TrimPrefix(srv.URL, "http"))
			c := &http.Transport{DisableKeepAlives: true}
			return c.RoundTrip(r)
		},
	} {
		s := sinkFor(t, f, Config{})
		e := &encoded{t: t, s: s}
		got := e.add(nil, event(time.Now(), 0, "x")).send()
		if text2 := fmt.Sprint(got); !strings.Contains(text2, text) {
			t.Errorf("got %v, want %s", got, text)
		}
	}
	empty := roundTrip(func(r *http.Request) (*http.Response, error) {
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
		return &http.Response{StatusCode: http.StatusNoContent}, nil
	})
	s := sinkFor(t, empty, Config{})
	e := &encoded{t: t, s: s}
	if got := e.add(nil, event(time.Now(), 0, "x")).send(); !got.is("stored") {
		t.Errorf("response without a body: got %v", got)
	}
}
