package loki

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/bubble"
)

// Each option and key of serilog-sinks-grafana-loki in docs/MIGRATING-loki.md has the documented
// effect.
func TestSerilogOptionsAsInMigrationGuide(t *testing.T) {
	err := fmt.Errorf("outer: %w", io.EOF)
	// The function entry encodes one record. It returns the line, the metadata, and the labels of
	// the stream.
	entry := func(t *testing.T, c Config, message string, attrs ...slog.Attr) (gotEntry, string) {
		t.Helper()
		return encodeOne(t, c, encode.Record{Level: slog.LevelWarn, Message: message, Attrs: attrs})
	}
	line := func(want string, c Config, attrs ...slog.Attr) func(*testing.T) {
		return func(t *testing.T) {
			if got, _ := entry(t, c, "m", attrs...); got.Line != want {
				t.Errorf("got %s, want %s", got.Line, want)
			}
		}
	}
	labels := func(want string, c Config, attrs ...slog.Attr) func(*testing.T) {
		return func(t *testing.T) {
			if _, got := entry(t, c, "m", attrs...); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	}
	traced := func(t *testing.T) {
		c := Config{TraceIDKey: "TraceId", SpanIDKey: "SpanId", TraceID: "metadata", SpanID: "none"}
		got, _ := entry(t, c, "m", slog.String("TraceId", "1"), slog.String("SpanId", "2"))
		if got.Line != `{"msg":"m"}` || len(got.Meta) != 1 || got.Meta["TraceId"] != "1" {
			t.Errorf("got %+v", got)
		}
	}
	// The function header returns the HTTP header of a push.
	header := func(t *testing.T, c Config) http.Header {
		t.Helper()
		p := new(peer)
		s := sinkFor(t, p, c)
		if err := (&encoded{t: t, s: s}).add(nil, encode.Record{Time: time.Now(), Message: "m"}).send(); err != nil {
			t.Fatal(err)
		}
		return p.requests()[0].header
	}
	// The function throughWith logs records with a handler in a synctest bubble.
	throughWith := func(opts []any, c Config, answer func(int, *request) (int, string, http.Header), f func(*testing.T, *handler, *peer)) func(*testing.T) {
		return func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p := &peer{answer: answer}
				h := handlerFor(t, p, c, opts...)
				f(t, h, p)
				h.Close(context.Background())
			})
		}
	}
	through := func(c Config, answer func(int, *request) (int, string, http.Header), f func(*testing.T, *handler, *peer)) func(*testing.T) {
		return throughWith(nil, c, answer, f)
	}
	age := through(Config{BatchAge: 3 * time.Second}, nil, func(t *testing.T, h *handler, p *peer) {
		slog.New(h).Info("m")
		time.Sleep(3*time.Second - 1)
		synctest.Wait()
		if n := len(p.lines()); n != 0 {
			t.Errorf("%d records were sent before BatchAge", n)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if n := len(p.lines()); n != 1 {
			t.Errorf("%d records were sent after BatchAge", n)
		}
	})
	exceptions := line(`{"msg":"m","Exception":{"Type":"*fmt.wrapError","Message":"outer: EOF","InnerException":{"Type":"*errors.errorString","Message":"EOF"}},`+
		`"all":{"Type":"*errors.joinError","Message":"EOF\nx","InnerExceptions":[{"Type":"*errors.errorString","Message":"EOF"},{"Type":"*errors.errorString","Message":"x"}]}}`,
		Config{Line: Line{Errors: "exception"}}, slog.Any("Exception", err), slog.Any("all", errors.Join(io.EOF, errors.New("x"))))
	client := func(t *testing.T) {
		var asked string
		stored := transportFunc(func(r *http.Request) (*http.Response, error) {
			asked = r.URL.String()
			return stored204{}.RoundTrip(r)
		})
		s := sinkFor(t, nil, Config{HTTP: httpclient.Options{Client: &http.Client{Transport: stored}}})
		if err := (&encoded{t: t, s: s}).add(nil, encode.Record{Time: time.Now(), Message: "m"}).send(); err != nil || asked != "http://loki.test:3100/loki/api/v1/push" {
			t.Errorf("%v, asked for %s", err, asked)
		}
	}

	tests := map[string]func(*testing.T){
		"uri": func(t *testing.T) {
			if u, why := endpoint("https://h/prefix"); why != "" || u.String() != "https://h/prefix/loki/api/v1/push" {
				t.Errorf("%v %s", u, why)
			}
		},
		"labels":             labels(`{app="x", level="warn"}`, Config{Labels: map[string]string{"app": "x"}}),
		"propertiesAsLabels": labels(`{app="test", level="warn", region="eu"}`, Config{LabelAttrs: []string{"region"}}, slog.String("region", "eu")),
		"propertiesAsStructuredMetadata": func(t *testing.T) {
			for _, c := range []Config{{MetadataAttrs: []string{"user"}}, {MetadataAll: true}} {
				if got, _ := entry(t, c, "m", slog.Int("user", 7)); got.Meta["user"] != "7" || got.Line != `{"msg":"m","user":7}` {
					t.Errorf("got %+v", got)
				}
			}
		},
		"handleLogLevelAsLabel": line(`{"msg":"m","level":"warn"}`, Config{NoLevelLabel: true}),
		"traceIdMode":           traced,
		"spanIdMode":            traced,
		"Activity.Current": throughWith([]any{forebay.Context(traceOf)}, Config{TraceIDKey: "TraceId", SpanIDKey: "SpanId"}, nil, func(t *testing.T, h *handler, p *peer) {
			slog.New(h).InfoContext(context.WithValue(t.Context(), traceKey{}, "7"), "m")
			if err := h.Flush(context.Background()); err != nil || !slices.Equal(p.lines(), []string{`{"msg":"m","TraceId":"7","SpanId":"s-7"}`}) {
				t.Errorf("%v %q", err, p.lines())
			}
		}),
		"credentials": func(t *testing.T) {
			if got := header(t, Config{HTTP: httpclient.Options{Username: "u", Password: "p"}}).Get("Authorization"); got != "Basic dTpw" {
				t.Error(got)
			}
		},
		"tenant": func(t *testing.T) {
			if got := header(t, Config{Tenant: "t"}).Get("X-Scope-OrgID"); got != "t" {
				t.Error(got)
			}
		},
		"restrictedToMinimumLevel": func(t *testing.T) {
			var level slog.LevelVar
			level.Set(slog.LevelError)
			throughWith([]any{&level}, Config{}, nil, func(t *testing.T, h *handler, p *peer) {
				slog.New(h).Warn("not this")
				level.Set(slog.LevelDebug)
				slog.New(h).Debug("this")
				if err := h.Flush(context.Background()); err != nil || len(p.lines()) != 1 {
					t.Errorf("%v %q", err, p.lines())
				}
			})(t)
		},
		"batchSizeLimit": through(Config{BatchRecords: 10, BatchAge: time.Hour}, nil, func(t *testing.T, h *handler, p *peer) {
			for range 100 {
				slog.New(h).Info("m")
			}
			synctest.Wait()
			for _, r := range p.requests() {
				if n := len(r.streams[0].Entries); n > 10 {
					t.Errorf("%d records in a request", n)
				}
			}
			if len(p.lines()) < 50 {
				t.Errorf("%d records were sent", len(p.lines()))
			}
		}),
		"period":                age,
		"eagerlyEmitFirstEvent": age,
		"queueLimit": throughWith([]any{forebay.WhenFull("drop-newest"), forebay.Delivery(func(o *deliver.OutputOptions) { o.BufferRecords = 100 })}, Config{}, func(int, *request) (int, string, http.Header) { return 0, "down", nil },
			func(t *testing.T, h *handler, _ *peer) {
				for range 1000 {
					slog.New(h).Info(strings.Repeat("x", 500))
				}
				if n := h.Sink.Account().Dropped[batch.Full]; n < 900 || n > 920 {
					t.Errorf("%d of 1000 records were dropped, with memory for 100", n)
				}
			}),
		"retryTimeLimit": throughWith([]any{forebay.Delivery(func(o *deliver.OutputOptions) { o.Deliver.Retry = &deliver.RetryOptions{MaxAge: 10 * time.Minute} })}, Config{}, func(int, *request) (int, string, http.Header) { return 503, "down", nil },
			func(t *testing.T, h *handler, _ *peer) {
				slog.New(h).Info("m")
				time.Sleep(9 * time.Minute)
				if a := h.Sink.Account(); a.Dropped.Total() != 0 {
					t.Errorf("after 9 minutes: %v", a)
				}
				time.Sleep(2 * time.Minute)
				if a := h.Sink.Account(); a.Dropped[batch.Expired] != 1 {
					t.Errorf("after 11 minutes: %v", a)
				}
			}),
		"textFormatter": func(t *testing.T) {
			line(`{"level":"WARN","text":"m"}`, Config{Line: Line{Formatter: encode.JSON(&encode.Options{TimeKey: "-", MessageKey: "text"})}})(t)
			line(`msg=m n=1`, Config{Line: Line{Body: "logfmt"}}, slog.Int("n", 1))(t)
		},
		"exceptionFormatter": func(t *testing.T) {
			exceptions(t)
			line(`{"msg":"m","err":{"code":7}}`, Config{}, slog.Any("err", valuedError{}))(t)
		},
		"httpClient":         client,
		"httpMessageHandler": client,
		"TimeProvider": func(t *testing.T) {
			at := time.Now().Add(-time.Hour)
			if got, _ := encodeOne(t, Config{}, encode.Record{Time: at, Message: "m"}); !got.Time.Equal(at) {
				t.Errorf("got %v, want %v", got.Time, at)
			}
		},
		"Message": line(`{"Message":"m"}`, Config{Line: Line{MessageKey: "Message"}}),
		"MessageTemplate": func(t *testing.T) {
			if got, _ := entry(t, Config{}, "User {UserId}", slog.Int("UserId", 7)); got.Line != `{"msg":"User {UserId}","UserId":7}` {
				t.Error(got.Line)
			}
		},
		"Exception":       exceptions,
		"InnerException":  exceptions,
		"InnerExceptions": exceptions,
		"_Message":        line(`{"Message":"m","_Message":1}`, Config{Line: Line{MessageKey: "Message", Collisions: "prefix"}}, slog.Int("Message", 1)),
	}

	page, fault := os.ReadFile("../docs/MIGRATING-loki.md")
	if fault != nil {
		t.Fatal(fault)
	}
	_, section, _ := strings.Cut(string(page), "## serilog-sinks-grafana-loki")
	section, _, _ = strings.Cut(section, "\n## ")
	named := map[string]bool{}
	for row := range strings.Lines(section) {
		first, _, ok := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		if !ok || !strings.HasPrefix(row, "| `") {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(first, -1) {
			named[m[1]] = true
			if tests[m[1]] == nil {
				t.Errorf("the page lists %s, which no test covers", m[1])
			}
		}
	}
	for name, f := range tests {
		if !named[name] {
			t.Errorf("the page does not list %s", name)
		}
		t.Run(name, f)
	}
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A valuedError is an error that is also a LogValuer, so it is logged as a group.
type valuedError struct{}

func (valuedError) Error() string        { return "text" }
func (valuedError) LogValue() slog.Value { return slog.GroupValue(slog.Int("code", 7)) }
