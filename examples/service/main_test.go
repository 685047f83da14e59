package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/golang/snappy"
	"go.uber.org/goleak"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/forebaytest"
)

func TestMain(m *testing.M) {
	if os.Getenv("SHOP") != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

const (
	secret   = "hunter2"
	traceID1 = "4bf92f3577b34da6a3ce929d0e0e4736"

	// timeout limits how long a test waits for an event. Only a failing test waits that long.
	timeout = time.Minute
)

// fakeLoki is a server that accepts push requests of Loki, and rejects them while down is true.
type fakeLoki struct {
	*httptest.Server
	down atomic.Bool

	mu     sync.Mutex
	pushed strings.Builder
}

func newLoki(t *testing.T) *fakeLoki {
	l := &fakeLoki{}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			body, err = snappy.Decode(nil, body)
		}
		if err != nil {
			t.Error(err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.pushed.Write(body)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(l.Close)
	return l
}

// text returns the concatenated bodies of all push requests.
func (l *fakeLoki) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pushed.String()
}

// finish restarts the service until Loki has received text. It is needed because Close may time out
// on a very busy machine; the remaining records are then in the spool.
func (c config) finish(t *testing.T, l *fakeLoki, text string) {
	for !strings.Contains(l.text(), text) {
		c.file = filepath.Join(t.TempDir(), "again.log")
		_, stop := start(t, c, forebaytest.New(t))
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// A client sends requests to the service.
type client struct {
	t        *testing.T
	url, ops string // addresses of the service and of the pages for operators
}

// start runs the service in a goroutine. stop stops it and returns the error of run.
func start(t *testing.T, c config, rec *forebaytest.Recorder, more ...forebay.Option) (cl client, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, c, append(more, forebay.Writer(rec))...) }()
	listening := rec.Wait(timeout, slog.LevelInfo, "listening")
	return client{t, "http://" + listening.Attrs["addr"].(string), "http://" + listening.Attrs["ops"].(string)}, func() error {
		cancel()
		return <-ended
	}
}

func (c client) do(method, path, body string, header ...string) (status int, answer string) {
	c.t.Helper()
	return c.ask(c.url, method, path, body, header...)
}

func (c client) ask(url, method, path, body string, header ...string) (status int, answer string) {
	c.t.Helper()
	req, err := http.NewRequest(method, url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestServiceLogsToAllOutputs(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	rec, loki, dir := forebaytest.New(t), newLoki(t), t.TempDir()
	c := config{listen: "127.0.0.1:0", ops: "127.0.0.1:0", file: filepath.Join(dir, "shop.log"), loki: loki.URL, spool: filepath.Join(dir, "spool")}
	var console strings.Builder
	cl, stop := start(t, c, rec, forebay.Console(&console))

	// The record contains the trace id of the request, and its password is redacted.
	if status, answer := cl.do("POST", "/login", `{"user":"bob","password":"`+secret+`"}`, "traceparent", "00-"+traceID1+"-00f067aa0ba902b7-01"); status != 200 || answer != "hello, bob\n" {
		t.Errorf("%d %s", status, answer)
	}
	rec.Want(slog.LevelInfo, "login", "form.User", "bob", "form.Password", "[redacted]", "logger", "shop", "trace_id", traceID1)
	rec.Wait(timeout, slog.LevelInfo, "request", "path", "/login", "status", 200, "logger", "http", "trace_id", traceID1)

	if status, _ := cl.do("GET", "/items/plum", ""); status != http.StatusNotFound {
		t.Errorf("status %d", status)
	}
	rec.Want(slog.LevelWarn, "cannot show item", "err", `item "plum": no such item`)
	rec.Wait(timeout, slog.LevelWarn, "request", "path", "/items/plum", "status", 404)

	// The level can be changed while the service runs.
	cl.do("GET", "/items/apple", "")
	if status, answer := cl.ask(cl.ops, "PUT", "/levels/db", "level=debug", "Content-Type", "application/x-www-form-urlencoded"); status != 200 || answer != `{"level":"DEBUG"}`+"\n" {
		t.Errorf("%d %s", status, answer)
	}
	cl.do("GET", "/items/pear", "")
	rec.Want(slog.LevelDebug, "query", "item", "pear", "logger", "db")
	for _, r := range rec.Records() {
		if r.Attrs["item"] == "apple" {
			t.Errorf("before the level was set: %v", r)
		}
	}
	if status, _ := cl.ask(cl.ops, "PUT", "/levels/db", "loud"); status != http.StatusBadRequest {
		t.Errorf("status %d", status)
	}
	if status, _ := cl.do("GET", "/metrics", ""); status != http.StatusNotFound {
		t.Errorf("operations on the address of the service: status %d", status)
	}

	// The pages for operators return the metrics and the health.
	if status, answer := cl.ask(cl.ops, "GET", "/metrics", ""); status != 200 || !strings.Contains(answer, "\nforebay_output_up{output=\"loki\"} 1\n") {
		t.Errorf("%d %s", status, answer)
	}
	if status, answer := cl.ask(cl.ops, "GET", "/health", ""); status != 200 || !strings.HasPrefix(answer, `{"status":"ok"`) {
		t.Errorf("%d %s", status, answer)
	}
	rec.None(slog.LevelError)

	// When the service is stopped, no record is lost: each output has received every record.
	const requests = 200
	for i := range requests {
		cl.do("GET", "/items/apple", "", "X-Request-Id", fmt.Sprintf("r-%d.", i))
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	c.finish(t, loki, "stopping")
	file, err := os.ReadFile(c.file)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"console": console.String(), "file": string(file), "Loki": loki.text()} {
		for i := range requests {
			if id := fmt.Sprintf("r-%d.", i); !strings.Contains(text, id) {
				t.Errorf("%s: request %s is missing", name, id)
			}
		}
		if !strings.Contains(text, "stopping") || !strings.Contains(text, traceID1) {
			t.Errorf("%s: incomplete:\n%s", name, text)
		}
		if strings.Contains(text, secret) {
			t.Errorf("%s: the password is there:\n%s", name, text)
		}
	}
}

// If Loki is down while the service runs, the next run of the service delivers the records.
func TestLokiIsDown(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	loki, dir := newLoki(t), t.TempDir()
	c := config{listen: "127.0.0.1:0", ops: "127.0.0.1:0", file: filepath.Join(dir, "shop.log"), loki: loki.URL, spool: filepath.Join(dir, "spool")}
	quiet := forebay.OnError(func(batch.Event) {})

	loki.down.Store(true)
	cl, stop := start(t, c, forebaytest.New(t), quiet)
	cl.do("GET", "/items/apple", "", "X-Request-Id", "of the first life")
	if err := stop(); err != nil {
		t.Error(err)
	}
	if loki.text() != "" {
		t.Error("Loki is not down")
	}

	loki.down.Store(false)
	cl, stop = start(t, c, forebaytest.New(t), quiet)
	cl.do("GET", "/items/apple", "", "X-Request-Id", "of the second life")
	if err := stop(); err != nil {
		t.Error(err)
	}
	c.finish(t, loki, "of the second life")
	first, second := strings.Index(loki.text(), "of the first life"), strings.Index(loki.text(), "of the second life")
	if first < 0 || second < first {
		t.Errorf("first life at %d, second at %d", first, second)
	}
}

// A service that runs as a separate process delivers all records before it exits because of
// SIGTERM.
func TestServiceDeliversAtSIGTERM(t *testing.T) {
	rec, loki, dir := forebaytest.New(t), newLoki(t), t.TempDir()
	file := filepath.Join(dir, "shop.log")
	cmd := exec.Command(os.Args[0], "-listen", "127.0.0.1:0", "-ops", "127.0.0.1:0", "-file", file, "-loki", loki.URL, "-spool", filepath.Join(dir, "spool"))
	cmd.Env = append(os.Environ(), "SHOP=1")
	console, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	read := make(chan struct{})
	addr := make(chan string, 1)
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(console); lines.Scan(); {
			if _, a, ok := strings.Cut(lines.Text(), "addr="); ok {
				a, _, _ = strings.Cut(a, " ")
				addr <- a
			}
		}
	}()
	select {
	case a := <-addr:
		client{t: t, url: "http://" + a}.do("GET", "/items/pear", "")
	case <-read:
		t.Fatal("the service does not listen")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-read
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rec.Write(text)
	rec.Want(slog.LevelInfo, "request", "path", "/items/pear", "status", 200)
	rec.Want(slog.LevelInfo, "stopping")
	defer slog.SetDefault(slog.Default())
	config{listen: "127.0.0.1:0", ops: "127.0.0.1:0", loki: loki.URL, spool: filepath.Join(dir, "spool")}.finish(t, loki, "stopping")
	if !strings.Contains(loki.text(), "/items/pear") {
		t.Errorf("Loki has %q", loki.text())
	}
}
