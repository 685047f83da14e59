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

	"github.com/klauspost/compress/gzip"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/secrets"
)

// tokenEvery is how often the file of a bearer token is looked at.
const tokenEvery = 10 * time.Second

// shownAnswer is how many bytes of an answer stand in an error.
const shownAnswer = 1024

// Options say where and how a [Poster] sends.
type Options struct {
	Who         string   // begins errors: the package
	URL         *url.URL // without a user
	ContentType string
	Headers     map[string]string // of the user: values may be secrets
	Plain       map[string]string // no secrets, where Headers have none of that name
	// Only one of these is given, or an Authorization header.
	Username, Password, BearerToken, BearerTokenFile string
	TokenHeader, TokenWord                           string // how the token is sent; "": Authorization: Bearer
	Gzip                                             bool
	Timeout                                          time.Duration // of a request
	MaxAnswer                                        int           // bytes of an answer that are read
	Client                                           *http.Client  // nil: one made of Transport
	Transport                                        Transport
}

// A Poster sends requests, one at a time: Post is for one goroutine. The errors it
// returns and makes of answers hold none of its credentials.
type Poster struct {
	o       Options
	http    *http.Client
	own     bool
	header  http.Header
	token   string // from the file
	looked  time.Time
	secrets []string
	zipped  bytes.Buffer
	zip     *gzip.Writer

	requests, failed, bodyBytes, wireBytes atomic.Uint64
}

// NewPoster returns a Poster. The error is about files that o names.
func NewPoster(o Options) (*Poster, error) {
	if o.TokenHeader == "" {
		o.TokenHeader, o.TokenWord = "Authorization", "Bearer "
	}
	p := &Poster{o: o, header: http.Header{
		"User-Agent": {"forebay"}, "Content-Type": {o.ContentType},
		// With this key and no value the transport takes the request for one that may be
		// sent again on a new connection, and sends no header.
		"Idempotency-Key": {},
	}}
	if o.Client != nil {
		own := *o.Client
		own.CheckRedirect = NoRedirect
		p.http = &own
	} else {
		var err error
		if p.http, err = o.Transport.Client(); err != nil {
			return nil, err
		}
		p.own = true
	}
	if o.Gzip {
		p.header.Set("Content-Encoding", "gzip")
	}
	for name, value := range o.Plain {
		p.header.Set(name, value)
	}
	for name, value := range o.Headers {
		p.header.Set(name, value)
	}
	basic := Basic(o.Username, o.Password)
	p.secrets = append(Secrets(o.Headers, o.URL), o.Password, o.BearerToken, basic)
	switch {
	case o.BearerToken != "":
		p.setToken(o.BearerToken)
	case basic != "":
		p.header.Set("Authorization", "Basic "+basic)
	case o.BearerTokenFile != "":
		token, err := ReadToken(o.Who, o.BearerTokenFile)
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

// renew looks for a new token and reports whether there is one. While the file cannot be
// read the old one counts.
func (p *Poster) renew(now time.Time) bool {
	if p.o.BearerTokenFile == "" {
		return false
	}
	p.looked = now
	token, err := ReadToken(p.o.Who, p.o.BearerTokenFile)
	if err != nil || token == p.token {
		return false
	}
	p.setToken(token)
	return true
}

// An Answer is what a server said.
type Answer struct {
	Status  int
	Header  http.Header
	Text    []byte // its beginning, up to Options.MaxAnswer bytes
	Whole   bool   // Text is all of it
	After   time.Duration
	Renewed bool // it is a 401, and there is a new token by now
}

// HTML reports whether the answer is a page for people: of a proxy, a page to log in.
func (a *Answer) HTML() bool {
	text := bytes.TrimSpace(a.Text)
	return len(text) > 0 && text[0] == '<' || strings.Contains(a.Header.Get("Content-Type"), "html")
}

// An Error is the refusal of a request, or the lack of an answer.
type Error struct {
	Who     string // the package
	Status  int    // HTTP status; 0: no answer
	Message string // the server's words; never holds a credential
	Lost    Lost   // without a Status, what the lack of an answer means
	cause   error
}

// Error returns status and message.
func (e *Error) Error() string {
	if e.Status == 0 {
		return e.Who + ": cannot send: " + e.Message
	}
	text := fmt.Sprintf("%s: server answered %d", e.Who, e.Status)
	if t := http.StatusText(e.Status); t != "" {
		text += " " + t
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// HTTPStatus returns Status. Dead letters show it.
func (e *Error) HTTPStatus() int { return e.Status }

// Unwrap returns the error of the connection, if that was it.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is [batch.ErrUnanswered] and nobody knows whether the request
// was stored.
func (e *Error) Is(target error) bool {
	return target == batch.ErrUnanswered && e.Status == 0 && e.Lost == Unknown
}

// Outcome is what the lack of an answer means for the records of the request.
func (e *Error) Outcome() batch.Outcome {
	o := batch.Outcome{Open: batch.All(), Why: e}
	if e.Lost == NotSecure {
		o.Advice = batch.Hold
	}
	return o
}

// Refusal returns the error of an answer, with message as its words: safe to be shown.
func (p *Poster) Refusal(status int, message string) *Error {
	return &Error{Who: p.o.Who, Status: status, Message: p.Words([]byte(message))}
}

// NoAnswer returns the error of an answer that is none: it is unknown whether the request was
// stored. message is not a text of the server.
func (p *Poster) NoAnswer(message string) *Error {
	return &Error{Who: p.o.Who, Message: shown(secrets.HideOwn(message, hiddenMark, p.secrets...))}
}

// searchedAnswer is how many bytes of an answer are searched for secrets. A longer secret than
// the difference to shownAnswer could show its beginning.
const searchedAnswer = 64 << 10

// hiddenMark replaces a secret.
const hiddenMark = "[secret]"

// Words returns the beginning of a text from outside such that it may be shown.
func (p *Poster) Words(text []byte) string {
	text = bytes.TrimSpace(text[:min(len(text), searchedAnswer)])
	return shown(secrets.Hide(strings.ToValidUTF8(string(text), "\ufffd"), hiddenMark, p.secrets...))
}

// shown returns the beginning of a text, printable.
func shown(text string) string {
	if len(text) > shownAnswer {
		text = strings.ToValidUTF8(text[:shownAnswer], "")
	}
	return Printable(text)
}

// Judge returns the outcome of an answer whose status means the same everywhere, and false
// for success and for a refusal of records (2xx, 400, 422).
//
//	401, 403, 404, 3xx, …   hold: a change of configuration is needed
//	408, 425, 429, 5xx      again, after Retry-After
//	413                     smaller; a record that is refused alone is a dead letter
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
		err.Message = "a redirect; set url to where it leads, which is not followed"
		o.Advice = batch.Hold
	default:
		o.Advice = batch.Hold
	}
	return o, true
}

// body is the body of one request. A transport may still read it after it has answered;
// since the memory is used again, it reads nothing then.
type body struct {
	mu   sync.Mutex
	data []byte
	off  int
	over bool
}

var errOver = errors.New("the request is over")

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

// Post sends data and returns the answer. The error is an [*Error]. Neither data nor what is
// made of it is read after Post has returned.
func (p *Poster) Post(ctx context.Context, data []byte) (a Answer, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = p.lost(fmt.Errorf("the http client panicked: %v", v))
		}
		if err != nil || a.Status >= 300 {
			p.failed.Add(1)
		}
	}()
	if now := time.Now(); p.o.BearerTokenFile != "" && now.Sub(p.looked) > tokenEvery {
		p.renew(now)
	}
	wire := p.pack(data)
	p.requests.Add(1)
	p.bodyBytes.Add(uint64(len(data)))
	p.wireBytes.Add(uint64(len(wire)))
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
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
		if _, err := io.Copy(io.Discard, res.Body); err != nil && a.Status < 300 { // a success that does not end is none
			return Answer{}, p.lost(fmt.Errorf("the answer (%d) has more than %d bytes and no end: %w", res.StatusCode, p.o.MaxAnswer, err))
		}
	}
	a.After = RetryAfter(res.Header.Get("Retry-After"), time.Now())
	a.Renewed = a.Status == http.StatusUnauthorized && p.renew(time.Now())
	return a, nil
}

// pack returns data as it goes over the wire.
func (p *Poster) pack(data []byte) []byte {
	if !p.o.Gzip {
		return data
	}
	p.zipped.Reset()
	if p.zip == nil {
		p.zip, _ = gzip.NewWriterLevel(&p.zipped, gzip.BestSpeed) // the level is one
	} else {
		p.zip.Reset(&p.zipped)
	}
	p.zip.Write(data) // a Buffer does not fail
	p.zip.Close()
	return p.zipped.Bytes()
}

// lost returns the error that stands for no answer.
func (p *Poster) lost(err error) *Error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // without the URL, which may have a secret in its query
	}
	safe := secrets.HideIn(err, hiddenMark, p.secrets...)
	return &Error{Who: p.o.Who, Message: shown(safe.Error()), Lost: LostBy(err), cause: safe}
}

// Counts are the counters of a [Poster].
type Counts struct{ Requests, Failed, BodyBytes, WireBytes uint64 }

// Counts returns the counters. It may be called from any goroutine.
func (p *Poster) Counts() Counts {
	return Counts{p.requests.Load(), p.failed.Load(), p.bodyBytes.Load(), p.wireBytes.Load()}
}

// Close ends connections that are idle.
func (p *Poster) Close() {
	if p.own {
		p.http.CloseIdleConnections()
	}
}

// CheckHeaders returns what is wrong with headers that a user gives and with the ways to
// authenticate beside them, of which ways are given; "" if nothing is.
func CheckHeaders(headers map[string]string, ways int) string {
	for name, value := range headers {
		canonical := http.CanonicalHeaderKey(name)
		switch canonical {
		case "Content-Type", "Content-Encoding", "Content-Length", "Host", "Transfer-Encoding":
			return fmt.Sprintf("headers: %s is made by the client; leave it out", canonical)
		case "Authorization":
			ways++
		}
		if name == "" || strings.ContainsAny(name, " \t\r\n:") || strings.ContainsAny(value, "\r\n\x00") {
			return fmt.Sprintf("headers: %.40q is no header", name)
		}
	}
	if ways > 1 {
		return "authentication: use one of username and password, bearer_token, bearer_token_file and an Authorization header"
	}
	return ""
}

// Ways counts the ways to authenticate that are given.
func Ways(username, password, token, tokenFile string) (n int) {
	for _, given := range []bool{username != "" || password != "", token != "", tokenFile != ""} {
		if given {
			n++
		}
	}
	return n
}

// ParseURL reads an address of a server, or says what is wrong with raw, which may hold a
// password. The user and password in it are returned apart.
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

// Shown returns u without what may be a secret.
func Shown(u *url.URL) string {
	c := *u
	c.User = nil
	if c.RawQuery != "" {
		c.RawQuery = "…"
	}
	return c.String()
}
