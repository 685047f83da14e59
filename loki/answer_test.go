package loki

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/httpclient"
)

func answerOf(r *http.Request, status int, h http.Header) (*http.Response, error) {
	if r.Body != nil {
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
	var text string
	if status == http.StatusBadRequest { // a 400 response without text does not come from Loki
		text = "no"
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

// A redirect to the login page of a proxy means that no record is stored, even if the user's
// http.Client follows redirects. The Driver does not modify this client.
func TestRedirectToLoginPageStoresNothing(t *testing.T) {
	client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method == "POST" {
			return answerOf(r, 302, http.Header{"Location": {"/login"}})
		}
		t.Error("the redirect was followed")
		return answerOf(r, 200, nil)
	})}
	s, err := New(Config{URL: "http://x", Labels: map[string]string{"a": "b"}, HTTP: httpclient.Options{Client: client}})
	if err != nil {
		t.Fatal(err)
	}
	e := &encoded{t: t, s: s}
	if got := e.add(nil, event(time.Now(), 0, "x")).send(); !got.is("hold [0]") {
		t.Errorf("got %v", got)
	}
	if client.CheckRedirect != nil {
		t.Error("the client was changed")
	}
}

// After a 401 response the token file is read immediately, even if its modification time has not
// changed.
func TestTokenFileIsReadAgainAfter401(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	os.WriteFile(file, []byte("old"), 0o600)
	at := time.Now()
	os.Chtimes(file, at, at)
	var got []string
	p := roundTrip(func(r *http.Request) (*http.Response, error) {
		got = append(got, r.Header.Get("Authorization"))
		if got[len(got)-1] != "Bearer new" {
			return answerOf(r, 401, nil)
		}
		return answerOf(r, 204, nil)
	})
	e := &encoded{t: t, s: sinkFor(t, p, Config{HTTP: httpclient.Options{BearerTokenFile: file}})}
	e.add(nil, event(time.Now(), 0, "x"))
	if o := e.send(); !o.is("hold [0]") {
		t.Fatal(o)
	}
	os.WriteFile(file, []byte("new"), 0o600)
	os.Chtimes(file, at, at) // the modification time does not change
	if o := e.send(); !o.is("again [0] after 0s") {
		t.Fatal(o)
	}
	if o := e.send(); o != nil {
		t.Fatal(o)
	}
	if want := []string{"Bearer old", "Bearer old", "Bearer new"}; !slices.Equal(got, want) {
		t.Errorf("sent %v, want %v", got, want)
	}
}

// Text from a server appears in errors without control characters.
func TestServerTextsAreMadePrintable(t *testing.T) {
	p := &peer{answer: func(int, *request) (int, string, http.Header) {
		return 503, "red \x1b[31m\r\n\u202e\x00\u0085 é🙂", nil
	}}
	e := &encoded{t: t, s: sinkFor(t, p, Config{Labels: map[string]string{"a": "\u202e\x1b"}})}
	err := e.add(nil, event(time.Now(), 0, "x")).send().Why
	if want := `red \x1b[31m\r\n\u202e\x00\u0085 é🙂`; !strings.Contains(err.Error(), want) {
		t.Errorf("got %q, want %q", err, want)
	}
	if e.s.Stats().LastError != err.Error() || strings.Contains(err.Error(), "\u202e") {
		t.Errorf("got %q", e.s.Stats().LastError)
	}
	down := roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("no \x1b route") })
	err = (&encoded{t: t, s: sinkFor(t, down, Config{})}).add(nil, event(time.Now(), 0, "x")).send().Why
	if !strings.Contains(err.Error(), `no \x1b route`) {
		t.Errorf("got %q", err)
	}
}

// The type bytesAsLines is a Formatter that writes messages unchanged.
type bytesAsLines struct{}

func (bytesAsLines) Scope() encode.Scope                { return bytesAsLines{} }
func (bytesAsLines) Codec() batch.Codec                 { return encode.JSON(nil).Codec() }
func (bytesAsLines) NeedsPC() bool                      { return false }
func (bytesAsLines) WithAttrs([]slog.Attr) encode.Scope { return bytesAsLines{} }
func (bytesAsLines) WithGroup(string) encode.Scope      { return bytesAsLines{} }
func (bytesAsLines) Append(dst []byte, r *encode.Record) ([]byte, batch.Meta, error) {
	return append(dst, r.Message...), batch.Meta{}, nil
}

func TestInvalidUTF8OfFormatterIsReplaced(t *testing.T) {
	for _, w := range []string{wireProtobuf, wireJSON} {
		e, _ := encodeOne(t, Config{Wire: w, Line: Line{Formatter: bytesAsLines{}}}, encode.Record{Message: "a\xffb\n"})
		if e.Line != "a\ufffdb" {
			t.Errorf("%s: got %q", w, e.Line)
		}
	}
}

func TestLongLevelNameIsRefused(t *testing.T) {
	_, err := New(Config{URL: "http://x", Labels: map[string]string{"a": "b"}, LevelName: strings.Repeat("l", 2000)})
	if err == nil || !strings.Contains(err.Error(), "level_name") || !strings.Contains(err.Error(), "2000 bytes") {
		t.Errorf("got %v", err)
	}
}
