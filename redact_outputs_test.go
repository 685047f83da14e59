package forebay_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang/snappy"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/file"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/httpsink"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/loki"
	"github.com/forebay-log/forebay/netsink"
	"github.com/forebay-log/forebay/otlp"
)

// A captured collects the bytes that one output writes.
type captured struct {
	mu  sync.Mutex
	got []byte
}

func (b *captured) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, p...)
	return len(p), nil
}

// addFiles adds the files in a directory.
func (b *captured) addFiles(t *testing.T, dir string) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		_, _ = fmt.Fprintf(b, "%s\n%s\n", path, content)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A conn is a net.Conn. It also passes the written bytes to a captured.
type conn struct {
	net.Conn
	to *captured
}

func (c conn) Write(p []byte) (int, error) {
	_, _ = c.to.Write(p)
	return c.Conn.Write(p)
}

// errDown is the error of destinations that are down.
var errDown = errors.New("it is down")

// A searchedOutput is an output whose bytes are searched for the secret.
type searchedOutput struct {
	name   string
	open   func(t *testing.T, b *captured) (encode.Encoder, forebay.OutputSpec)
	before func(t *testing.T, b *captured) // called before Close of the Router; may be nil
	after  func(t *testing.T, b *captured) // called after Close of the Router; may be nil
}

// fewRetries are options that give up after a short time.
var fewRetries = deliver.Options{
	Retry:   &deliver.RetryOptions{Min: time.Second, Max: 10 * time.Second},
	Breaker: &deliver.BreakerOptions{Failures: 1, OpenMin: time.Second},
}

// searchedOutputs returns outputs of all kinds. onEvent receives their events.
func searchedOutputs(t *testing.T, onEvent func(batch.Event)) []searchedOutput {
	dirs := map[string]string{}
	dir := func(name string) string {
		if dirs[name] == "" {
			dirs[name] = t.TempDir()
		}
		return dirs[name]
	}
	output := func(t *testing.T, dest deliver.Destination, o deliver.OutputOptions) *deliver.Output {
		o.OnError, o.CloseTimeout = onEvent, time.Second
		if o.Codec == nil {
			o.Codec = encode.JSON(nil).Codec()
		}
		if o.Deliver.Retry == nil {
			o.Deliver.Retry, o.Deliver.Breaker = fewRetries.Retry, fewRetries.Breaker
		}
		w, err := deliver.NewOutput(dest, &o)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	answering := func(o batch.Outcome) deliver.Destination {
		return deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome { return o })
	}
	catchFiles := func(what string) func(t *testing.T, b *captured) {
		return func(t *testing.T, b *captured) { b.addFiles(t, dir(what)) }
	}
	lokiConfig := func() loki.Config {
		return loki.Config{
			URL:         "http://loki.test",
			Labels:      map[string]string{"app": "x"},
			LabelAttrs:  []string{"v", "label"},
			MetadataAll: true,
			TenantAttr:  "tenant",
			Limits:      loki.Limits{MaxStreams: 1 << 20},
		}
	}
	// toLoki returns a Loki output for c. set changes the options of delivery.
	toLoki := func(t *testing.T, c loki.Config, set func(o *deliver.OutputOptions)) (encode.Encoder, forebay.OutputSpec) {
		d, err := loki.New(c)
		if err != nil {
			t.Fatal(err)
		}
		o := deliver.OutputOptions{Codec: d.Encoder().Codec(), Deliver: fewRetries}
		set(&o)
		return d.Encoder(), forebay.Writer(output(t, d, o), forebay.CloseWriter())
	}
	// recordingClient returns an HTTP client that collects the requests and returns the results of
	// answer.
	recordingClient := func(t *testing.T, b *captured, answer func(body []byte) string) *http.Client {
		return &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			z, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Error(err)
				return nil, err
			}
			body, err := io.ReadAll(z)
			if err != nil {
				t.Error(err)
			}
			_, _ = fmt.Fprintf(b, "%s %v\n%s\n", r.URL, r.Header, body)
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(answer(body))), Request: r}, nil
		})}
	}
	hungUp := make(chan struct{})
	searchedOutputs := []searchedOutput{
		{name: "console", open: func(t *testing.T, b *captured) (encode.Encoder, forebay.OutputSpec) {
			return encode.Console(nil), forebay.Writer(b, forebay.Direct())
		}},
		{name: "file", after: catchFiles("file"), open: func(t *testing.T, b *captured) (encode.Encoder, forebay.OutputSpec) {
			f, err := file.Open(filepath.Join(dir("file"), "app.log"), nil)
			if err != nil {
				t.Fatal(err)
			}
			return encode.Logfmt(nil), forebay.Writer(output(t, deliver.ToWriteCloser(f), deliver.OutputOptions{Codec: encode.Logfmt(nil).Codec()}), forebay.CloseWriter())
		}},
		{name: "tcp", open: func(t *testing.T, b *captured) (encode.Encoder, forebay.OutputSpec) {
			d, err := netsink.New(netsink.Config{Address: "tcp://peer:1", Dial: func(context.Context, string, string) (net.Conn, error) {
				client, server := net.Pipe()
				go func() {
					defer close(hungUp)
					_, _ = io.Copy(b, server)
					server.Close()
				}()
				return client, nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			return encode.JSON(nil), forebay.Writer(output(t, d, deliver.OutputOptions{}), forebay.CloseWriter())
		}, after: func(*testing.T, *captured) { <-hungUp }},
		{name: "Forward", open: func(t *testing.T, b *captured) (encode.Encoder, forebay.OutputSpec) {
			peer := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
				for {
					m, err := c.Next()
					if err != nil {
						return
					}
					_ = c.Ack(m.Chunk)
				}
			}}
			t.Cleanup(peer.Close)
			d, err := fluent.New(fluent.Config{
				Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
					c, err := peer.Dial(ctx, network, address)
					return conn{c, b}, err
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			enc, err := fluent.NewEncoder(&fluent.EncoderOptions{TagKey: "tag"})
			if err != nil {
				t.Fatal(err)
			}
			return enc, forebay.Writer(output(t, d, deliver.OutputOptions{Codec: fluent.Codec()}), forebay.CloseWriter())
		}},
		{name: "Loki", open: func(t *testing.T, b *captured) (encode.Encoder, forebay.OutputSpec) {
			c := lokiConfig()
			c.HTTP.Client = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				body, err := io.ReadAll(r.Body)
				if r.Header.Get("Content-Type") == "application/x-protobuf" && err == nil {
					body, err = snappy.Decode(nil, body)
				} else if r.Header.Get("Content-Encoding") == "gzip" && err == nil {
					if z, e := gzip.NewReader(bytes.NewReader(body)); e == nil {
						body, err = io.ReadAll(z)
					}
				}
				if err != nil {
					t.Error(err)
				}
				_, _ = fmt.Fprintf(b, "%s %v\n%s\n", r.URL, r.Header, body)
				return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
			})}
			return toLoki(t, c, func(*deliver.OutputOptions) {})
		}},
		{name: "OTLP", open: func(t *testing.T, b *captured) (encode.Encoder, forebay.OutputSpec) {
			x, err := otlp.New(otlp.Config{URL: "http://otel.test", AddSource: true, HTTP: httpclient.Options{Client: recordingClient(t, b, func([]byte) string { return "" })}})
			if err != nil {
				t.Fatal(err)
			}
			return x.Encoder(), forebay.Writer(output(t, x, deliver.OutputOptions{Codec: x.Encoder().Codec()}), forebay.CloseWriter())
		}},
		{name: "HTTP", open: func(t *testing.T, b *captured) (encode.Encoder, forebay.OutputSpec) {
			d, err := httpsink.New(httpsink.Config{URL: "http://splunk.test", API: "hec", HEC: map[string]string{"index": "main"}, HTTP: httpclient.Options{Client: recordingClient(t, b, func([]byte) string { return `{"code":0}` })}})
			if err != nil {
				t.Fatal(err)
			}
			return encode.JSON(nil), forebay.Writer(output(t, d, deliver.OutputOptions{}), forebay.CloseWriter())
		}},
		{name: "Elasticsearch that refuses what it repeats", after: catchFiles("elastic"), open: func(t *testing.T, b *captured) (encode.Encoder, forebay.OutputSpec) {
			d, err := httpsink.New(httpsink.Config{
				URL: "http://elastic.test/x",
				API: "elasticsearch",
				HTTP: httpclient.Options{Client: recordingClient(t, b, func(body []byte) string {
					items := []string{}
					for line := range bytes.Lines(body) {
						if !bytes.HasPrefix(line, []byte(`{"create"`)) {
							reason, _ := json.Marshal("failed to parse " + string(line))
							items = append(items, `{"create":{"status":400,"error":{"type":"document_parsing_exception","reason":`+string(reason)+`}}}`)
						}
					}
					return `{"errors":true,"items":[` + strings.Join(items, ",") + `]}`
				})},
			})
			if err != nil {
				t.Fatal(err)
			}
			return encode.JSON(nil), forebay.Writer(output(t, d, deliver.OutputOptions{DeadLetterFile: filepath.Join(dir("elastic"), "f")}), forebay.CloseWriter())
		}},
		{name: "Loki that is down", after: catchFiles("loki"), open: func(t *testing.T, b *captured) (encode.Encoder, forebay.OutputSpec) {
			c := lokiConfig()
			c.HTTP.Client = &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) { return nil, errDown })}
			return toLoki(t, c, func(o *deliver.OutputOptions) { o.SpoolDir = filepath.Join(dir("loki"), "spool") })
		}},
		{name: "Forward that is down", after: catchFiles("forward"), open: func(t *testing.T, b *captured) (encode.Encoder, forebay.OutputSpec) {
			d, err := fluent.New(fluent.Config{
				Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errDown },
			})
			if err != nil {
				t.Fatal(err)
			}
			return d.Encoder(), forebay.Writer(output(t, d, deliver.OutputOptions{
				Codec: fluent.Codec(), FallbackFile: filepath.Join(dir("forward"), "fallback"), Deliver: fewRetries,
			}), forebay.CloseWriter())
		}},
		{name: "spool", after: catchFiles("spool"), open: func(t *testing.T, b *captured) (encode.Encoder, forebay.OutputSpec) {
			return encode.JSON(nil), forebay.Writer(output(t, answering(batch.FailedOutcome(errDown)), deliver.OutputOptions{SpoolDir: dir("spool")}), forebay.CloseWriter())
		}},
		{name: "fallback file", after: catchFiles("fallback"), open: func(t *testing.T, b *captured) (encode.Encoder, forebay.OutputSpec) {
			return encode.JSON(nil), forebay.Writer(output(t, answering(batch.FailedOutcome(errDown)),
				deliver.OutputOptions{FallbackFile: filepath.Join(dir("fallback"), "f")}), forebay.CloseWriter())
		}},
		{name: "dead letters", after: catchFiles("dead"), open: func(t *testing.T, b *captured) (encode.Encoder, forebay.OutputSpec) {
			return encode.JSON(nil), forebay.Writer(output(t, answering(batch.Outcome{Refused: batch.All(), Refusal: errors.New("never")}),
				deliver.OutputOptions{DeadLetterFile: filepath.Join(dir("dead"), "f")}), forebay.CloseWriter())
		}},
		{name: "encoder that fails", open: func(t *testing.T, b *captured) (encode.Encoder, forebay.OutputSpec) {
			c := lokiConfig()
			c.Limits.MaxStreams, c.Limits.LongLines, c.Limits.MaxLine = 10, "refuse", 64
			c.HTTP.Client = &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) { return nil, errDown })}
			return toLoki(t, c, func(o *deliver.OutputOptions) { o.DeadLetterFile = filepath.Join(dir("fails"), "f") })
		}, after: catchFiles("fails")},
	}
	if runtime.GOOS == "linux" || runtime.GOOS == "darwin" {
		release := make(chan struct{})
		searchedOutputs = append(searchedOutputs, searchedOutput{name: "crash-safe file", before: func(t *testing.T, b *captured) {
			b.addFiles(t, dir("crash"))
			close(release)
		}, open: func(t *testing.T, b *captured) (encode.Encoder, forebay.OutputSpec) {
			hangs := deliver.SendFunc(deliver.Traits{}, func(ctx context.Context, _ *batch.Batch) batch.Outcome {
				select {
				case <-release:
				case <-ctx.Done():
				}
				return batch.FailedOutcome(ctx.Err())
			})
			return encode.JSON(nil), forebay.Writer(output(t, hangs, deliver.OutputOptions{CrashDir: dir("crash")}), forebay.CloseWriter())
		}})
	}
	return searchedOutputs
}

// A roundTrip is a function that implements http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// logSecrets logs a secret in every position of a record. With byKey, it logs only the positions in
// which a rule by key finds the secret.
func logSecrets(r *forebay.Router, byKey bool) {
	log := slog.New(r)
	secretAttr := func(v any) slog.Attr {
		if byKey {
			return slog.Group("x", slog.Any("password", v))
		}
		return slog.Any("v", v)
	}
	for _, p := range positions {
		if p.name == "request" || p.name == "methods that panic" {
			continue // "request" is very long, and "methods that panic" is logged below
		}
		for _, w := range ways[:4] {
			if !byKey || p.key {
				w.log(log, p.value(secret))
			}
		}
		log.Info("m", secretAttr(p.value(secret)))
		r.Logger().With(secretAttr(p.value(secret))).WithGroup("g").Info("m", slog.Int("n", 1))
	}
	log.WithGroup("password").With("a", secret).WithGroup("b").Info("m", "c", secret)
	log.Info(`got {"password":"` + secret + `"}`)
	ctx := context.WithValue(context.Background(), ctxKey{}, secret)
	log.InfoContext(ctx, "m")
	r.Logger().WithContext(ctx).Info("m")
	in := r.Logger().WithGroup("g").With(secretAttr(secret)).WithGroup("h").With(secretAttr(plainUser{"bob", secret}))
	in.InfoContext(ctx, "m", secretAttr(secret))
	in.WithContext(ctx).Named("n").Info("m", secretAttr(secret))
	in.Named("n").WithGroup("password").With(slog.String("a", secret)).Info("m", slog.String("b", secret))
	if !byKey {
		log.Info("message with "+secret, "label", secret, "tenant", secret, "tag", secret)
		log.With("label", secret, "tenant", "t|"+secret).Info("m") // "|" is not allowed in the name of a tenant
		log.Info("m", secret, 1, slog.Group(secret, slog.Int("a", 1)))
		log.WithGroup(secret).Info("m", "a", 1)
		r.Logger().WithGroup(secret).With(slog.Int("a", 1)).Named(secret).InfoContext(ctx, "m", slog.Int("b", 1))
		log.Info("m", "v", panicky{secret})
		log.Info(strings.Repeat("long ", 1000) + secret)
		log.InfoContext(context.WithValue(ctx, panicKey{}, true), "m")
	}
}

type ctxKey struct{}
type panicKey struct{}

func fromContext(ctx context.Context, dst []slog.Attr) []slog.Attr {
	s, _ := ctx.Value(ctxKey{}).(string)
	if ctx.Value(panicKey{}) != nil {
		panic("no " + s)
	}
	if s == "" {
		return dst
	}
	return append(dst, slog.Group("who", slog.String("password", s)))
}

// bytesOfOutputs logs secrets to all outputs. It returns the bytes written by each output. The key
// "reports" holds the events, the statistics and the errors.
func bytesOfOutputs(t *testing.T, byKey bool, opts ...forebay.Option) (all map[string]*captured) {
	bubble.Test(t, func(t *testing.T) { all = search(t, byKey, opts) })
	return all
}

func search(t *testing.T, byKey bool, opts []forebay.Option) map[string]*captured {
	reports := &captured{}
	onEvent := func(ev batch.Event) { _, _ = fmt.Fprintf(reports, "%s %+v\n", ev, ev) }
	all := map[string]*captured{"reports": reports}
	searchedOutputs := searchedOutputs(t, onEvent)
	opts = append(opts, forebay.OnError(onEvent), forebay.Context(fromContext))
	for _, s := range searchedOutputs {
		b := &captured{}
		all[s.name] = b
		enc, out := s.open(t, b)
		opts = append(opts, forebay.Route(enc, out))
	}
	r, err := forebay.NewRouter(opts...)
	if err != nil {
		t.Fatal(err)
	}
	logSecrets(r, byKey)
	for _, s := range searchedOutputs {
		if s.before != nil {
			s.before(t, all[s.name])
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rep, err := r.Close(ctx)
	_, _ = fmt.Fprintf(reports, "%+v %v\n", rep, err)
	js, _ := json.Marshal(r.Stats())
	_, _ = fmt.Fprintf(reports, "%+v %s\n", r.Stats(), js)
	for _, s := range searchedOutputs {
		if s.after != nil {
			s.after(t, all[s.name])
		}
	}
	return all
}

// TestRedactionSearch logs a secret in every position to every output. It searches all bytes that
// leave the process for the secret.
func TestRedactionSearch(t *testing.T) {
	bare := bytesOfOutputs(t, false)
	for name, b := range bare {
		if leak(b.got) == "" {
			t.Errorf("%s: without a rule there is no secret in %d bytes: the test proves nothing", name, len(b.got))
		}
	}
	look := func(what string, all map[string]*captured) {
		for name, b := range all {
			form := leak(b.got)
			if form == "" {
				continue
			}
			at := bytes.Index(b.got, []byte(form))
			t.Errorf("%s, %s: …%q…", what, name, b.got[max(0, at-200):min(len(b.got), at+100)])
		}
	}
	look("by pattern", bytesOfOutputs(t, false, forebay.RedactPattern(secretPattern)))
	look("by key", bytesOfOutputs(t, true, forebay.RedactKeys("password")))
	look("by path", bytesOfOutputs(t, true, forebay.RedactPaths("*.password", "password", "*.*.password", "*.*.*.password", "*.*.*.*.password", "*.*.*.*.*.password")))
	look("by function", bytesOfOutputs(t, false, forebay.ReplaceAttr(func(groups []string, a slog.Attr) slog.Attr {
		return slog.Any(secretPattern.ReplaceAllString(a.Key, "x"), fmt.Sprintf("%T", a.Value.Any()))
	}), forebay.RedactPattern(secretPattern)))
}
