package falls_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/golang/snappy"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/loki"
)

// A reply is the answer to one push. A body that is cut ends in an error.
type reply struct {
	status int
	text   string
	cut    bool
	closed bool // it ends with the connection, so that nobody knows whether it is whole
}

var stored = reply{status: http.StatusNoContent}

// A lokiServer is a Loki that answers each push as a script says, without a network.
type lokiServer struct {
	// answer is given the body of a push, before compression.
	answer func(ctx context.Context, body string) (reply, error)
}

// RoundTrip answers a push.
func (s *lokiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	raw, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil {
		return nil, err
	}
	if r.Header.Get("Content-Type") == "application/x-protobuf" {
		if raw, err = snappy.Decode(nil, raw); err != nil {
			return &http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
		}
	}
	a, err := s.answer(r.Context(), string(raw))
	if err != nil {
		return nil, err
	}
	body := io.Reader(strings.NewReader(a.text))
	if a.cut {
		body = io.MultiReader(body, cutBody{})
	}
	res := &http.Response{StatusCode: a.status, ProtoMajor: 1, Header: http.Header{}, Body: io.NopCloser(body), ContentLength: int64(len(a.text)), Request: r}
	if a.closed {
		res.ContentLength = -1
	}
	return res, nil
}

// A cutBody is the end of a body whose connection is lost.
type cutBody struct{}

func (cutBody) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

var lineNumber = regexp.MustCompile(`line-(\d+)-`)

// lines returns the numbers of the lines in the body of a push, in either form.
func lines(body string) (out []int) {
	for _, f := range lineNumber.FindAllStringSubmatch(body, -1) {
		n, _ := strconv.Atoi(f[1])
		out = append(out, n)
	}
	return out
}

// takes returns a Loki that stores everything in b.
func takes(b *book) *lokiServer {
	return &lokiServer{func(_ context.Context, body string) (reply, error) {
		b.add(lines(body)...)
		return stored, nil
	}}
}

// lokiDown is a Loki that is not there.
var lokiDown = &lokiServer{func(context.Context, string) (reply, error) { return reply{}, errDown }}

func lokiConfig(at *lokiServer, set func(c *loki.Config)) loki.Config {
	c := loki.Config{
		URL: "http://loki", Client: &http.Client{Transport: at}, Labels: map[string]string{"app": "falls"},
		BatchAge: 10 * time.Millisecond, WhenFull: "block",
		Retry:   &deliver.RetryOptions{Min: time.Millisecond, Max: 100 * time.Millisecond},
		OnError: func(batch.Event) {},
	}
	if set != nil {
		set(&c)
	}
	return c
}

// lokiSink opens a Sink and a log in front of it. The Sink is closed at the end of
// the test, unless the script has closed it.
func lokiSink(tb TB, at *lokiServer, set func(c *loki.Config)) (*loki.Sink, *slog.Logger) {
	tb.Helper()
	s, err := loki.New(lokiConfig(at, set))
	if err != nil {
		tb.Broken("%v", err)
	}
	tb.Cleanup(func() { closeSoon(s.Shutdown) })
	r, err := forebay.NewRouter(forebay.Route(s.Encoder(), forebay.Output(slog.LevelDebug, s)))
	if err != nil {
		tb.Broken("%v", err)
	}
	return s, slog.New(r)
}

// lokiHandler opens a Handler. It is closed at the end of the test.
func lokiHandler(tb TB, at *lokiServer, set func(c *loki.Config), opts ...forebay.Option) *loki.Handler {
	tb.Helper()
	h, err := loki.NewHandler(lokiConfig(at, set), opts...)
	if err != nil {
		tb.Broken("%v", err)
	}
	tb.Cleanup(func() { closeSoon(h.Close) })
	return h
}

// closeSoon gives a Close a second.
func closeSoon(end func(context.Context) (batch.Report, error)) {
	ctx, cancel := context.WithTimeout(background, time.Second)
	defer cancel()
	_, _ = end(ctx)
}

// line returns the text of the line with that number.
func line(n int) string { return "line-" + strconv.Itoa(n) + "-" }

// write logs the lines from to to.
func write(log *slog.Logger, from, to int, attrs ...any) {
	for n := from; n <= to; n++ {
		log.Info(line(n), attrs...)
	}
}
