package loki

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/diskqueue"
	"github.com/forebay-log/forebay/internal/outputhook"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

func quiet(batch.Event) {}

func handlerFor(t testing.TB, p http.RoundTripper, c Config, opts ...any) *handler {
	t.Helper()
	c.URL, c.HTTP.Client = "http://loki.test", &http.Client{Transport: p}
	h, err := newHandler(c, append([]any{forebay.OnError(quiet)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkMemory(t, h.Sink.Driver) })
	return h
}

func TestHandlerDelivers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := new(peer)
		h := handlerFor(t, p, Config{})
		log := slog.New(h)
		log.Debug("not this")
		log.Info("one", "a", 1)
		log.With("b", 2).WithGroup("g").Info("two", "c", 3)
		if err := h.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := p.lines(); len(got) != 2 || got[1] != `{"msg":"two","b":2,"g":{"c":3}}` {
			t.Errorf("got %v", got)
		}
		// Without Flush, a batch waits for BatchAge.
		log.Info("three")
		start := time.Now()
		for len(p.lines()) < 3 {
			time.Sleep(10 * time.Millisecond)
		}
		if d := time.Since(start); d < 900*time.Millisecond || d > 1100*time.Millisecond {
			t.Errorf("sent after %v, want 1 s", d)
		}
		log.Info("four")
		rep, err := h.Close(context.Background())
		if err != nil || rep.Delivered != 4 || rep.Check() != nil {
			t.Errorf("%v %v", rep, err)
		}
		if rep, err := h.Close(context.Background()); err != nil || rep.Delivered != 4 {
			t.Errorf("again: %v %v", rep, err)
		}
	})
}

// A record of level ERROR waits for its batch like others, unless FlushLevel is set.
func TestErrorsWaitForTheirBatch(t *testing.T) {
	for name, c := range map[string]struct {
		slab *slab.Options
		want time.Duration
	}{
		"default": {nil, defaultBatchAge},
		"set":     {&slab.Options{FlushLevel: slog.LevelError}, 0},
	} {
		bubble.Test(t, func(t *testing.T) {
			p := new(peer)
			start, after := time.Now(), time.Duration(-1)
			p.answer = func(int, *request) (int, string, http.Header) {
				after = time.Since(start)
				return http.StatusNoContent, "", nil
			}
			h := handlerFor(t, p, Config{}, delivery(func(o *deliver.OutputOptions) {
				if c.slab != nil {
					o.Slab.FlushLevel = c.slab.FlushLevel
				}
			}))
			slog.New(h).Error("boom")
			time.Sleep(time.Minute)
			synctest.Wait()
			if after != c.want {
				t.Errorf("%s: sent after %v, want %v", name, after, c.want)
			}
			if _, err := h.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A batch is sent as soon as it has enough records or bytes, regardless of its age. It never has
// more.
func TestBatchIsSentAtItsLimits(t *testing.T) {
	const size = 24 + len(`{"msg":"a record"}`)
	for name, c := range map[string]Config{"count": {BatchRecords: 100}, "bytes": {BatchBytes: 100 * size}} {
		bubble.Test(t, func(t *testing.T) {
			p := new(peer)
			c.BatchAge = time.Hour
			h := handlerFor(t, p, c)
			for range 1000 {
				slog.New(h).Info("a record")
			}
			synctest.Wait()
			if got := len(p.lines()); got < 900 {
				t.Errorf("%s: %d sent", name, got)
			}
			for i, r := range p.requests() {
				if n := len(r.streams[0].Entries); n != 100 {
					t.Errorf("%s: request %d has %d records", name, i, n)
				}
			}
			if rep, err := h.Close(context.Background()); err != nil || rep.Delivered != 1000 {
				t.Errorf("%s: %v %v", name, rep, err)
			}
		})
	}
}

// Entries reach Loki completely and in order, whether or not they are adjacent in a slab.
func TestRequestsContainAllRecordsInOrder(t *testing.T) {
	for _, streams := range []int{1, 3} {
		p := new(peer)
		h := handlerFor(t, p, Config{BatchBytes: 200 << 10, UniqueTimes: true}, forebay.WhenFull("block"))
		const n = 12_000
		for i := range n {
			slog.New(h).Log(context.Background(), slog.Level(i%streams*4), "a record", "i", i)
		}
		if rep, err := h.Close(context.Background()); err != nil || rep.Delivered != n {
			t.Fatalf("%v %v", rep, err)
		}
		next := make([]int, streams)
		seen := 0
		for _, r := range p.requests() {
			if r.err != nil {
				t.Fatal(r.err)
			}
			for _, st := range r.streams {
				for _, e := range st.Entries {
					var i int
					if _, err := fmt.Sscanf(e.Line, `{"msg":"a record","i":%d}`, &i); err != nil || i/streams != next[i%streams] {
						t.Fatalf("%d streams: %q, want record %d of its stream", streams, e.Line, next[i%streams])
					}
					next[i%streams]++
					seen++
				}
			}
		}
		if st := h.Sink.Driver.Stats(); seen != n || st.BodyBytes < 6*st.WireBytes/5 {
			t.Errorf("%d streams: %d records, %+v", streams, seen, st)
		}
	}
}

// No kind of failure causes the loss of a record. Refused records become dead letters.
func TestFailuresLoseNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var n atomic.Int64
		p := &peer{}
		p.answer = func(_ int, r *request) (int, string, http.Header) {
			if strings.Contains(fmt.Sprint(r.streams), "poison") {
				return 400, "it hurts", nil
			}
			switch k := n.Add(1); {
			case k < 20 && k%4 == 0:
				return 0, "reset", nil
			case k < 20 && k%4 == 1:
				return 503, "", nil
			case k < 20 && k%4 == 2:
				return 401, "", nil
			}
			return 204, "", nil
		}
		var dead bytes.Buffer
		h := handlerFor(t, p, Config{}, forebay.Delivery(func(o *deliver.OutputOptions) {
			o.Deliver.DeadLetter = deliver.ErrorHandlerFunc(func(cause error, b *batch.Batch) batch.Outcome {
				var s interface{ HTTPStatus() int } // deliver.DeadLetters writes this status
				if !errors.As(cause, &s) || s.HTTPStatus() != 400 {
					t.Errorf("got a dead letter with the cause %v, want status 400", cause)
				}
				for _, r := range b.All() {
					dead.Write(b.Codec.AppendJSON(nil, r.Data, r.Meta))
				}
				return batch.Outcome{}
			})
		}))
		log := slog.New(h)
		for i := range 1000 {
			if i == 500 {
				log.Error("poison")
			}
			log.Log(context.Background(), slog.Level(i%3*4), fmt.Sprint(i))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		for h.Flush(ctx) != nil && ctx.Err() == nil { // Flush fails while the circuit breaker is open
			time.Sleep(time.Second)
		}
		rep, _ := h.Close(ctx)
		if rep.Delivered != 1000 || rep.Dropped[batch.Poison] != 1 || rep.Check() != nil {
			t.Errorf("%v", rep)
		}
		if !strings.Contains(dead.String(), `"msg":"poison"`) {
			t.Errorf("dead letters: %s", dead.String())
		}
		seen := map[string]bool{}
		for _, l := range p.lines() {
			seen[l] = true
		}
		if len(seen) != 1001 {
			t.Errorf("%d different lines arrived", len(seen))
		}
	})
}

// If Loki does not respond, Close returns at its deadline and reports the undelivered records.
func TestCloseIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := handlerFor(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}), Config{}, forebay.WhenFull("drop-newest"))
		for range 10 {
			slog.New(h).Info("x")
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		start := time.Now()
		rep, err := h.Close(ctx)
		if d := time.Since(start); d > 5*time.Second || err == nil || rep.Undelivered() != 10 {
			t.Errorf("after %v: %v %v", d, rep, err)
		}
	})
}

func TestDryRunWritesRequests(t *testing.T) {
	var out bytes.Buffer
	p := new(peer)
	s := sinkFor(t, p, Config{Tenant: "t", URL: "http://u:s3cr3t@loki.test:3100/?key=s3cr3t", DryRun: &out})
	e := &encoded{t: t, s: s}
	e.add(nil, event(time.Now(), 0, "hi"))
	send, _ := outputhook.Direct(s)
	if o := send(context.Background(), e.as(e.s.Encoder().Codec())); o.Err() != nil {
		t.Fatal(o)
	}
	if got := out.String(); !strings.HasPrefix(got, "POST http://loki.test:3100/loki/api/v1/push?… tenant=t {app=\"test\", level=\"info\"}: 1 entries,") || !strings.Contains(got, `"line":{"msg":"hi"}`) {
		t.Error(got)
	}
}

// If Loki has not accepted records when the process ends, they are in the spool. The Driver of
// another process delivers them with their labels.
func TestSpooledRecordsReachLokiFromNextProcess(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		down := roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
		c := Config{Labels: map[string]string{"app": "test"}, LabelAttrs: []string{"region"}, TenantAttr: "org"}
		spooled := []any{forebay.Spool(dir), delivery(func(o *deliver.OutputOptions) {
			o.Deliver.Retry = &deliver.RetryOptions{Min: time.Millisecond, Max: time.Millisecond}
		})}
		h := handlerFor(t, down, c, spooled...)
		for i := range 50 {
			slog.New(h).Info("kept", "i", i, "region", fmt.Sprint("r", i%3), "org", "o")
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		rep, err := h.Close(ctx)
		if err != nil || rep.Pending.Spill != 50 || rep.Check() != nil {
			t.Fatalf("%v %v", rep, err)
		}
		p := new(peer)
		h = handlerFor(t, p, c, spooled...)
		slog.New(h).Info("new", "region", "r9", "org", "o")
		if err := h.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		if rep, err := h.Close(context.Background()); err != nil || rep.Recovered != 50 || rep.Delivered != 51 {
			t.Errorf("%v %v", rep, err)
		}
		byLabels := map[string]int{}
		for _, r := range p.requests() {
			if got := r.header.Get("X-Scope-OrgID"); got != "o" {
				t.Errorf("tenant %q", got)
			}
			for _, s := range r.streams {
				byLabels[s.Labels] += len(s.Entries)
			}
		}
		if byLabels[`{app="test", level="info", region="r0"}`] != 17 || byLabels[`{app="test", level="info", region="r9"}`] != 1 || len(byLabels) != 4 {
			t.Errorf("%v", byLabels)
		}
	})
}

// Stored entries that were encoded for another Config.Wire reach Loki with their labels, times and
// metadata.
func TestSpoolOfOtherWireIsDelivered(t *testing.T) {
	wires := []string{wireProtobuf, wireJSON, wireGzip}
	seed := testkit.Seed(t)
	for i, from := range wires {
		for j, to := range wires { // a normal run tests three pairs: each form is written once and read once
			if !testkit.Share(seed, i+j, 3) {
				continue
			}
			dir := t.TempDir()
			bubble.Test(t, func(t *testing.T) {
				c := Config{Labels: map[string]string{"app": "test"}, LabelAttrs: []string{"region"}, MetadataAttrs: []string{"k"}, TenantAttr: "org", Wire: from}
				spooled := []any{forebay.Spool(dir), delivery(func(o *deliver.OutputOptions) {
					o.Deliver.Retry = &deliver.RetryOptions{Min: time.Millisecond, Max: time.Millisecond}
				})}
				h := handlerFor(t, roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }), c, spooled...)
				at := time.Now().Add(-time.Minute)
				for i := range 20 {
					r := slog.NewRecord(at.Add(time.Duration(i)), slog.LevelWarn, "kept \"so\"", 0)
					r.Add("i", i, "region", "r", "org", "o", "k", "v")
					h.Handle(t.Context(), r)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second) // one attempt per millisecond
				defer cancel()
				h.Close(ctx)

				p := new(peer)
				c.Wire = to
				h = handlerFor(t, p, c, spooled...)
				slog.New(h).Info("new")
				if err := h.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				if rep, err := h.Close(t.Context()); err != nil || rep.Recovered != 20 || rep.Delivered != 21 {
					t.Errorf("%s to %s: %v %v", from, to, rep, err)
				}
				n := 0
				for _, r := range p.requests() {
					if r.err != nil {
						t.Fatalf("%s to %s: %v", from, to, r.err)
					}
					for _, e := range r.streams[0].Entries {
						if e.Line == `{"msg":"new"}` {
							continue
						}
						want := fmt.Sprintf(`{"msg":"kept \"so\"","i":%d,"region":"r","k":"v"}`, n)
						if e.Line != want || !e.Time.Equal(at.Add(time.Duration(n))) || e.Meta["k"] != "v" || r.header.Get("X-Scope-OrgID") != "o" {
							t.Errorf("%s to %s: %+v of %v, want %s", from, to, e, r.header, want)
						}
						if l := r.streams[0].Labels; r.header.Get("Content-Type") == "application/x-protobuf" && l != `{app="test", level="warn", region="r"}` {
							t.Errorf("%s to %s: labels %s", from, to, l)
						}
						n++
					}
				}
				if n != 20 {
					t.Errorf("%s to %s: %d records arrived", from, to, n)
				}
			})
		}
	}
}

// While Loki does not respond and the memory is full, callers continue at the speed of the disk. No
// record is lost.
func TestSpillKeepsCallersFast(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := Config{Labels: map[string]string{"app": "test"}}
		spills := []any{forebay.Spool(t.TempDir()), forebay.WhenFull("spill"), delivery(func(o *deliver.OutputOptions) {
			o.BufferBytes, o.Slab.SlabBytes = 64<<10, 8<<10
			o.Deliver.Retry = &deliver.RetryOptions{Min: time.Millisecond, Max: time.Millisecond}
		})}
		h := handlerFor(t, roundTrip(func(*http.Request) (*http.Response, error) {
			<-release
			return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
		}), c, spills...)
		const n = 5000 // 0.5 MB
		for i := range n {
			slog.New(h).Info("a record of some length", "i", i)
		}
		if a := h.Sink.Account(); a.Dropped.Total() != 0 || a.Pending.Spill == 0 {
			t.Errorf("%v", a)
		}
		close(release)
		if err := h.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		if rep, err := h.Close(context.Background()); err != nil || rep.Delivered != n || rep.Check() != nil {
			t.Errorf("%v %v", rep, err)
		}
	})
}

// Large records count towards BufferBytes.
func TestLargeRecordsFillTheBuffer(t *testing.T) {
	release := make(chan struct{})
	h := handlerFor(t, roundTrip(func(*http.Request) (*http.Response, error) {
		<-release
		return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
	}), Config{Labels: map[string]string{"app": "test"}}, forebay.WhenFull("drop-newest"), forebay.Delivery(func(o *deliver.OutputOptions) { o.Slab.SlabBytes = 64 << 10; o.BufferBytes = 16 << 20 }))
	const n = 130
	for range n { // 100 kB each
		slog.New(h).Info(strings.Repeat("x", 100_000))
	}
	if a := h.Sink.Account(); a.Dropped.Total() != 0 || a.Accepted != n {
		t.Errorf("%v", a)
	}
	close(release)
	if rep, err := h.Close(context.Background()); err != nil || rep.Delivered != n || rep.Check() != nil {
		t.Errorf("%v %v", rep, err)
	}
}

const crashEnv = "FOREBAY_LOKI_CRASH_TEST"

// crashingChild logs records and ends without closing its output.
func crashingChild(dir string) {
	h, err := newHandler(Config{URL: "http://127.0.0.1:1", Labels: map[string]string{"app": "test"}, LabelAttrs: []string{"region"}, BatchAge: time.Hour}, forebay.CrashSafe(dir))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for i := range 100 {
		slog.New(h).Info("survives", "i", i, "region", fmt.Sprint("r", i%2))
	}
	self, _ := os.FindProcess(os.Getpid())
	self.Kill()
	select {}
}

// Records of a killed process are delivered by the next process, with their labels.
func TestCrashDir(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs SIGKILL")
	}
	for _, wire := range []string{wireProtobuf, wireJSON} {
		t.Run(wire, func(t *testing.T) { testCrashDir(t, wire) })
	}
}

func testCrashDir(t *testing.T, wire string) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), crashEnv+"="+dir)
	out, err := cmd.CombinedOutput()
	if len(out) > 0 || err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("%v: %s", err, out)
	}
	p := new(peer)
	// The next process may have another Config.Wire than the killed one.
	h := handlerFor(t, p, Config{Labels: map[string]string{"app": "test"}, LabelAttrs: []string{"region"}, Wire: wire}, forebay.CrashSafe(dir))
	slog.New(h).Info("new")
	if err := h.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if rep, err := h.Close(context.Background()); err != nil || rep.Recovered != 100 || rep.Delivered != 101 {
		t.Errorf("%v %v", rep, err)
	}
	byLabels := map[string]int{}
	for _, r := range p.requests() {
		if r.err != nil {
			t.Error(r.err)
		}
		for _, s := range r.streams {
			byLabels[s.Labels] += len(s.Entries)
		}
	}
	if byLabels[`{app="test", level="info", region="r0"}`] != 50 || byLabels[`{app="test", level="info", region="r1"}`] != 50 {
		t.Errorf("%v", byLabels)
	}
}

// While Loki is down, the error handler receives the records as JSON, not as entries.
func TestErrorHandlerReceivesReadableRecords(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		down := roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
		// The handler is called when more than PendingLimit records are pending.
		h := handlerFor(t, down, Config{Labels: map[string]string{"app": "test"}}, forebay.Delivery(func(o *deliver.OutputOptions) {
			o.Deliver.Handler = deliver.JSONLines(io.Discard)
			o.Deliver.PendingLimit = 100
		}))
		slog.New(h).Info("waits")
		time.Sleep(time.Minute)
		if a := h.Sink.Account(); a.Handled != 0 || a.Pending.Total() != 1 {
			t.Errorf("%v", a)
		}
		h.Close(context.Background())

		var handled bytes.Buffer
		h = handlerFor(t, down, Config{
			Labels: map[string]string{"app": "test"},
		}, forebay.Delivery(func(o *deliver.OutputOptions) {
			o.Deliver.Handler = deliver.JSONLines(&handled)
			o.Deliver.PendingLimit = 5
			o.Deliver.Breaker = &deliver.BreakerOptions{Failures: 1}
		}))
		for range 10 {
			slog.New(h).Info("handled")
		}
		if err := h.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		rep, err := h.Close(context.Background())
		if err != nil || rep.Handled != 10 || strings.Count(handled.String(), `"labels":"{app=\"test\", level=\"info\"}","line":{"msg":"handled"}`) != 10 {
			t.Errorf("%v %v\n%s", rep, err, handled.String())
		}
	})
}

// Without OnError, events of the spool are written to standard error, like those of memory and
// delivery.
func TestSpoolEventsReachStandardError(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		sp, err := diskqueue.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		var b batch.Batch
		b.Append([]byte("x"), 0, batch.Meta{})
		if _, err := sp.Append(&b); err != nil {
			t.Fatal(err)
		}
		if err := sp.Close(); err != nil {
			t.Fatal(err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		old := os.Stderr
		os.Stderr = w
		defer func() { os.Stderr = old }()
		s, err := newSink(Config{
			URL:    "http://loki.test",
			Labels: map[string]string{"app": "x"},
			HTTP:   httpclient.Options{Client: &http.Client{Transport: new(peer)}},
		}, forebay.Name("here"), forebay.Spool(dir))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		s.Shutdown(ctx) // the spool keeps a record that is not an entry
		w.Close()
		out, _ := io.ReadAll(r)
		if want := "forebay: here: parked: spool: 1 records without a type "; !strings.Contains(string(out), want) {
			t.Errorf("%q does not contain %q", out, want)
		}
	})
}
