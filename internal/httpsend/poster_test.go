package httpsend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A roundTrip is a function that implements http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answers returns an HTTP client that receives the given response to every request.
func answers(status int, header http.Header, text string) *http.Client {
	return &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
		return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
	})}
}

// poster returns a Poster with o and defaults for the tests. The Poster is closed at the end of the
// test.
func poster(t *testing.T, o Options) *Poster {
	t.Helper()
	if o.URL == nil {
		o.URL = &url.URL{Scheme: "http", Host: "server.test", Path: "/x"}
	}
	o.Who, o.ContentType = "pkg", "text/x"
	if o.HTTP.Timeout == 0 {
		o.HTTP.Timeout = time.Minute
	}
	if o.MaxAnswer == 0 {
		o.MaxAnswer = 1 << 10
	}
	p, err := NewPoster(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Each authentication method sends its documented headers.
func TestPostSendsAuthentication(t *testing.T) {
	for name, tc := range map[string]struct {
		o           Options
		key, header string
	}{
		"none":   {Options{}, "Authorization", ""},
		"basic":  {Options{HTTP: httpclient.Options{Username: "me", Password: "hunter22"}}, "Authorization", "Basic bWU6aHVudGVyMjI="},
		"bearer": {Options{HTTP: httpclient.Options{BearerToken: "hunter22"}}, "Authorization", "Bearer hunter22"},
		"word":   {Options{TokenHeader: "Authorization", TokenWord: "Splunk ", HTTP: httpclient.Options{BearerToken: "hunter22"}}, "Authorization", "Splunk hunter22"},
		"key":    {Options{TokenHeader: "X-Key", HTTP: httpclient.Options{BearerToken: "hunter22"}}, "X-Key", "hunter22"},
		"header": {Options{Plain: map[string]string{"X-Key": "plain"}, HTTP: httpclient.Options{Headers: map[string]string{"x-key": "hunter22"}}}, "X-Key", "hunter22"},
		"plain":  {Options{Plain: map[string]string{"X-Key": "plain"}}, "X-Key", "plain"},
	} {
		t.Run(name, func(t *testing.T) {
			var got *http.Request
			var body []byte
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = r
				body, _ = io.ReadAll(r.Body)
				w.WriteHeader(201)
				io.WriteString(w, "hello")
			}))
			defer srv.Close()
			o := tc.o
			o.URL, _ = url.Parse(srv.URL + "/p?a=b")
			p := poster(t, o)
			a, err := p.Post(t.Context(), []byte("data"))
			if err != nil || a.Status != 201 || string(a.Text) != "hello" || !a.Whole || string(body) != "data" {
				t.Fatalf("%+v %v", a, err)
			}
			if got.Header.Get(tc.key) != tc.header || got.Header.Get("Content-Type") != "text/x" || got.URL.String() != "/p?a=b" || got.ContentLength != 4 || got.Header["Idempotency-Key"] != nil {
				t.Errorf("%s with %v", got.URL, got.Header)
			}
			if n := p.Counts(); n != (Counts{1, 0, 4, 4}) {
				t.Errorf("%+v", n)
			}
		})
	}
}

// A token file is read again after ten seconds and after a 401 response. If the file is missing,
// the old token remains in use.
func TestTokenFileIsReread(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		write := func(text string) {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("one\n")
		good, got := "Bearer one", ""
		p := poster(t, Options{HTTP: httpclient.Options{BearerTokenFile: file, Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			io.Copy(io.Discard, r.Body)
			got = r.Header.Get("Authorization")
			status := 200
			if got != good {
				status = 401
			}
			return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("token " + got))}, nil
		})}}})
		post := func(status int, renewed bool) {
			t.Helper()
			a, err := p.Post(t.Context(), nil)
			if err != nil || a.Status != status || a.TokenChanged != renewed {
				t.Errorf("%+v %v", a, err)
			}
			if o, ok := p.Interpret(&a, string(a.Text)); ok && (o.Advice == batch.Again) != renewed || ok && strings.Contains(o.Why.Error(), "tw0-secret") {
				t.Errorf("%+v", o)
			}
		}
		post(200, false)
		write("tw0-secret")
		good = "Bearer tw0-secret"
		post(401, true)
		post(200, false)
		good = "Bearer three"
		post(401, false)
		write("three")
		time.Sleep(11 * time.Second)
		post(200, false)
		os.Remove(file)
		time.Sleep(11 * time.Second)
		post(200, false)
	})
	for text, want := range map[string]string{"": "is empty or has NUL bytes", "\x00": "is empty or has NUL bytes", "a\nb": "it has several lines"} {
		file := filepath.Join(t.TempDir(), "token")
		os.WriteFile(file, []byte(text), 0o600)
		if _, err := NewPoster(Options{Who: "pkg", URL: &url.URL{}, HTTP: httpclient.Options{BearerTokenFile: file}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Errors contain no credentials, even if they contain the URL or text of a server.
func TestErrorsContainNoSecrets(t *testing.T) {
	u, _ := url.Parse("http://server.test/x?key=hunter22&b=s3cr3t%20word")
	p := poster(t, Options{URL: u, HTTP: httpclient.Options{Username: "me", Password: "pass-word", Headers: map[string]string{"X-Token": "Splunk t0ken", "X-Short": "abc"}, Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("cannot reach %s with %v", r.URL, r.Header)
	})}}})
	_, err := p.Post(t.Context(), []byte("x"))
	all := p.SafeText([]byte(u.String()+" pass-word t0ken bWU6cGFzcy13b3Jk s3cr3t word abc")) + err.Error() + Shown(u) + p.NoAnswer("hunter22").Error() + p.Refusal(400, "hunter22").Error()
	for _, secret := range []string{"hunter22", "pass-word", "t0ken", "bWU6cGFzcy13b3Jk", "s3cr3t word", "s3cr3t%20word"} {
		if strings.Contains(all, secret) {
			t.Errorf("%s is in %s", secret, all)
		}
	}
	if !strings.Contains(all, "abc") {
		t.Errorf("a short value is treated as a secret: %s", all)
	}
}

// Secrets that a server repeats are hidden, even if they are short, have several words, or are cut
// off at the end of the text. Messages about the network are not changed.
func TestRepeatedSecretsAreHidden(t *testing.T) {
	for _, secret := range []string{"x1", "password", "refused", "hunter22"} {
		for name, o := range map[string]Options{
			"password": {HTTP: httpclient.Options{Username: "me", Password: secret}},
			"token":    {HTTP: httpclient.Options{BearerToken: secret}},
			"header":   {HTTP: httpclient.Options{Headers: map[string]string{"X-Api-Key": secret}}},
			"splunk":   {HTTP: httpclient.Options{Headers: map[string]string{"Authorization": "Splunk " + secret}}},
			"query":    {URL: &url.URL{Scheme: "http", Host: "server.test", RawQuery: "token=" + secret}},
		} {
			var fails error
			o.HTTP.Client = &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) { return nil, fails })}
			p := poster(t, o)
			for _, words := range []string{"bad token Bearer %s", "no [%s]", "(%s)", "%s", "got '%s'.", strings.Repeat("-", maxQuotedBytes-1) + "%s"} {
				text := fmt.Sprintf(words, secret)
				fails = fmt.Errorf("malformed HTTP response %q", text)
				_, err := p.Post(t.Context(), nil)
				for _, shown := range []string{p.SafeText([]byte(text)), p.Refusal(401, text).Error(), err.Error(), err.(*httpclient.Error).Cause.Error()} {
					if strings.Contains(shown, secret) || strings.HasSuffix(shown, "-"+secret[:1]) {
						t.Errorf("%s %s: %s", name, secret, shown)
					}
				}
			}
			fails = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
			if _, err := p.Post(t.Context(), nil); !strings.HasSuffix(err.Error(), "connection refused") {
				t.Errorf("%s %s: %v", name, secret, err)
			}
		}
	}
}

// SafeText returns the beginning of a text without control characters.
func TestSafeTextIsPrintable(t *testing.T) {
	p := poster(t, Options{})
	for in, want := range map[string]string{
		" a \n":                          "a",
		"a\x1b[31mb\nc":                  `a\x1b[31mb\nc`,
		"\xff":                           `\ufffd`,
		strings.Repeat("x", 2000):        strings.Repeat("x", 1024),
		strings.Repeat("x", 1023) + "äö": strings.Repeat("x", 1023),
	} {
		if got := p.SafeText([]byte(in)); got != want && got != strings.ReplaceAll(want, `\ufffd`, "\ufffd") {
			t.Errorf("%.20q: got %.40q", in, got)
		}
	}
}

// Each status has the documented outcome, with the delay of Retry-After. Interpret leaves success
// and rejected records to the caller.
func TestInterpretStatuses(t *testing.T) {
	for _, tc := range []struct {
		status      int
		advice      batch.Advice
		interpreted bool
	}{
		{200, 0, false}, {204, 0, false}, {400, 0, false}, {422, 0, false},
		{301, batch.Hold, true}, {307, batch.Hold, true},
		{401, batch.Hold, true}, {403, batch.Hold, true}, {404, batch.Hold, true}, {405, batch.Hold, true}, {415, batch.Hold, true},
		{408, batch.Again, true}, {425, batch.Again, true}, {429, batch.Again, true}, {500, batch.Again, true}, {503, batch.Again, true}, {599, batch.Again, true},
		{413, batch.Smaller, true},
	} {
		p := poster(t, Options{HTTP: httpclient.Options{Client: answers(tc.status, http.Header{"Retry-After": {"7"}}, "words")}})
		a, err := p.Post(t.Context(), []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		o, interpreted := p.Interpret(&a, string(a.Text))
		if interpreted != tc.interpreted || interpreted && (o.Advice != tc.advice || o.Open.Len(3) != 3 || o.After != 7*time.Second || o.Why == nil) {
			t.Errorf("%d: %+v %v", tc.status, o, interpreted)
		}
		if failed := p.Counts().Failed; failed != 0 != (tc.status >= 300) {
			t.Errorf("%d: %d failed", tc.status, failed)
		}
	}
}

// An invalid or missing response is an error.
func TestMissingResponseIsError(t *testing.T) {
	for name, tc := range map[string]struct {
		client  *http.Client
		advice  batch.Advice
		unknown bool
	}{
		"refused": {&http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
		})}, batch.Again, false},
		"reset":       {&http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("reset") })}, batch.Again, true},
		"certificate": {&http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) { return nil, &tls.CertificateVerificationError{} })}, batch.Hold, false},
		"no TLS":      {&http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) { return nil, tls.RecordHeaderError{Msg: "first record"} })}, batch.Hold, false},
		"panic":       {&http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) { panic("boom") })}, batch.Again, true},
		"cut": {&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(io.MultiReader(strings.NewReader("x"), failing{}))}, nil
		})}, batch.Again, true},
	} {
		p := poster(t, Options{HTTP: httpclient.Options{Client: tc.client}})
		_, err := p.Post(t.Context(), []byte("x"))
		o := OutcomeOf(err)
		if err == nil || o.Advice != tc.advice || o.Open.Len(1) != 1 || errors.Is(err, batch.ErrUnanswered) != tc.unknown || p.Counts().Failed != 1 {
			t.Errorf("%s: %v %+v", name, err, o)
		}
	}
}

// failing is a reader that fails.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// Post returns only the first MaxAnswer bytes of a longer response.
func TestLongResponseIsIncomplete(t *testing.T) {
	for n, complete := range map[int]bool{1 << 10: true, 1<<10 + 1: false} {
		p := poster(t, Options{HTTP: httpclient.Options{Client: answers(200, nil, strings.Repeat("x", n))}})
		if a, err := p.Post(t.Context(), nil); err != nil || a.Whole != complete || len(a.Text) != 1<<10 {
			t.Errorf("%d: %d bytes, complete %v: %v", n, len(a.Text), a.Whole, err)
		}
	}
}

// A response that never ends is an error, unless its status is a rejection.
func TestEndlessResponseIsError(t *testing.T) {
	for _, status := range []int{200, 204, 400, 503} {
		bubble.Test(t, func(t *testing.T) {
			p := poster(t, Options{HTTP: httpclient.Options{Timeout: 9 * time.Second, Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: status, Body: endless{r.Context()}}, nil
			})}}})
			start := time.Now()
			a, err := p.Post(t.Context(), nil)
			if success := status < 300; success != errors.Is(err, batch.ErrUnanswered) || !success && a.Status != status || time.Since(start) != 9*time.Second {
				t.Errorf("%d: %d, %v after %v", status, a.Status, err, time.Since(start))
			}
		})
	}
}

// An endless is a response body that yields 1 KiB per second and never ends.
type endless struct{ ctx context.Context }

func (e endless) Read(p []byte) (int, error) {
	select {
	case <-e.ctx.Done():
		return 0, e.ctx.Err()
	case <-time.After(time.Second):
		return copy(p, strings.Repeat("x", 1<<10)), nil
	}
}

func (e endless) Close() error { return nil }

// A request without a body has a length: servers that read no chunks would take the end of an empty
// chunked body for the next request.
func TestEmptyRequestHasALength(t *testing.T) {
	sent := make(chan *http.Request, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { sent <- r }))
	defer srv.Close()
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := poster(t, Options{URL: u})
	if _, err := p.Post(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if r := <-sent; r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
		t.Errorf("length %d, transfer encoding %q", r.ContentLength, r.TransferEncoding)
	}
}

// A request ends when its timeout or its context expires.
func TestTimeout(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		hangs := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}
		p := poster(t, Options{HTTP: httpclient.Options{Client: hangs, Timeout: 3 * time.Second}})
		start := time.Now()
		if _, err := p.Post(t.Context(), nil); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second || !errors.Is(err, batch.ErrUnanswered) {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		if _, err := p.Post(ctx, nil); err == nil || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// A transport that reads the body after it has returned the response gets no data, because the
// memory is reused.
func TestBodyOfEndedRequestReturnsNoData(t *testing.T) {
	for _, zip := range []bool{false, true} {
		var late []io.ReadCloser
		var mu sync.Mutex
		p := poster(t, Options{Gzip: zip, HTTP: httpclient.Options{Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			second, err := r.GetBody()
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			late = append(late, r.Body, second)
			go io.Copy(io.Discard, r.Body)
			return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
		})}}})
		for range 100 {
			data := []byte(strings.Repeat("data", 1000))
			if _, err := p.Post(t.Context(), data); err != nil {
				t.Fatal(err)
			}
			clear(data) // the race detector reports any later read
		}
		for _, b := range late {
			if n, err := b.Read(make([]byte, 10)); n > 0 || err == nil {
				t.Fatalf("%d bytes, %v", n, err)
			}
		}
	}
}

// Redirects are not followed, certificates are verified, and the Unix socket is used. Errors about
// TLS files name the field.
func TestTransportOptions(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer srv.Close()
	u, _ := url.Parse(srv.URL)
	post := func(tr httpclient.Options) (Answer, error) {
		tr.Timeout, tr.NoProxy = time.Minute, true
		return poster(t, Options{URL: u, HTTP: tr}).Post(t.Context(), nil)
	}
	if a, err := post(httpclient.Options{TLS: transport.TLS{InsecureSkipVerify: true}}); err != nil || a.Status != http.StatusFound {
		t.Errorf("redirect: %+v %v", a, err)
	}
	_, err := post(httpclient.Options{})
	var e *httpclient.Error
	if !errors.As(err, &e) || StateAfter(e) != NotSecure || e.MaybeStored {
		t.Errorf("the error for a certificate of an unknown authority: %v", err)
	}
	dir := t.TempDir()
	for want, conf := range map[string]transport.TLS{
		"pkg: cannot read tls.ca_file":               {CAFile: filepath.Join(dir, "none")},
		"there is no PEM certificate in it":          {CAFile: os.Args[0]},
		"pkg: cannot use tls.cert_file and key_file": {CertFile: filepath.Join(dir, "a"), KeyFile: filepath.Join(dir, "b")},
	} {
		if _, err := Client("pkg", &httpclient.Options{TLS: conf}, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Host) })}
	served := make(chan struct{})
	go func() { defer close(served); server.Serve(l) }()
	defer func() { server.Close(); <-served }()
	u = &url.URL{Scheme: "http", Host: "name.test"}
	if a, err := post(httpclient.Options{UnixSocket: socket}); err != nil || string(a.Text) != "name.test" {
		t.Errorf("%s %v", a.Text, err)
	}
}

// RetryAfter parses seconds and dates. Invalid values are 0, and large ones are limited.
func TestRetryAfterFormats(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for h, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "0": 0, "-1": 0, "x": 0, "7x": 0, "99999999999": MaxRetryAfter * time.Second, "99999999999999999999999": MaxRetryAfter * time.Second,
		now.Add(time.Minute).Format(http.TimeFormat): time.Minute, now.Add(-time.Minute).Format(http.TimeFormat): 0,
	} {
		if got := RetryAfter(h, now); got != want {
			t.Errorf("%q: %v", h, got)
		}
	}
}

// ParseURL returns user information separately. Neither its error nor the result of Shown contains
// a password.
func TestParseURL(t *testing.T) {
	for raw, want := range map[string]string{
		"": "it is empty", "ftp://h": `its scheme is "ftp"`, "http://": "it has no host", "http://h#s3cr3t": "it has a #fragment", "http://h:0": "its port is 0", "http://h:70000": "its port is 70000",
		"http://u:s3cr3t@h:x": "it cannot be read", "https://h:1/p?q=s3cr3t": "", "http://me:s3cr3t@h": "",
	} {
		u, user, why := ParseURL(raw)
		if !strings.HasPrefix(why, want) || (why == "") != (want == "") || strings.Contains(why, "s3cr3t") {
			t.Errorf("%s: %s", raw, why)
		}
		if why == "" && (u.User != nil || strings.Contains(raw, "@") != (user != nil) || strings.Contains(Shown(u), "s3cr3t")) {
			t.Errorf("%s: %v %v", raw, u, user)
		}
	}
}

// Check reports each invalid field of the options.
func TestCheckNamesInvalidFields(t *testing.T) {
	token := httpclient.Options{BearerToken: "t"}
	two := httpclient.Options{Username: "u", BearerTokenFile: "f"}
	for _, tc := range []struct {
		name, value string
		h           httpclient.Options
		want        string
	}{
		{"X-A", "b", token, ""}, {"content-type", "x", httpclient.Options{}, "Content-Type is set by the client"}, {"Host", "x", httpclient.Options{}, "set by the client"},
		{"X A", "b", httpclient.Options{}, "is not a header name"}, {"", "b", httpclient.Options{}, "is not a header name"}, {"X-A", "b\r\nX-B: c", httpclient.Options{}, "is not a header name"},
		{"authorization", "x", httpclient.Options{}, ""}, {"authorization", "x", token, "use one of"}, {"X-A", "b", two, "use one of"},
		{"X-A", "b", httpclient.Options{BearerToken: "a\nb"}, "it contains a newline"}, {"X-A", "b", httpclient.Options{Timeout: -1}, "timeout is"},
		{"X-A", "b", httpclient.Options{TLS: transport.TLS{CertFile: "f"}}, "belong together"},
	} {
		tc.h.Headers = map[string]string{tc.name: tc.value}
		got := ""
		Check(&tc.h, func(format string, args ...any) { got += fmt.Sprintf(format, args...) })
		if !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%q: %s", tc.name, got)
		}
	}
}

// The server is probed if it has accepted nothing in the last ten seconds.
func TestProberSendsReferenceRecord(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var probes []string
		status := 200
		p := poster(t, Options{HTTP: httpclient.Options{Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			body, _ := io.ReadAll(r.Body)
			probes = append(probes, string(body))
			if status == 0 {
				return nil, errors.New("reset")
			}
			return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("words"))}, nil
		})}}})
		rejected := batch.Outcome{Open: batch.All(), Why: errors.New("bad"), Advice: batch.Hold}
		c := Prober{Message: func(a *Answer) string { return string(a.Text) }, Accepts: func(a *Answer) bool { return a.Status == 200 }}
		check := func(name string, f func(context.Context, *Poster, batch.Outcome) batch.Outcome, advice batch.Advice, want ...string) {
			t.Helper()
			probes = nil
			if o := f(t.Context(), p, rejected); o.Advice != advice || fmt.Sprint(probes) != fmt.Sprint(want) {
				t.Errorf("%s: %v after %q, want %v after %q", name, o.Advice, probes, advice, want)
			}
		}
		check("no probe", c.Check, batch.Hold)
		c.First = []byte("first")
		check("before a record was accepted", c.Check, batch.Search, "first")
		status = 400
		check("first probe rejected", c.Check, batch.Hold, "first")
		keep := func(text string) {
			c.Keep(time.Now(), func(dst []byte) []byte { return append(dst, text...) })
		}
		keep(strings.Repeat("x", maxReferenceBytes+1))
		check("just accepted", c.Check, batch.Search)
		check("Ask with a rejected probe", c.Ask, batch.Hold, "first")
		keep("one")
		keep("two")
		time.Sleep(11 * time.Second)
		check("reference rejected", c.Check, batch.Hold, "one")
		status = 200
		check("reference accepted", c.Check, batch.Search, "one")
		check("within acceptedPeriod", c.Check, batch.Search)
		keep("three") // replaces a reference record older than ten seconds
		time.Sleep(11 * time.Second)
		status = 503
		check("status 503", c.Check, batch.Again, "three")
		status = 401
		check("status 401", c.Check, batch.Hold, "three")
		status = 413
		check("status 413", c.Check, batch.Hold, "three")
		status = 0
		check("no response", c.Check, batch.Again, "three")
	})
}
