package httpsend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/compression"
	"github.com/forebay-log/forebay/internal/secrets"
)

// tokenEvery is the interval at which a bearer token file is checked.
const tokenEvery = 10 * time.Second

// shownAnswer is the maximum length in bytes of an answer quoted in an error.
const shownAnswer = 1024

// Options configure a [Poster].
type Options struct {
	Who                    string   // prefix of errors: the package
	URL                    *url.URL // without user information
	ContentType            string
	HTTP                   httpclient.Options
	Plain                  map[string]string // headers that are not secret; used unless Headers has the same name
	TokenHeader, TokenWord string            // header and scheme of the token; "": Authorization: Bearer
	Gzip                   bool
	MaxAnswer              int // bytes of an answer to read
}

// A Poster sends requests one at a time. Only one goroutine may call Post. The errors that
// it returns, or makes from answers, contain none of its credentials.
type Poster struct {
	o       Options
	http    *http.Client
	own     bool
	header  http.Header
	token   string // from the file
	looked  time.Time
	secrets []string
	zipped  bytes.Buffer
	zip     compression.Writer

	requests, failed, bodyBytes, wireBytes atomic.Uint64
}

// NewPoster returns a Poster. It fails if it cannot read a file named in o.
func NewPoster(o Options) (*Poster, error) {
	if o.TokenHeader == "" {
		o.TokenHeader, o.TokenWord = "Authorization", "Bearer "
	}
	p := &Poster{o: o, header: http.Header{
		"User-Agent": {"forebay"}, "Content-Type": {o.ContentType},
		// With this key and no value, net/http treats the request as idempotent, so that it
		// may be sent again on a new connection, and sends no header.
		"Idempotency-Key": {},
	}}
	var err error
	if p.http, err = Client(o.Who, &o.HTTP, 1); err != nil {
		return nil, err
	}
	p.own = o.HTTP.Client == nil
	if o.Gzip {
		p.header.Set("Content-Encoding", "gzip")
	}
	for name, value := range o.Plain {
		p.header.Set(name, value)
	}
	for name, value := range o.HTTP.Headers {
		p.header.Set(name, value)
	}
	basic := Basic(o.HTTP.Username, o.HTTP.Password)
	p.secrets = append(Secrets(o.HTTP.Headers, o.URL), o.HTTP.Password, o.HTTP.BearerToken, basic)
	switch {
	case o.HTTP.BearerToken != "":
		p.setToken(o.HTTP.BearerToken)
	case basic != "":
		p.header.Set("Authorization", "Basic "+basic)
	case o.HTTP.BearerTokenFile != "":
		token, err := ReadToken(o.Who, o.HTTP.BearerTokenFile)
		if err != nil {
			return nil, err
		}
		p.setToken(token)
		p.looked = time.Now()
	}
	return p, nil
}

func (p *Poster) setToken(token string) {
	p.secrets = append(slices.Clip(p.secrets), token)
	p.token = token
	p.header.Set(p.o.TokenHeader, p.o.TokenWord+token)
}

// renew rereads the token file and reports whether the token changed. While the file cannot
// be read, the old token remains in use.
func (p *Poster) renew(now time.Time) bool {
	if p.o.HTTP.BearerTokenFile == "" {
		return false
	}
	p.looked = now
	token, err := ReadToken(p.o.Who, p.o.HTTP.BearerTokenFile)
	if err != nil || token == p.token {
		return false
	}
	p.setToken(token)
	return true
}

// An Answer is the response of a server.
type Answer struct {
	Status  int
	Header  http.Header
	Text    []byte // up to Options.MaxAnswer bytes
	Whole   bool   // Text is complete
	After   time.Duration
	Renewed bool // the status is 401 and the token has changed since
}

// HTML reports whether the answer is an HTML page, such as a proxy's error or a login page.
func (a *Answer) HTML() bool {
	text := bytes.TrimSpace(a.Text)
	return len(text) > 0 && text[0] == '<' || strings.Contains(a.Header.Get("Content-Type"), "html")
}

// Refusal returns the error of an answer, with message as its text. Secrets are removed
// from message.
func (p *Poster) Refusal(status int, message string) *httpclient.Error {
	return &httpclient.Error{Package: p.o.Who, Status: status, Message: p.Words([]byte(message))}
}

// NoAnswer returns the error of an invalid response: it is unknown whether the request was
// stored. message must not contain text of the server.
func (p *Poster) NoAnswer(message string) *httpclient.Error {
	return &httpclient.Error{Package: p.o.Who, Message: shown(secrets.HideOwn(message, hiddenMark, p.secrets...)), MaybeStored: true}
}

// searchedAnswer is the number of bytes of an answer searched for secrets. The start of a
// secret longer than the difference to shownAnswer could be revealed.
const searchedAnswer = 64 << 10

// hiddenMark replaces a secret.
const hiddenMark = "[secret]"

// Words returns the beginning of an external text with secrets removed.
func (p *Poster) Words(text []byte) string {
	text = bytes.TrimSpace(text[:min(len(text), searchedAnswer)])
	return shown(secrets.Hide(strings.ToValidUTF8(string(text), "\ufffd"), hiddenMark, p.secrets...))
}

// shown returns the beginning of a text in printable form.
func shown(text string) string {
	if len(text) > shownAnswer {
		text = strings.ToValidUTF8(text[:shownAnswer], "")
	}
	return Printable(text)
}

// Judge returns the outcome of an answer whose status has the same meaning for every
// server. It reports false for success and for rejected records (2xx, 400, 422).
//
//	401, 403, 404, 3xx, …   hold: a change of configuration is needed
//	408, 425, 429, 5xx      again, after Retry-After
//	413                     smaller; a record that is refused when it is sent by itself is a dead letter
func (p *Poster) Judge(a *Answer, message string) (batch.Outcome, bool) {
	err := p.Refusal(a.Status, message)
	o := batch.Outcome{Open: batch.All(), Why: err, After: a.After}
	switch s := a.Status; {
	case s >= 200 && s < 300, s == http.StatusBadRequest, s == http.StatusUnprocessableEntity:
		return batch.Outcome{}, false
	case s == http.StatusRequestEntityTooLarge:
		o.Advice = batch.Smaller
	case s >= 500, s == http.StatusTooManyRequests, s == http.StatusRequestTimeout, s == http.StatusTooEarly, a.Renewed:
	case s >= 300 && s < 400:
		err.Message = "redirects are not followed; set url to the target"
		o.Advice = batch.Hold
	default:
		o.Advice = batch.Hold
	}
	return o, true
}

// body is the body of one request. A transport may read it even after it has returned a
// response. The memory is reused by then, so such a read returns no data.
type body struct {
	mu   sync.Mutex
	data []byte
	off  int
	over bool
}

var errOver = errors.New("the request has ended")

func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.over:
		return 0, errOver
	case b.off == len(b.data):
		return 0, io.EOF
	}
	n := copy(p, b.data[b.off:])
	b.off += n
	return n, nil
}

func (b *body) Close() error { return nil }

func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over, b.data = true, nil
}

// Post sends data and returns the answer. The error is an [*httpclient.Error]. After Post has
// returned, neither data nor the compressed form is read.
func (p *Poster) Post(ctx context.Context, data []byte) (a Answer, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = p.lost(fmt.Errorf("the http client panicked: %v", v))
		}
		if err != nil || a.Status >= 300 {
			p.failed.Add(1)
		}
	}()
	if now := time.Now(); p.o.HTTP.BearerTokenFile != "" && now.Sub(p.looked) > tokenEvery {
		p.renew(now)
	}
	wire := p.pack(data)
	p.requests.Add(1)
	p.bodyBytes.Add(uint64(len(data)))
	p.wireBytes.Add(uint64(len(wire)))
	ctx, cancel := context.WithTimeout(ctx, p.o.HTTP.Timeout)
	defer cancel()
	var mu sync.Mutex
	bodies, over := []*body{{data: wire}}, false
	again := func() (io.ReadCloser, error) {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return nil, errOver
		}
		bodies = append(bodies, &body{data: wire})
		return bodies[len(bodies)-1], nil
	}
	defer func() {
		cancel()
		mu.Lock()
		defer mu.Unlock()
		over = true
		for _, b := range bodies {
			b.end()
		}
	}()
	req := (&http.Request{
		Method: http.MethodPost, URL: p.o.URL, Host: p.o.URL.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: p.header.Clone(), Body: bodies[0], GetBody: again, ContentLength: int64(len(wire)),
	}).WithContext(ctx)
	res, err := p.http.Do(req)
	if err != nil {
		return a, p.lost(err)
	}
	defer res.Body.Close()
	a = Answer{Status: res.StatusCode, Header: res.Header}
	a.Text, err = io.ReadAll(io.LimitReader(res.Body, int64(p.o.MaxAnswer)+1))
	if err != nil {
		return Answer{}, p.lost(fmt.Errorf("cannot read the answer (%d): %w", res.StatusCode, err))
	}
	if a.Whole = len(a.Text) <= p.o.MaxAnswer; !a.Whole {
		a.Text = a.Text[:p.o.MaxAnswer]
		if _, err := io.Copy(io.Discard, res.Body); err != nil && a.Status < 300 { // a truncated success is not a success
			return Answer{}, p.lost(fmt.Errorf("the answer (%d) has more than %d bytes: %w", res.StatusCode, p.o.MaxAnswer, err))
		}
	}
	a.After = RetryAfter(res.Header.Get("Retry-After"), time.Now())
	a.Renewed = a.Status == http.StatusUnauthorized && p.renew(time.Now())
	return a, nil
}

// pack returns data as sent, compressed if configured.
func (p *Poster) pack(data []byte) []byte {
	if !p.o.Gzip {
		return data
	}
	p.zipped.Reset()
	if p.zip == nil {
		p.zip = compression.NewGzip()
	}
	p.zip.Reset(&p.zipped)
	p.zip.Write(data) // writing to a Buffer does not fail
	p.zip.Close()
	return p.zipped.Bytes()
}

// lost returns the error for a missing response.
func (p *Poster) lost(err error) *httpclient.Error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // removes the URL, whose query may contain a secret
	}
	safe := secrets.HideIn(err, hiddenMark, p.secrets...)
	return &httpclient.Error{Package: p.o.Who, Message: shown(safe.Error()), MaybeStored: LostBy(err) == Unknown, Cause: safe}
}

// Counts are the counters of a [Poster].
type Counts struct{ Requests, Failed, BodyBytes, WireBytes uint64 }

// Counts returns the counters. It is safe for concurrent use.
func (p *Poster) Counts() Counts {
	return Counts{p.requests.Load(), p.failed.Load(), p.bodyBytes.Load(), p.wireBytes.Load()}
}

// Close closes idle connections.
func (p *Poster) Close() {
	if p.own {
		p.http.CloseIdleConnections()
	}
}

// Check passes the invalid fields of h to bad. It reads no files.
func Check(h *httpclient.Options, bad func(format string, args ...any)) {
	ways := 0
	for _, given := range []bool{h.Username != "" || h.Password != "", h.BearerToken != "", h.BearerTokenFile != ""} {
		if given {
			ways++
		}
	}
	for name, value := range h.Headers {
		canonical := http.CanonicalHeaderKey(name)
		switch canonical {
		case "Content-Type", "Content-Encoding", "Content-Length", "Host", "Transfer-Encoding":
			bad("headers: %s is set by the client; leave it out", canonical)
		case "Authorization":
			ways++
		}
		if name == "" || strings.ContainsAny(name, " \t\r\n:") || strings.ContainsAny(value, "\r\n\x00") {
			bad("headers: %.40q is not a header name", name)
		}
	}
	if ways > 1 {
		bad("authentication: use one of username and password, bearer_token, bearer_token_file and an Authorization header")
	}
	if strings.ContainsAny(h.BearerToken, "\r\n\x00") {
		bad("bearer_token: it contains a newline")
	}
	if (h.TLS.CertFile == "") != (h.TLS.KeyFile == "") {
		bad("tls: cert_file and key_file belong together; give both")
	}
	if h.Timeout < 0 {
		bad("timeout is %v; use a positive duration", h.Timeout)
	}
}

// SetUser sets the credentials of h to those of an address, unless h has some.
func SetUser(h *httpclient.Options, user *url.Userinfo) {
	if user != nil && h.Username == "" && h.Password == "" {
		h.Username = user.Username()
		h.Password, _ = user.Password()
	}
}

// ParseURL parses the address of a server, or describes the problem in raw, which may
// contain a password. User and password are returned separately.
func ParseURL(raw string) (u *url.URL, user *url.Userinfo, why string) {
	if raw == "" {
		return nil, nil, "it is empty"
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, nil, "it cannot be read"
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, nil, fmt.Sprintf("its scheme is %q", u.Scheme)
	case u.Hostname() == "":
		return nil, nil, "it has no host"
	case u.Fragment != "":
		return nil, nil, "it has a #fragment"
	case u.Port() != "":
		var n int
		if _, err := fmt.Sscan(u.Port(), &n); err != nil || n < 1 || n > 65535 {
			return nil, nil, fmt.Sprintf("its port is %s, but ports are 1 to 65535", u.Port())
		}
	}
	user, u.User = u.User, nil
	return u, user, ""
}

// Shown returns u without parts that may be secret.
func Shown(u *url.URL) string {
	c := *u
	c.User = nil
	if c.RawQuery != "" {
		c.RawQuery = "…"
	}
	return c.String()
}
