// Package compare contains a small HTTP service with three loggers: log/slog, zap with lumberjack,
// and forebay. Its tests show the effect of a log collector that hangs. docs/ADAPTERS.md contains
// the results.
package compare

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/examples/compare/forebaylog"
	"github.com/forebay-log/forebay/examples/compare/sloglog"
	"github.com/forebay-log/forebay/examples/compare/zaplog"
)

// The leak check ignores the goroutine of lumberjack that deletes files, because lumberjack never
// stops it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

func buy(shop http.Handler) {
	shop.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/buy?item=umbrella", nil))
}

// With log/slog, a request waits while the log collector does not read.
func TestSlogRequestWaitsForCollector(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	shop, _, err := sloglog.New(w)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan int)
	go func() {
		n := 0
		for ; n < 2000; n++ {
			buy(shop)
		}
		done <- n
	}()
	select {
	case n := <-done:
		t.Fatalf("%d requests did not wait for a collector that reads nothing", n)
	case <-time.After(500 * time.Millisecond): // a pipe has space for about 500 records
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	if n := <-done; n != 2000 {
		t.Error(n)
	}
	_ = w.Close()
}

// With zap and lumberjack, requests do not wait for the collector. When the second file is full,
// records that the collector has not read are deleted and not counted.
func TestZapLosesUnread(t *testing.T) {
	dir := t.TempDir()
	shop, end, err := zaplog.New(filepath.Join(dir, "shop.log"), 1)
	if err != nil {
		t.Fatal(err)
	}
	const n = 40_000
	for range n {
		buy(shop)
	}
	if err := end(); err != nil {
		t.Fatalf("zap reports %v", err)
	}
	left := 0
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		if left = 0; len(files) <= 2 {
			for _, f := range files {
				b, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				left += bytes.Count(b, []byte("\n"))
			}
			break
		}
		if time.Now().After(deadline) { // lumberjack deletes files in the background
			t.Fatalf("%q", files)
		}
	}
	if left >= n {
		t.Errorf("%d of %d records are left, so none was lost", left, n)
	}
	t.Logf("%d of %d records are left", left, n)
}

// With forebay, requests do not wait, and the account contains every record.
func TestForebayKeepsEveryRecord(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dir := t.TempDir()
	shop, log, err := forebaylog.New(ln.Addr().String(), dir) // the server accepts the connection and never answers
	if err != nil {
		t.Fatal(err)
	}
	const n = 40_000
	for range n {
		buy(shop)
	}
	out := log.Router().Stats().Outputs[0]
	if out.Accepted != n || out.Dropped.Total() != 0 || out.Pending.Total() != n {
		t.Errorf("%+v", out.Account)
	}
	if err := log.Close(); err != nil { // all records are on disk
		t.Error(err)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) == 0 {
		t.Errorf("the spool is empty: %v, %v", files, err)
	}
}

// The table in docs/ADAPTERS.md states the numbers of lines and imports of each service.
func TestSizesOfDocumentation(t *testing.T) {
	for name, want := range map[string][2]int{"sloglog": {20, 3}, "zaplog": {26, 5}, "forebaylog": {26, 4}} {
		f, err := os.Open(filepath.Join(name, "shop.go"))
		if err != nil {
			t.Fatal(err)
		}
		lines, imports := 0, 0
		for s := bufio.NewScanner(f); s.Scan(); lines++ {
			if strings.HasPrefix(s.Text(), "\t\"") {
				imports++
			}
		}
		_ = f.Close()
		if got := [2]int{lines, imports}; got != want {
			t.Errorf("%s: %v lines and imports, the table in docs/ADAPTERS.md has %v", name, got, want)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	r := httptest.NewRequest("GET", "/buy?item=umbrella", nil)
	w := nowhere{}
	run := func(name string, shop http.Handler) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				shop.ServeHTTP(w, r)
			}
		})
	}
	run("none", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.URL.Query().Get("item")
		w.WriteHeader(http.StatusNoContent)
	}))
	shop, _, err := sloglog.New(io.Discard)
	if err != nil {
		b.Fatal(err)
	}
	run("slog", shop)
	shop, end, err := zaplog.New(filepath.Join(b.TempDir(), "shop.log"), 1000)
	if err != nil {
		b.Fatal(err)
	}
	run("zap", shop)
	_ = end()
	shop, log, err := forebaylog.New("127.0.0.1:1", b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	run("forebay", shop)
	_ = log.Close()
}

// nowhere is an http.ResponseWriter that discards the response and does not allocate.
type nowhere struct{}

func (nowhere) Header() http.Header         { return nil }
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) WriteHeader(int)             {}
