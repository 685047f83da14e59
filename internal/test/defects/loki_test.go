package defects_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/loki"
	"github.com/forebay-log/forebay/slab"
)

// A reply is the answer to one push.
type reply struct {
	status int
	text   string
	cut    bool // the body ends with an error
	closed bool // the body has no length and ends with the connection, so the client cannot detect that it is incomplete
}

var stored = reply{status: http.StatusNoContent}

// A lokiServer answers pushes like Loki, with a function instead of a network.
type lokiServer struct {
	// answer receives the uncompressed body of a push.
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

// A cutBody is the rest of a body whose connection was lost. Reading it fails.
type cutBody struct{}

func (cutBody) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

var lineNumber = regexp.MustCompile(`line-(\d+)-`)

// lines returns the numbers of the lines in the body of a push, protobuf or JSON.
func lines(body string) (out []int) {
	for _, f := range lineNumber.FindAllStringSubmatch(body, -1) {
		n, _ := strconv.Atoi(f[1])
		out = append(out, n)
	}
	return out
}

// storing returns a Loki that stores every line in b.
func storing(b *received) *lokiServer {
	return &lokiServer{func(_ context.Context, body string) (reply, error) {
		b.add(lines(body)...)
		return stored, nil
	}}
}

// lokiDown is a Loki that refuses connections.
var lokiDown = &lokiServer{func(context.Context, string) (reply, error) { return reply{}, errDown }}

// A lokiOutput is the configuration of a Loki driver and of its delivery.
type lokiOutput struct {
	loki.Config
	deliver.OutputOptions
}

// openLoki opens an output to the given server.
func openLoki(tb testing.TB, at *lokiServer, set func(c *lokiOutput)) (*deliver.Output, *loki.Driver) {
	tb.Helper()
	c := lokiOutput{Config: loki.Config{
		URL:      "http://loki",
		Labels:   map[string]string{"app": "defects"},
		BatchAge: 10 * time.Millisecond,
		HTTP:     httpclient.Options{Client: &http.Client{Transport: at}},
	}}
	c.Slab.WhenFull, c.OnError = slab.Block(), func(batch.Event) {}
	c.Deliver.Retry = &deliver.RetryOptions{Min: time.Millisecond, Max: 100 * time.Millisecond}
	if set != nil {
		set(&c)
	}
	d, err := loki.New(c.Config)
	if err != nil {
		tb.Fatalf("cannot run the test: %v", err)
	}
	out, err := forebay.Open(forebay.To(d, forebay.Delivery(func(o *deliver.OutputOptions) { *o = c.OutputOptions })))
	if err != nil {
		tb.Fatalf("cannot run the test: %v", err)
	}
	return out, d
}

// A lokiLog is an open output to Loki.
type lokiLog struct {
	*deliver.Output
	Driver *loki.Driver
}

// lokiSink opens an output and a Logger for it. The output is closed at the end of the test.
func lokiSink(tb testing.TB, at *lokiServer, set func(c *lokiOutput)) (*lokiLog, *slog.Logger) {
	tb.Helper()
	out, d := openLoki(tb, at, set)
	s := &lokiLog{out, d}
	tb.Cleanup(func() { closeSoon(s.Shutdown) })
	r, err := forebay.NewRouter(forebay.Route(d.Encoder(), forebay.Writer(s, forebay.Level(slog.LevelDebug))))
	if err != nil {
		tb.Fatalf("cannot run the test: %v", err)
	}
	return s, slog.New(r)
}

// A lokiRouter is a Router with one output to Loki.
type lokiRouter struct {
	*forebay.Router
	Sink *lokiLog
}

func (h *lokiRouter) Close(ctx context.Context) (batch.Report, error) {
	rep, err := h.Router.Close(ctx)
	return rep.Outputs[0].Report, err
}

// lokiHandler opens a lokiRouter, which is closed at the end of the test.
func lokiHandler(tb testing.TB, at *lokiServer, set func(c *lokiOutput), opts ...forebay.Option) *lokiRouter {
	tb.Helper()
	out, d := openLoki(tb, at, set)
	onError := func(batch.Event) {}
	if set != nil {
		var c lokiOutput
		if set(&c); c.OnError != nil {
			onError = c.OnError
		}
	}
	opts = append(opts, forebay.OnError(onError), forebay.Route(d.Encoder(), forebay.Writer(out, forebay.CloseWriter())))
	r, err := forebay.NewRouter(opts...)
	if err != nil {
		tb.Fatalf("cannot run the test: %v", err)
	}
	h := &lokiRouter{r, &lokiLog{out, d}}
	tb.Cleanup(func() { closeSoon(h.Close) })
	return h
}

// closeSoon calls the function end, which closes an output, with a deadline of one second.
func closeSoon(end func(context.Context) (batch.Report, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = end(ctx)
}

// line returns the text of line n.
func line(n int) string { return "line-" + strconv.Itoa(n) + "-" }

// write calls log for each line number from first to last.
func write(log *slog.Logger, first, last int, attrs ...any) {
	for n := first; n <= last; n++ {
		log.Info(line(n), attrs...)
	}
}
