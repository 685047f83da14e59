package forebay

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/testkit/poolcheck"
)

var bigPool = poolcheck.Use{Pool: &bigRecords, Make: newBigRecords}

func TestMain(m *testing.M) { goleak.VerifyTestMain(poolcheck.Tests(m, bigPool)) }

// A lines is a writer that keeps the data of each Write as one entry.
type lines struct {
	mu  sync.Mutex
	got []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got = append(l.got, string(p))
	return len(p), nil
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.got...)
}

func (l *lines) len() int { return len(l.all()) }

func (l *lines) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got = nil
}

// A writerFunc is a function that implements io.Writer. Its type is not comparable, so that no two
// writerFuncs count as the same writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A memOutput is a buffered output that keeps all records and an account.
type memOutput struct {
	lines
	metas  []batch.Meta
	closed bool
	fail   error
}

func (k *memOutput) WriteRecord(p []byte, m batch.Meta) error {
	if k.fail != nil {
		return k.fail
	}
	k.mu.Lock()
	k.metas = append(k.metas, m)
	k.mu.Unlock()
	_, err := k.Write(p)
	return err
}

func (k *memOutput) Account() batch.Account {
	n := uint64(k.len())
	return batch.Account{Accepted: n, Delivered: n}
}

func (k *memOutput) Close() error { k.closed = true; return nil }

// A bareMemOutput is a buffered output without an account.
type bareMemOutput struct{ t memOutput }

func (k *bareMemOutput) Write(p []byte) (int, error)              { return k.t.Write(p) }
func (k *bareMemOutput) WriteRecord(p []byte, m batch.Meta) error { return k.t.WriteRecord(p, m) }

// An eventLog collects events. It is safe for concurrent use.
type eventLog struct {
	mu  sync.Mutex
	got []batch.Event
}

func (e *eventLog) add(ev batch.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got = append(e.got, ev)
}

// ops returns the name of the output and the Op of each event, such as "a write".
func (e *eventLog) ops() (ops []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.got {
		ops = append(ops, ev.Output+" "+ev.Op)
	}
	return ops
}

// texts returns the text of each event.
func (e *eventLog) texts() (texts []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.got {
		texts = append(texts, ev.String())
	}
	return texts
}

// wantOps waits until OnError has returned for all events posted so far, and compares them with
// want.
func (e *eventLog) wantOps(t *testing.T, r *Router, want ...string) {
	t.Helper()
	for _, rp := range r.h.core.reporters {
		rp.wait(t.Context())
	}
	if got := e.ops(); strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Errorf("events %q, want %q", got, want)
	}
}

// quiet is an OnError for tests that expect failures.
func quiet() CommonOption { return OnError(func(batch.Event) {}) }

// longBusyTimeout is for tests whose callers contend in real time: on a busy machine a write may
// take longer than the default BusyTimeout.
var longBusyTimeout = BusyTimeout(time.Hour)

// newRouter returns a router. At the end of the test it closes the router and checks its accounts.
func newRouter(t testing.TB, opts ...Option) *Router {
	t.Helper()
	r, err := NewRouter(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = r.Close(context.Background())
		checkAccount(t, r)
	})
	return r
}

func checkAccount(t testing.TB, r *Router) {
	t.Helper()
	for _, o := range r.Stats().Outputs {
		if err := o.Check(); err != nil {
			t.Errorf("output %s: %v", o.Name, err)
		}
		if n := o.Pending.Inflight; n != 0 {
			t.Errorf("output %s: %d records in flight at rest", o.Name, n)
		}
	}
}

// outputStats returns the statistics of the output with that name.
func outputStats(t testing.TB, r *Router, name string) OutputStats {
	t.Helper()
	for _, o := range r.Stats().Outputs {
		if o.Name == name {
			return o
		}
	}
	t.Fatalf("no output %q in %v", name, r.Stats())
	return OutputStats{}
}

// plain returns a JSON encoder that writes no time, so that lines can be compared.
func plain() encode.Encoder {
	return encode.JSON(&encode.Options{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
}

func msg(s string) string { return `{"level":"INFO","msg":"` + s + `"}` + "\n" }

// parseLines decodes the JSON lines in r.
func parseLines(t testing.TB, r io.Reader) (out []map[string]any) {
	t.Helper()
	dec := json.NewDecoder(r)
	for {
		var m map[string]any
		if err := dec.Decode(&m); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatalf("after %d lines: %v", len(out), err)
		}
		out = append(out, m)
	}
}

// countingEncoder counts the calls of Append. A call fails if the function fail returns an error.
type countingEncoder struct {
	encode.Encoder
	mu   sync.Mutex
	n    int
	pc   bool
	fail func(n int) error // may panic, and call runtime.Goexit
}

type countingScope struct {
	encode.Scope
	e *countingEncoder
}

func (e *countingEncoder) Scope() encode.Scope { return countingScope{e.Encoder.Scope(), e} }
func (e *countingEncoder) NeedsPC() bool       { return e.pc || e.Encoder.NeedsPC() }

func (s countingScope) WithAttrs(a []slog.Attr) encode.Scope {
	return countingScope{s.Scope.WithAttrs(a), s.e}
}
func (s countingScope) WithGroup(n string) encode.Scope {
	return countingScope{s.Scope.WithGroup(n), s.e}
}

func (s countingScope) Append(dst []byte, r *encode.Record) ([]byte, batch.Meta, error) {
	s.e.mu.Lock()
	s.e.n++
	n := s.e.n
	s.e.mu.Unlock()
	if s.e.fail != nil {
		if err := s.e.fail(n); err != nil {
			return nil, batch.Meta{}, err
		}
	}
	return s.Scope.Append(dst, r)
}
