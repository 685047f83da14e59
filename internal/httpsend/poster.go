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

// tokenCheckInterval is the minimum time between two checks of a bearer token file. A 401 response
// causes an immediate check.
const tokenCheckInterval = 10 * time.Second

// maxQuotedBytes is the maximum length in bytes of the part of a response that is quoted in an
// error.
const maxQuotedBytes = 1024

// Options configures a [Poster].
type Options struct {
	Who                    string   // name of the calling package, which is the prefix of errors
	URL                    *url.URL // the URL contains no user information
	ContentType            string
	HTTP                   httpclient.Options
	Plain                  map[string]string // headers that are not secret; headers of the same name in httpclient.Options have precedence
	TokenHeader, TokenWord string            // header and scheme of the token; an empty TokenHeader means Authorization: Bearer
	Gzip                   bool
	MaxAnswer              int // maximum number of bytes of a response that are kept
}

// A Poster sends requests, one at a time: only one goroutine at a time may call Post. The errors
// that it returns, or makes from responses, contain none of its credentials.
type Poster struct {
	o              Options
	http           *http.Client
	ownsHTTP       bool         // NewPoster has made the client in http; if false, the user supplied it
	header         http.Header  // headers of each request, with the current token
	token          string       // current bearer token
	tokenCheckedAt time.Time    // time of the last check of the token file
	secrets        []string     // values that must not appear in errors
	zipped         bytes.Buffer // memory for the compressed body of a request
	zip            compression.Writer

	requests, failed, bodyBytes, wireBytes atomic.Uint64
}

// NewPoster returns a Poster. It returns an error if a file named in o cannot be used.
func NewPoster(o Options) (*Poster, error) {
	if o.TokenHeader == "" {
		o.TokenHeader, o.TokenWord = "Authorization", "Bearer "
	}
	p := &Poster{o: o, header: http.Header{
		"User-Agent": {"forebay"}, "Content-Type": {o.ContentType},
		// If the header has this key without a value, net/http does not send it, but treats the
		// request as idempotent: it may send the request again on a new connection.
		"Idempotency-Key": {},
	}}
	var err error
	if p.http, err = Client(o.Who, &o.HTTP, 1); err != nil {
		return nil, err
	}
	p.ownsHTTP = o.HTTP.Client == nil
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
		p.tokenCheckedAt = time.Now()
	}
	return p, nil
}

// setToken sets the bearer token. Earlier tokens remain in secrets, because a response may still
// contain one.
func (p *Poster) setToken(token string) {
	p.secrets = append(slices.Clip(p.secrets), token)
	p.token = token
	p.header.Set(p.o.TokenHeader, p.o.TokenWord+token)
}

// renew reads the token file again and reports whether the token has changed. If the file cannot be
// read, the old token remains in use.
func (p *Poster) renew(now time.Time) bool {
	if p.o.HTTP.BearerTokenFile == "" {
		return false
	}
	p.tokenCheckedAt = now
	token, err := ReadToken(p.o.Who, p.o.HTTP.BearerTokenFile)
	if err != nil || token == p.token {
		return false
	}
	p.setToken(token)
	return true
}

// An Answer is the response of a server.
type Answer struct {
	Status       int
	Header       http.Header
	Text         []byte        // the first Options.MaxAnswer bytes of the response
	Whole        bool          // Text is the whole response
	After        time.Duration // minimum delay before the next request, from the header Retry-After, or 0
	TokenChanged bool          // the status is 401 and the token file has a new token
}

// HTML reports whether the answer is an HTML page, such as the error page of a proxy or a login
// page.
func (a *Answer) HTML() bool {
	text := bytes.TrimSpace(a.Text)
	return len(text) > 0 && text[0] == '<' || strings.Contains(a.Header.Get("Content-Type"), "html")
}

// Refusal returns the error for a response with the given status. The text of the error is message,
// without secrets.
func (p *Poster) Refusal(status int, message string) *httpclient.Error {
	return &httpclient.Error{Package: p.o.Who, Status: status, Message: p.SafeText([]byte(message))}
}

// NoAnswer returns the error for an invalid response. It sets MaybeStored, because the server may
// have stored the records of the request. message must not contain text from the server.
func (p *Poster) NoAnswer(message string) *httpclient.Error {
	return &httpclient.Error{Package: p.o.Who, Message: printablePrefix(secrets.HideOwn(message, redactedMark, p.secrets...)), MaybeStored: true}
}

// maxSearchedBytes is the number of bytes of a response that are searched for secrets. It is larger
// than maxQuotedBytes, so that a secret that begins in the quoted part and continues after it is
// found.
const maxSearchedBytes = 64 << 10

// redactedMark replaces each secret in the text of an error.
const redactedMark = "[secret]"

// SafeText returns the beginning of text from the server. The result is printable and contains no
// secrets.
func (p *Poster) SafeText(text []byte) string {
	text = bytes.TrimSpace(text[:min(len(text), maxSearchedBytes)])
	return printablePrefix(secrets.Hide(strings.ToValidUTF8(string(text), "\ufffd"), redactedMark, p.secrets...))
}

// printablePrefix returns the first maxQuotedBytes bytes of text in printable form.
func printablePrefix(text string) string {
	if len(text) > maxQuotedBytes {
		text = strings.ToValidUTF8(text[:maxQuotedBytes], "")
	}
	return Printable(text)
}

// ServerFailed reports whether a response with the given status and Retry-After says that the server
// has failed, perhaps because of a record.
func ServerFailed(status int, after time.Duration) bool {
	return (status == http.StatusInternalServerError || status == http.StatusBadGateway) && after == 0
}

// Interpret returns the outcome of a response whose status has the same meaning for every server.
// It returns false for success (2xx) and for rejected records (400, 422), because their details
// depend on the server.
//
//	401, 403, 404, 3xx, …   batch.Hold: a change of configuration is needed
//	408, 425, 429, 5xx      batch.Again, after Retry-After
//	500, 502                without Retry-After batch.ServerError, because a record may be the cause
//	413                     batch.Smaller; a record that is too large by itself is a dead letter
func (p *Poster) Interpret(a *Answer, message string) (batch.Outcome, bool) {
	err := p.Refusal(a.Status, message)
	o := batch.Outcome{Open: batch.All(), Why: err, After: a.After}
	switch s := a.Status; {
	case s >= 200 && s < 300, s == http.StatusBadRequest, s == http.StatusUnprocessableEntity:
		return batch.Outcome{}, false
	case s == http.StatusRequestEntityTooLarge:
		o.Advice = batch.Smaller
	case ServerFailed(s, a.After):
		o.Advice = batch.ServerError
	case s >= 500, s == http.StatusTooManyRequests, s == http.StatusRequestTimeout, s == http.StatusTooEarly, a.TokenChanged:
	case s >= 300 && s < 400:
		err.Message = "redirects are not followed; set url to the target"
		o.Advice = batch.Hold
	default:
		o.Advice = batch.Hold
	}
	return o, true
}

// A body is the body of one request. An http.Transport may read it even after it has returned the
// response. The memory may then belong to the next request, so such a read returns errRequestEnded.
// A body is safe for concurrent use.
type body struct {
	mu    sync.Mutex
	data  []byte
	off   int
	ended bool // the request has ended: reads fail
}

// errRequestEnded is returned by reads of a body after its request has ended.
var errRequestEnded = errors.New("the request has ended")

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ended:
		return 0, errRequestEnded
	case b.off == len(b.data):
		return 0, io.EOF
	}
	n := copy(p, b.data[b.off:])
	b.off += n
	return n, nil
}

// Close does nothing, because a body holds no resources except memory.
func (b *body) Close() error { return nil }

// end makes further reads fail and drops the reference to the data.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended, b.data = true, nil
}

// Post sends data and returns the response. The error is a [*httpclient.Error]. After Post has
// returned, the transport no longer reads data. A panic of the HTTP client becomes an error.
func (p *Poster) Post(ctx context.Context, data []byte) (a Answer, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = p.noResponse(fmt.Errorf("the http client panicked: %v", v))
		}
		if err != nil || a.Status >= 300 {
			p.failed.Add(1)
		}
	}()
	if now := time.Now(); p.o.HTTP.BearerTokenFile != "" && now.Sub(p.tokenCheckedAt) > tokenCheckInterval {
		p.renew(now)
	}
	wire := p.pack(data)
	p.requests.Add(1)
	p.bodyBytes.Add(uint64(len(data)))
	p.wireBytes.Add(uint64(len(wire)))
	ctx, cancel := context.WithTimeout(ctx, p.o.HTTP.Timeout)
	defer cancel()
	var mu sync.Mutex
	bodies, ended := []*body{{data: wire}}, false
	newBody := func() (io.ReadCloser, error) {
		mu.Lock()
		defer mu.Unlock()
		if ended {
			return nil, errRequestEnded
		}
		bodies = append(bodies, &body{data: wire})
		return bodies[len(bodies)-1], nil
	}
	defer func() {
		cancel()
		mu.Lock()
		defer mu.Unlock()
		ended = true
		for _, b := range bodies {
			b.end()
		}
	}()
	req := (&http.Request{
		Method: http.MethodPost, URL: p.o.URL, Host: p.o.URL.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: p.header.Clone(), Body: bodies[0], GetBody: newBody, ContentLength: int64(len(wire)),
	}).WithContext(ctx)
	if len(wire) == 0 { // any other empty body is sent in chunks, which some servers do not read
		req.Body = http.NoBody
	}
	res, err := p.http.Do(req)
	if err != nil {
		return a, p.noResponse(err)
	}
	defer res.Body.Close()
	a = Answer{Status: res.StatusCode, Header: res.Header}
	a.Text, err = io.ReadAll(io.LimitReader(res.Body, int64(p.o.MaxAnswer)+1))
	if err != nil {
		return Answer{}, p.noResponse(fmt.Errorf("cannot read the answer (%d): %w", res.StatusCode, err))
	}
	if a.Whole = len(a.Text) <= p.o.MaxAnswer; !a.Whole {
		a.Text = a.Text[:p.o.MaxAnswer]
		if _, err := io.Copy(io.Discard, res.Body); err != nil && a.Status < 300 { // the status of a truncated response does not prove success
			return Answer{}, p.noResponse(fmt.Errorf("the answer (%d) has more than %d bytes: %w", res.StatusCode, p.o.MaxAnswer, err))
		}
	}
	a.After = RetryAfter(res.Header.Get("Retry-After"), time.Now())
	a.TokenChanged = a.Status == http.StatusUnauthorized && p.renew(time.Now())
	return a, nil
}

// pack returns the body of a request: data, or data in compressed form. The result is valid until
// the next call.
func (p *Poster) pack(data []byte) []byte {
	if !p.o.Gzip {
		return data
	}
	p.zipped.Reset()
	if p.zip == nil {
		p.zip = compression.NewGzip()
	}
	p.zip.Reset(&p.zipped)
	p.zip.Write(data) // writing to a bytes.Buffer does not fail
	p.zip.Close()
	return p.zipped.Bytes()
}

// noResponse returns the error for a request that got no complete response.
func (p *Poster) noResponse(err error) *httpclient.Error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // removes the URL, whose query may contain a secret
	}
	safe := secrets.HideIn(err, redactedMark, p.secrets...)
	return &httpclient.Error{Package: p.o.Who, Message: printablePrefix(safe.Error()), MaybeStored: StateAfter(err) == Unknown, Cause: safe}
}

// Counts are the counters of a [Poster].
type Counts struct{ Requests, Failed, BodyBytes, WireBytes uint64 }

// Counts returns the counters. It is safe for concurrent use.
func (p *Poster) Counts() Counts {
	return Counts{p.requests.Load(), p.failed.Load(), p.bodyBytes.Load(), p.wireBytes.Load()}
}

// Close closes the idle connections, unless the http.Client is user-supplied.
func (p *Poster) Close() {
	if p.ownsHTTP {
		p.http.CloseIdleConnections()
	}
}

// Check calls the function bad for each invalid field of h, with a remedy. It reads no files.
func Check(h *httpclient.Options, bad func(format string, args ...any)) {
	var methods []string
	for _, m := range []struct {
		given bool
		name  string
	}{{h.BearerToken != "", "bearer_token"}, {h.BearerTokenFile != "", "bearer_token_file"}, {h.Username != "" || h.Password != "", "username with password"}} {
		if m.given {
			methods = append(methods, m.name)
		}
	}
	for name, value := range h.Headers {
		canonical := http.CanonicalHeaderKey(name)
		switch canonical {
		case "Content-Type", "Content-Encoding", "Content-Length", "Host", "Transfer-Encoding":
			bad("headers: %s is set by the client; leave it out", canonical)
		case "Authorization":
			methods = append(methods, "the header Authorization")
		}
		if name == "" || strings.ContainsAny(name, " \t\r\n:") || strings.ContainsAny(value, "\r\n\x00") {
			bad("headers: %.40q is not a header name", name)
		}
	}
	if len(methods) > 1 {
		bad("authentication: %s are given; use one of them", strings.Join(methods, " and "))
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

// SetUser sets the credentials of h to those in the URL of the server, unless h already has
// credentials. user may be nil.
func SetUser(h *httpclient.Options, user *url.Userinfo) {
	if user != nil && h.Username == "" && h.Password == "" {
		h.Username = user.Username()
		h.Password, _ = user.Password()
	}
}

// ParseURL parses the URL of a server. It returns the URL without user information, and the user
// information. If raw is invalid, why describes the error without any part of raw that may be a
// password.
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

// Shown returns the text of u without its user information and its query, because both may be
// secret.
func Shown(u *url.URL) string {
	c := *u
	c.User = nil
	if c.RawQuery != "" {
		c.RawQuery = "…"
	}
	return c.String()
}
