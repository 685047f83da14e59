package fluent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
	"github.com/forebay-log/forebay/internal/values"
	"github.com/forebay-log/forebay/slab"
)

// newTestLogger returns a Logger with the Config and options of c. By default it ignores events.
func newTestLogger(t *testing.T, c testConfig) *Logger {
	t.Helper()
	if c.OnError == nil {
		c.OnError = func(batch.Event) {}
	}
	l, err := c.logger()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// closeLogger closes l. The test fails unless every record is delivered or accounted for.
func closeLogger(t *testing.T, l *Logger) batch.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	rep, err := l.Close(ctx)
	if err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := rep.Check(); err != nil {
		t.Error(err)
	}
	return rep
}

func TestPostArrivesInOrder(t *testing.T) {
	var r received
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
	l := newTestLogger(t, testConfig{Config: Config{Servers: []string{listen(t, f)}}})
	m := map[string]any{}
	for i := range 5000 {
		m["n"] = i // the caller may change the map of the previous Post
		if err := l.Post("app."+string(rune('a'+i%2)), m); err != nil {
			t.Fatal(err)
		}
	}
	rep := closeLogger(t, l)
	if rep.Delivered != 5000 || rep.Accepted != 5000 {
		t.Errorf("%s", rep.Account)
	}
	for i, tag := range []string{"app.a", "app.b"} {
		got := r.get(tag)
		if len(got) != 2500 || got[0] != i || !slices.IsSorted(got) {
			t.Errorf("%s: %d records", tag, len(got))
		}
	}
	r.check(t)
	if err := l.Post("x", nil); !errors.Is(err, errClosed) || !errors.Is(err, batch.ErrClosed) {
		t.Errorf("Post after Close: %v", err)
	}
	if l.Stats().Refused != 1 {
		t.Errorf("refused: %d", l.Stats().Refused)
	}
	closeLogger(t, l) // a second Close has no effect
}

func TestPostErrorsAreCounted(t *testing.T) {
	l := newTestLogger(t, testConfig{Config: Config{Servers: []string{"127.0.0.1:1"}}, MaxRecord: 1000, BufferBytes: 64 << 10, SlabBytes: 16 << 10})
	cyc := map[string]any{}
	cyc["c"] = cyc
	if err := l.Post("t", cyc); !errors.Is(err, values.ErrCycle) {
		t.Error(err)
	}
	if err := l.Post("t", strings.Repeat("x", 2000)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if err := l.Post("", 1); !errors.Is(err, ErrTag) {
		t.Error(err)
	}
	full := 0
	for range 1000 {
		start := time.Now()
		if err := l.Post("t", strings.Repeat("x", 500)); errors.Is(err, slab.ErrDropped) {
			full++
		} else if err != nil {
			t.Fatal(err)
		}
		_ = start
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	rep, err := l.Close(ctx)
	if err == nil || full == 0 {
		t.Errorf("%v, %d dropped", err, full)
	}
	d := rep.Dropped
	if rep.Accepted != 1003 || d[batch.Encode] != 2 || d[batch.Oversize] != 1 || d[batch.Full] != uint64(full) || rep.Check() != nil {
		t.Errorf("%s", rep.Account)
	}
}

func TestSyncPostReturnsAfterTheAck(t *testing.T) {
	var r received
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
	l := newTestLogger(t, testConfig{Config: Config{Servers: []string{listen(t, f)}, Sync: true}})
	for i := range 20 {
		if err := l.Post("s", map[string]any{"n": i}); err != nil {
			t.Fatal(err)
		}
		if got := r.get("s"); len(got) != i+1 {
			t.Fatalf("after %d posts %d records were delivered", i+1, len(got))
		}
	}
	closeLogger(t, l)

	l = newTestLogger(t, testConfig{Config: Config{Servers: []string{"127.0.0.1:1"}, Sync: true, SyncTimeout: 50 * time.Millisecond}})
	err := l.Post("s", 1)
	if err == nil || !strings.Contains(err.Error(), "not acknowledged yet") {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	l.Close(ctx)
}

// While the server is down, the error handler receives all records. A subscriber is notified that
// the circuit breaker has opened.
func TestRecordsOfAnOutageGoToTheHandler(t *testing.T) {
	var buf bytes.Buffer
	var mu sync.Mutex
	l := newTestLogger(t, testConfig{
		Config: Config{
			Servers:      []string{"127.0.0.1:1"},
			ReconnectMin: time.Millisecond,
			ReconnectMax: 2 * time.Millisecond,
		},
		PendingLimit: 5,
		ErrorHandler: deliver.JSONLines(writerFunc(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return buf.Write(p)
		})),
		Breaker: &deliver.BreakerOptions{Failures: 1, OpenMin: 10 * time.Millisecond, OpenMax: 20 * time.Millisecond},
		Retry:   &deliver.RetryOptions{Min: time.Millisecond, Max: 5 * time.Millisecond},
	})
	ch, cancel := l.Subscribe()
	defer cancel()
	for i := range 10 {
		l.PostWithTime("fallback.tag", time.Unix(1, 0), map[string]any{"n": i, "nan": nan()})
	}
	if tr := <-ch; tr.To != deliver.Open {
		t.Errorf("%+v", tr)
	}
	rep := closeLogger(t, l)
	if rep.Handled != 10 {
		t.Errorf("%s", rep.Account)
	}
	lines := strings.Split(strings.TrimSpace(buf.String()), "\n")
	for i, line := range lines {
		want := fmt.Sprintf(`{"tag":"fallback.tag","time":"1970-01-01T00:00:01Z","record":{"n":%d,"nan":"NaN"}}`, i)
		if !equalJSON(line, want) {
			t.Errorf("%s", line)
		}
	}
	if len(lines) != 10 {
		t.Errorf("%d lines", len(lines))
	}
	for range ch {
	}
}

func nan() float64 { z := 0.0; return z / z }

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestFallbackToDeliversThroughOtherLogger(t *testing.T) {
	var r received
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
	other := newTestLogger(t, testConfig{Config: Config{Servers: []string{listen(t, f)}}})
	l := newTestLogger(t, testConfig{
		Config: Config{
			Servers:      []string{"127.0.0.1:1"},
			ReconnectMin: time.Millisecond,
			ReconnectMax: 2 * time.Millisecond,
		},
		ErrorHandler: FallbackTo(other),
		Breaker:      &deliver.BreakerOptions{Failures: 1, OpenMin: 10 * time.Millisecond, OpenMax: 20 * time.Millisecond},
	})
	for i := range 100 {
		l.Post("fb", map[string]any{"n": i})
	}
	rep := closeLogger(t, l)
	closeLogger(t, other)
	if got := r.get("fb"); rep.Handled != 100 || !slices.Equal(got, seq(0, 100)) {
		t.Errorf("%s; %v", rep.Account, got)
	}
}

// If the server is down, stalls or closes connections, Close returns at its deadline. Close may be
// called twice and concurrently with Post. The report counts the undelivered records.
func TestCloseKeepsItsDeadline(t *testing.T) {
	for name, dial := range map[string]func(stop chan struct{}) func(context.Context, string, string) (net.Conn, error){
		"dead": func(chan struct{}) func(context.Context, string, string) (net.Conn, error) {
			return func(ctx context.Context, _, _ string) (net.Conn, error) { return nil, errors.New("refused") }
		},
		"stalled": func(stop chan struct{}) func(context.Context, string, string) (net.Conn, error) {
			return (&testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { <-stop }}).Dial
		},
		"never acknowledges": func(stop chan struct{}) func(context.Context, string, string) (net.Conn, error) {
			return (&testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
				for {
					if _, err := c.Next(); err != nil {
						return
					}
				}
			}}).Dial
		},
		"closes at once": func(stop chan struct{}) func(context.Context, string, string) (net.Conn, error) {
			return (&testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {}}).Dial
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				stop := make(chan struct{})
				l := newTestLogger(t, testConfig{Config: Config{Dial: dial(stop)}})
				for i := range 1000 {
					l.Post("t", map[string]any{"n": i})
				}
				time.Sleep(time.Second)
				ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
				defer cancel()
				start := time.Now()
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() {
						rep, err := l.Close(ctx)
						if err == nil || rep.Undelivered() < 1000 || rep.Check() != nil {
							t.Errorf("%v: %s", err, rep.Account)
						}
					})
				}
				wg.Go(func() {
					for range 10 {
						if err := l.Post("t", 1); err != nil && !errors.Is(err, errClosed) {
							t.Error(err)
						}
						time.Sleep(time.Millisecond)
					}
				})
				time.Sleep(time.Microsecond)
				wg.Wait()
				if took := time.Since(start); took > 3100*time.Millisecond {
					t.Errorf("took %v", took)
				}
				close(stop)
			})
		})
	}
}

// If the server restarts, no record is lost, and at most one window of records arrives twice. The
// server may have stored the unacknowledged records or lost them.
func TestServerRestartLosesNothing(t *testing.T) {
	t.Run("backlog lost", func(t *testing.T) { testRestart(t, false) })
	t.Run("backlog kept", func(t *testing.T) { testRestart(t, true) })
}

func testRestart(t *testing.T, keeps bool) {
	bubble.Test(t, func(t *testing.T) {
		const rate, total = 5000, 15000
		var mu sync.Mutex
		seen := map[int]int{}
		largest := 0 // maximum number of records in a frame before the restart
		take := func(n int, m *testkit.ForwardMessage) {
			mu.Lock()
			defer mu.Unlock()
			if n == 0 {
				largest = max(largest, len(m.Entries))
			}
			for _, e := range m.Entries {
				seen[recordNumber(e)]++
			}
		}
		up := true
		stopped := make(chan struct{})
		f := &testkit.Forward{}
		f.Script = func(n int, c *testkit.ForwardConn) {
			backlog := 300 * time.Millisecond // time from receiving a message to acknowledging it
			var queue []*testkit.ForwardMessage
			var at []time.Time
			var qmu sync.Mutex
			done := make(chan struct{})
			if n == 0 {
				go func() { <-stopped; c.Close() }()
			}
			go func() {
				defer close(done)
				for {
					m, err := c.Next()
					if err != nil {
						return
					}
					if keeps {
						take(n, m)
					}
					qmu.Lock()
					queue, at = append(queue, m), append(at, time.Now())
					qmu.Unlock()
				}
			}()
			for {
				select {
				case <-done:
					return
				case <-time.After(5 * time.Millisecond):
				}
				qmu.Lock()
				for len(queue) > 0 && time.Since(at[0]) >= backlog {
					m := queue[0]
					queue, at = queue[1:], at[1:]
					if !keeps {
						take(n, m)
					}
					if c.Ack(m.Chunk) != nil {
						break
					}
				}
				qmu.Unlock()
			}
		}
		dial := func(ctx context.Context, n, a string) (net.Conn, error) {
			mu.Lock()
			ok := up
			mu.Unlock()
			if !ok {
				return nil, errors.New("connection refused")
			}
			return f.Dial(ctx, n, a)
		}
		l := newTestLogger(t, testConfig{Config: Config{Dial: dial}, WhenFull: "block"})
		go func() {
			time.Sleep(time.Second)
			mu.Lock()
			up = false
			mu.Unlock()
			close(stopped)
			time.Sleep(time.Second)
			mu.Lock()
			up = true
			mu.Unlock()
		}()
		for i := range total {
			if err := l.Post("t", map[string]any{"n": i}); err != nil {
				t.Fatal(err)
			}
			if i%50 == 49 {
				time.Sleep(50 * time.Second / rate)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		rep, err := l.Close(ctx)
		if err != nil || rep.Delivered != total {
			t.Errorf("%v: %s", err, rep.Account)
		}
		lost, twice := 0, 0
		for i := range total {
			switch seen[i] {
			case 0:
				lost++
			case 1:
			default:
				twice += seen[i] - 1
			}
		}
		if lost > 0 {
			t.Errorf("%d records lost", lost)
		}
		// Only batches that were in flight at the restart may arrive twice.
		if limit := defaultWindow * largest; twice > limit || keeps && twice == 0 {
			t.Errorf("%d records arrived twice, the window had up to %d", twice, limit)
		}
		f.Close()
	})
}

func TestRouterRecordsGetTagsAndGroups(t *testing.T) {
	var r received
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { r.ackAll(c) }}
	l := newTestLogger(t, testConfig{Config: Config{Servers: []string{listen(t, f)}, Tag: "default.tag"}})
	enc, err := NewEncoder(&EncoderOptions{TagKey: "tag"})
	if err != nil {
		t.Fatal(err)
	}
	router, err := forebay.NewRouter(forebay.Route(enc, forebay.Writer(l.Output)))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(router)
	log.Info("one", "a", 1)
	log.With("tag", "with.tag", "b", 2).WithGroup("g").With("c", 3).Info("two", "tag", "stays", slog.Group("h", "d", 4))
	log.WithGroup("empty").Warn("three")
	log.Info("four", "tag", "own.tag")
	log.Info("five", "tag", "", "e", endless{})
	if _, err := router.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	closeLogger(t, l)
	want := map[string][]string{
		"default.tag": {`{"level":"INFO","msg":"one","a":1}`, `{"level":"WARN","msg":"three"}`, `{"level":"INFO","msg":"five","tag":"","e":{"more":"…"}}`},
		"with.tag":    {`{"level":"INFO","msg":"two","b":2,"g":{"c":3,"tag":"stays","h":{"d":4}}}`},
		"own.tag":     {`{"level":"INFO","msg":"four"}`},
	}
	got := map[string][]string{}
	for _, m := range r.messages() {
		for _, e := range m.Entries {
			var v struct{ Record json.RawMessage }
			if err := json.Unmarshal(Codec().AppendJSON(nil, e, batch.Meta{}), &v); err != nil {
				t.Fatal(err)
			}
			text := string(v.Record)
			if i := strings.Index(text, `"e":`); i > 0 && strings.Contains(text, "!ERROR: groups nested too deeply") {
				text = text[:i] + `"e":{"more":"…"}}`
			}
			got[m.Tag] = append(got[m.Tag], text)
		}
	}
	for tag := range want {
		if !slices.EqualFunc(got[tag], want[tag], equalJSON) {
			t.Errorf("%s:\n got %s\nwant %s", tag, got[tag], want[tag])
		}
	}
}

func TestScopeWritesMoreThan65535Attributes(t *testing.T) {
	enc, _ := NewEncoder(nil)
	attrs := make([]slog.Attr, 70000)
	for i := range attrs {
		attrs[i] = slog.Int("k", 1)
	}
	rec := encode.Record{Time: time.Unix(1, 0), Attrs: attrs}
	out, _, err := enc.Scope().WithGroup("g").Append(nil, &rec)
	if err != nil {
		t.Fatal(err)
	}
	if rest, err := msgpack.Skip(out); err != nil || len(rest) > 0 {
		t.Errorf("%v, %d bytes left", err, len(rest))
	}
}

func TestScopeAllocatesNothing(t *testing.T) {
	race.Skip(t)
	enc, _ := NewEncoder(&EncoderOptions{Tag: "t", TagKey: "tag"})
	s := enc.Scope().WithAttrs([]slog.Attr{slog.Int("a", 1)}).WithGroup("g")
	rec := encode.Record{Time: time.Now(), Message: "m", Attrs: []slog.Attr{slog.String("b", "x"), slog.Time("c", time.Now()), slog.Group("d", slog.Int("e", 1))}}
	dst := make([]byte, 0, 1024)
	n := allocs.PerRun(100, func() { dst, _, _ = s.Append(dst[:0], &rec) })
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestPostAllocatesNothing(t *testing.T) {
	race.Skip(t)
	pools.Plain(t)
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { new(received).ackAll(c) }}
	l := newTestLogger(t, testConfig{Config: Config{Servers: []string{listen(t, f)}}, FlushInterval: time.Hour})
	rec := benchRecord{ID: "x", At: time.Now()}
	m := map[string]any{"a": "b", "n": 1}
	long := map[string]any{"a": strings.Repeat("long ", 1000)}
	for name, v := range map[string]any{"struct": rec, "pointer": &rec, "map": m, "long": long} {
		n := allocs.PerRun(50, func() {
			if err := l.Post("alloc.tag", v); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	closeLogger(t, l)
}

// No verb of package fmt and no encoder prints the secrets of a Config, a Driver or a Logger.
func TestSecretsAreNotPrinted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("s3cret-2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := testConfig{Config: Config{Dial: downConfig().Dial, Auth: Auth{SharedKey: "s3cret-1", User: "u", PasswordFile: file}}, OnError: func(batch.Event) {}}
	l := newTestLogger(t, c)
	client := newTestClient(t, c).Driver
	cn := &conn{label: "label", conf: client.c}
	closeLogger(t, l) // package fmt reads fields without their locks
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%t", "%c", "%e", "%08b", "%U", "%10v"} {
		for _, x := range []any{c, &c, c.Auth.SharedKey, []Secret{c.Auth.SharedKey}, l, l.Output, client, cn, l.Stats()} {
			text := fmt.Sprintf(verb, x)
			if strings.Contains(text, "s3cret") || strings.Contains(strings.ToLower(text), fmt.Sprintf("%x", "s3cret")) {
				t.Errorf("%s of %T prints a secret: %s", verb, x, text)
			}
		}
	}
	var out bytes.Buffer
	for _, h := range []slog.Handler{
		slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil),
		newRouter(t, encode.JSON(nil), &out), newRouter(t, encode.Logfmt(nil), &out), newRouter(t, l.Driver.Encoder(), &out),
	} {
		slog.New(h).Info("starting", "key", c.Auth.SharedKey, "keys", []Secret{c.Auth.SharedKey}, "in", struct{ Key Secret }{c.Auth.SharedKey})
	}
	if strings.Contains(out.String(), "s3cret") || strings.Count(out.String(), "(secret)") != 3*5 {
		t.Error(out.String())
	}
	if text := fmt.Sprintf("%v %#v %q %d %s.", c.Auth.SharedKey, c.Auth.SharedKey, c.Auth.SharedKey, c.Auth.SharedKey, Secret("")); text != `(secret) "(secret)" "(secret)" (secret) .` {
		t.Error(text)
	}
}

func newRouter(t *testing.T, enc encode.Encoder, w io.Writer) *forebay.Router {
	t.Helper()
	r, err := forebay.NewRouter(forebay.Route(enc, forebay.Writer(w, forebay.Direct())))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// validate returns the error of New for c.
func validate(c testConfig) error {
	_, err := c.driver()
	return err
}

func TestConfigErrorNamesEveryInvalidField(t *testing.T) {
	err := validate(testConfig{
		Config: Config{
			Servers:    []string{"host:0", "user:pa55word@host", "http://x", "unix:", "[::1", "a b"},
			Window:     -1,
			AckTimeout: -1,
			Compress:   "lz4",
			Tag:        "\n",
			FrameBytes: -1,
			Auth:       Auth{Password: "secret1", PasswordFile: "/nonexistent"},
		},
	})
	if err == nil {
		t.Fatal("an invalid Config was accepted")
	}
	for _, want := range []string{"host:0", "http://x", `"unix:"`, "user or password", "Window is -1", "AckTimeout", "lz4", "Tag", "Password is set without", "FrameBytes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "pa55word") || strings.Contains(err.Error(), "secret1") {
		t.Errorf("the error contains a secret: %v", err)
	}
	for _, ok := range []testConfig{{}, {Config: Config{Servers: []string{"h", "h:1", "[::1]:5", "::1", "tcp://h", "tls://h:5", "unix:/x", "unix:///x"}}}} {
		if err := validate(ok); err != nil {
			t.Error(err)
		}
	}
}

// postAll posts n records concurrently and returns the error of each.
func postAll(l *Logger, n int, value func(i int) any) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = l.Post("sync", value(i)) })
	}
	wg.Wait()
	return errs
}

// With Config.Sync, Post returns nil if its record is acknowledged, regardless of the outcome of
// other records. If the record is given up while Post waits, Post returns an error for a dropped
// record.
func TestSyncPostReturnsTheOutcomeOfItsRecord(t *testing.T) {
	for _, timeout := range []time.Duration{0, 10 * time.Minute} {
		bubble.Test(t, func(t *testing.T) {
			const bad = 25
			f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
				for {
					m, err := c.Next()
					if err != nil || slices.ContainsFunc(m.Entries, func(e []byte) bool { return recordNumber(e) == bad }) {
						return
					}
					c.Ack(m.Chunk)
				}
			}}
			defer f.Close()
			l := newTestLogger(t, testConfig{Config: Config{Dial: f.Dial, Sync: true, SyncTimeout: timeout}, OnError: func(batch.Event) {}})
			if err := l.Post("t", map[string]any{"n": -1}); err != nil { // a reference record: the server works
				t.Error(err)
			}
			errs := postAll(l, 50, func(i int) any { return map[string]any{"n": i} })
			for i, err := range errs {
				if (err == nil) == (i == bad) {
					t.Errorf("%d: %v", i, err)
				}
			}
			if condemned := timeout > 0; errors.Is(errs[bad], slab.ErrDropped) != condemned {
				t.Errorf("condemned record: got %v", errs[bad])
			}
			time.Sleep(10 * time.Minute)
			closeLogger(t, l)
		})
	}
}

// With Config.Sync, Post returns an error if its record is dropped to make room for newer ones, or
// if the fallback accepts it.
func TestSyncPostReturnsAnErrorForEveryLostRecord(t *testing.T) {
	mute := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) {
		for {
			if _, err := c.Next(); err != nil {
				return
			}
		}
	}}
	brief := func(l *Logger) {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		l.Close(ctx)
	}
	t.Run("drop-oldest", func(t *testing.T) {
		l := newTestLogger(t, testConfig{
			Config: Config{
				Servers:     []string{listen(t, mute)},
				Sync:        true,
				SyncTimeout: 300 * time.Millisecond,
			},
			WhenFull:    "drop-oldest",
			BufferBytes: 128 << 10,
			SlabBytes:   16 << 10,
		})
		text := strings.Repeat("y", 4000)
		for i, err := range postAll(l, 100, func(i int) any { return map[string]any{"n": i, "x": text} }) {
			if err == nil {
				t.Errorf("record %d: got no error", i)
			}
		}
		if l.Account().Dropped[batch.Full] == 0 {
			t.Error("no record was evicted, so the test proves nothing")
		}
		brief(l)
	})
	t.Run("fallback", func(t *testing.T) {
		l := newTestLogger(t, testConfig{
			Config: Config{
				Servers:     []string{"127.0.0.1:1"},
				Sync:        true,
				SyncTimeout: 10 * time.Second,
			},
			FallbackFile: filepath.Join(t.TempDir(), "f"),
			Retry:        &deliver.RetryOptions{Min: time.Millisecond, Max: time.Millisecond},
			Breaker:      &deliver.BreakerOptions{Failures: 1},
		})
		if err := l.Post("sync", 1); !errors.Is(err, ErrHandled) {
			t.Error(err)
		}
		brief(l)
	})
}

func TestUnacknowledgedErrorNamesTheReason(t *testing.T) {
	for r := range batch.Reason(len(batch.Drops{})) {
		var after batch.Account
		after.Dropped[r] = 1
		if err := unacknowledged(batch.Account{}, after); !errors.Is(err, slab.ErrDropped) || !strings.Contains(err.Error(), r.String()) {
			t.Errorf("%s: %v", r, err)
		}
	}
	if err := unacknowledged(batch.Account{}, batch.Account{Pending: batch.Pending{Spill: 1}}); errors.Is(err, slab.ErrDropped) || !strings.Contains(err.Error(), "spool") {
		t.Error(err)
	}
}
