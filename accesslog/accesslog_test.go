package accesslog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/forebaytest"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server with the middleware around h.
func serve(t *testing.T, log *slog.Logger, o *Options, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(New(log, o)(h))
	srv.Config.ErrorLog = quiet
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

var quiet = log.New(io.Discard, "", 0)

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// timeout limits the time to wait for events. It expires only if the test fails.
const timeout = time.Minute

func TestRequestIsLogged(t *testing.T) {
	rec := forebaytest.New(t)
	srv := serve(t, rec.Logger().Slog(), nil, func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/rewritten"
		w.Header().Set("X-Request-Id", "of the response")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "hello, ")
		w.Write([]byte("world"))
	})
	req, err := http.NewRequest("POST", srv.URL+"/a%20b?token=hunter2", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("User-Agent", "tester/1.0")
	req.Header.Set("X-Request-Id", "r-1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	r := rec.Wait(timeout, slog.LevelInfo, "request", "method", "POST", "path", "/a b", "status", 201, "bytes", 12,
		"request_id", "r-1", "user_agent", "tester/1.0")
	if host, _, err := net.SplitHostPort(r.Attrs["remote"].(string)); err != nil || host != "127.0.0.1" {
		t.Errorf("remote: %v", r.Attrs["remote"])
	}
	if d, ok := r.Attrs["duration"].(int64); !ok || d < 0 || len(r.Attrs) != 8 || strings.Contains(fmt.Sprint(r), "hunter2") {
		t.Error(r)
	}
}

func TestLevelFollowsStatus(t *testing.T) {
	rec := forebaytest.New(t)
	status := 0
	h := New(rec.Logger().Slog(), nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status != 0 {
			w.WriteHeader(status)
		}
	}))
	for _, c := range []struct {
		status, want int
		level        slog.Level
	}{
		{0, 200, slog.LevelInfo}, {204, 204, slog.LevelInfo}, {399, 399, slog.LevelInfo}, {400, 400, slog.LevelWarn},
		{499, 499, slog.LevelWarn}, {500, 500, slog.LevelError}, {599, 599, slog.LevelError}, {101, 101, slog.LevelInfo},
	} {
		status = c.status
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		rec.Want(c.level, "request", "status", c.want, "method", "GET", "path", "/", "bytes", 0)
	}
}

func TestOptionsSetLevelAndAttributes(t *testing.T) {
	rec := forebaytest.New(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "item") })
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	asked := 0
	h := New(rec.Logger().Slog(), &Options{
		Level: func(r *http.Request, status int) slog.Level {
			if r.URL.Path == "/healthz" {
				return slog.Level(math.MinInt) // below the level of every output
			}
			return slog.Level(status)
		},
		Attrs: func(r *http.Request) []slog.Attr {
			asked++
			return []slog.Attr{slog.String("route", r.Pattern), slog.String("id", r.PathValue("id"))}
		},
	})(mux)
	for _, path := range []string{"/items/7", "/healthz"} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
	}
	rec.Want(slog.Level(200), "request", "route", "GET /items/{id}", "id", "7")
	if n := len(rec.Records()); n != 1 || asked != 1 {
		t.Errorf("%d records, attributes of %d", n, asked)
	}
}

// A panic in Options.Level or Options.Attrs becomes an attribute. The request is still served and
// logged.
func TestPanicsOfOptionsBecomeAttributes(t *testing.T) {
	rec := forebaytest.New(t)
	h := New(rec.Logger().Slog(), &Options{
		Level: func(*http.Request, int) slog.Level { panic("level") },
		Attrs: func(*http.Request) []slog.Attr { panic("attrs") },
	})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	rec.Want(slog.LevelError, "request", "status", 200, "level_panic", "level", "attrs_panic", "attrs")
	if w.Body.String() != "ok" {
		t.Errorf("body %q", w.Body)
	}
}

// The record is logged with the context of the request, from which a function given to
// forebay.Context can add a trace id.
func TestRequestContextReachesTheHandler(t *testing.T) {
	type key struct{}
	rec := forebaytest.New(t)
	log, err := forebay.New(forebay.Writer(rec), forebay.Context(func(ctx context.Context, dst []slog.Attr) []slog.Attr {
		return append(dst, slog.Any("trace", ctx.Value(key{})))
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	h := New(log.Slog(), nil)(http.NotFoundHandler())
	r := httptest.NewRequest("GET", "/", nil)
	h.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithValue(r.Context(), key{}, "abc")))
	rec.Want(slog.LevelWarn, "request", "status", 404, "trace", "abc")
}

func TestRequestIDIsTakenFromTheResponse(t *testing.T) {
	rec := forebaytest.New(t)
	h := New(rec.Logger().Slog(), nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "made here")
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	rec.Want(slog.LevelInfo, "request", "request_id", "made here")
}

func TestNilLoggerDiscards(t *testing.T) {
	w := httptest.NewRecorder()
	New(nil, nil)(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("status %d", w.Code)
	}
}

// A panic of the handler is logged, and the server receives it with the same value.
func TestPanicIsLoggedAndContinues(t *testing.T) {
	fault := errors.New("no such table")
	for _, c := range []struct {
		name   string
		value  any
		writes bool
		level  slog.Level
		want   []any
		lacks  []string
	}{
		{"before the status", "oh no", false, slog.LevelError, []any{"panic", "oh no", "status", 500}, []string{"aborted"}},
		{"after the status", fault, true, slog.LevelError, []any{"panic", fault, "status", 202}, []string{"aborted"}},
		{"not comparable", []int{1}, false, slog.LevelError, []any{"panic", []int{1}, "status", 500}, []string{"aborted"}},
		{"abort", http.ErrAbortHandler, false, slog.LevelInfo, []any{"aborted", true}, []string{"panic", "status"}},
		{"abort after the status", http.ErrAbortHandler, true, slog.LevelInfo, []any{"aborted", true, "status", 202}, []string{"panic"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := forebaytest.New(t)
			h := New(rec.Logger().Slog(), nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if c.writes {
					w.WriteHeader(http.StatusAccepted)
				}
				panic(c.value)
			}))
			defer func() {
				if p := recover(); p == nil || !same(p, c.value) {
					t.Errorf("panic with %v", p)
				}
				r := rec.Want(c.level, "request", c.want...)
				for _, key := range c.lacks {
					if v, ok := r.Attrs[key]; ok {
						t.Errorf("%s=%v", key, v)
					}
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		})
	}
}

func same(a, b any) bool {
	if list, ok := a.([]int); ok {
		return &list[0] == &b.([]int)[0]
	}
	return a == b
}

func TestGoexitIsLogged(t *testing.T) {
	rec := forebaytest.New(t)
	h := New(rec.Logger().Slog(), nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runtime.Goexit() }))
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}()
	<-done
	if _, ok := rec.Want(slog.LevelInfo, "request", "path", "/").Attrs["status"]; ok {
		t.Error("a status that was never sent")
	}
}

// After a panic the server closes the connection, as it does without the middleware.
func TestServerSeesThePanic(t *testing.T) {
	rec, errs := forebaytest.New(t), forebaytest.New(t)
	srv := httptest.NewUnstartedServer(New(rec.Logger().Slog(), nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic("oh no")
	})))
	srv.Config.ErrorLog = slog.NewLogLogger(errs.Logger().Slog().Handler(), slog.LevelError)
	srv.Start()
	defer srv.Close()
	if _, err := http.Get(srv.URL); err == nil {
		t.Error("there is an answer")
	}
	rec.Wait(timeout, slog.LevelError, "request", "panic", "oh no")
	srv.Close() // waits until the connection is closed and its error is logged
	if got := errs.Records(); len(got) != 1 || !strings.Contains(got[0].Message, "oh no") || !strings.Contains(got[0].Message, "TestServerSeesThePanic.func1") {
		t.Errorf("the server logs %v", got)
	}
}

// The optional methods of the server's ResponseWriter work through type assertions and
// http.ResponseController.
func TestWriterKeepsOptionalMethods(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file.txt")
	if err := os.WriteFile(file, []byte(strings.Repeat("x", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		status  int
		want    []any
	}{
		{"Flusher", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "a")
			w.(http.Flusher).Flush()
			io.WriteString(w, "b")
		}, 200, []any{"status", 200, "bytes", 2}},
		{"flushed only", func(w http.ResponseWriter, r *http.Request) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			w.WriteHeader(500) // the status was already sent
		}, 200, []any{"status", 200, "bytes", 0}},
		{"deadline", func(w http.ResponseWriter, r *http.Request) {
			if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
		}, 200, []any{"status", 200}},
		{"ReaderFrom", func(w http.ResponseWriter, r *http.Request) {
			if _, ok := w.(io.ReaderFrom); !ok {
				t.Error("no io.ReaderFrom")
			}
			f, err := os.Open(file)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			io.Copy(w, f)
			w.WriteHeader(500) // the status was already sent
		}, 200, []any{"status", 200, "bytes", 5000}},
		{"an empty ReaderFrom", func(w http.ResponseWriter, r *http.Request) {
			io.Copy(w, strings.NewReader(""))
			w.WriteHeader(http.StatusGone)
		}, 410, []any{"status", 410, "bytes", 0}},
		{"Hijacker", func(w http.ResponseWriter, r *http.Request) {
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			rw.WriteString("HTTP/1.1 299 Own\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			rw.Flush()
		}, 299, []any{"hijacked", true, "bytes", 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := forebaytest.New(t)
			srv := serve(t, rec.Logger().Slog(), nil, c.handler)
			if status, _ := get(t, srv.URL); status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
			level := slog.LevelInfo
			if c.status >= 400 {
				level = slog.LevelWarn
			}
			r := rec.Wait(timeout, level, "request", c.want...)
			if _, ok := r.Attrs["status"]; ok == (c.name == "Hijacker") {
				t.Error(r)
			}
		})
	}
}

// If the server's ResponseWriter lacks an optional method, the same method of the handler's
// ResponseWriter returns an error.
func TestWriterWithoutOptionalMethods(t *testing.T) {
	rec := forebaytest.New(t)
	bare := struct{ http.ResponseWriter }{httptest.NewRecorder()}
	New(rec.Logger().Slog(), nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(w, strings.NewReader("abc")); n != 3 || err != nil {
			t.Errorf("io.Copy: %d, %v", n, err)
		}
		rc := http.NewResponseController(w)
		if err := rc.Flush(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Flush: %v", err)
		}
		if _, _, err := rc.Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Hijack: %v", err)
		}
	})).ServeHTTP(bare, httptest.NewRequest("GET", "/", nil))
	r := rec.Want(slog.LevelInfo, "request", "status", 200, "bytes", 3)
	if _, ok := r.Attrs["hijacked"]; ok {
		t.Error(r)
	}
}

// A nullWriter is a ResponseWriter that discards the response.
type nullWriter struct{ h http.Header }

func (w nullWriter) Header() http.Header       { return w.h }
func (nullWriter) Write(p []byte) (int, error) { return len(p), nil }
func (nullWriter) WriteHeader(int)             {}
func (nullWriter) Flush()                      {}
func (nullWriter) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(io.Discard, bufio.NewReader(r))
}

func TestRequestAllocations(t *testing.T) {
	race.Skip(t)
	log, err := forebay.NewRouter(forebay.Writer(io.Discard, forebay.Direct()))
	if err != nil {
		t.Fatal(err)
	}
	h := New(log.Logger().Slog(), nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) }))
	r := httptest.NewRequest("GET", "/x", nil)
	r.Header.Set("User-Agent", "tester")
	r.Header.Set("X-Request-Id", "r-1")
	w := nullWriter{http.Header{}}
	// The two allocations are the writer and the memory for attributes beyond the five that a
	// slog.Record holds.
	if n := allocs.PerRun(100, func() { h.ServeHTTP(w, r) }); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRequest(b *testing.B) {
	log, err := forebay.NewRouter(forebay.Writer(io.Discard, forebay.Direct()))
	if err != nil {
		b.Fatal(err)
	}
	h := New(log.Logger().Slog(), nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) }))
	r := httptest.NewRequest("GET", "/x", nil)
	w := nullWriter{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}
