package forebay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
	"github.com/forebay-log/forebay/file"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/loki"
	"github.com/forebay-log/forebay/netsink"
)

// A recordDiscard is a writer with memory that discards its records.
type recordDiscard struct{ io.Writer }

func (recordDiscard) WriteRecord([]byte, batch.Meta) error { return nil }

// The error of New contains every error of every output, with its position and a remedy. New closes
// the outputs that it has opened.
func TestNewReportsAllErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	var nilFile *os.File
	var nilLog *file.File
	var nilVar *slog.LevelVar
	closed := false
	dest := closingDest{deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) (o batch.Outcome) { return o }), &closed}
	blocker := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		opts   []forebay.Option
		want   []string
		closes bool // the destination must be closed
	}{
		{nil, []string{"routes: there is none; give an output"}, false},
		{[]forebay.Option{
			forebay.Console(nil), forebay.Console(nilFile), forebay.Writer(nilLog), forebay.To(nil),
			forebay.Writer(nilLog, forebay.Direct()), forebay.To(deliver.SendFunc(deliver.Traits{}, nil)),
		}, []string{
			"output 1 (forebay.Console): the writer is nil", "output 2 (forebay.Console): the writer is nil (*os.File)",
			"output 3 (forebay.Writer): the writer is nil (*file.File)", "output 4 (forebay.To): the destination is nil",
			"output 5 (forebay.Writer): the writer is nil; give one", "output 6 (forebay.To): the destination is nil; give one",
		}, false},
		{[]forebay.Option{forebay.File("nodir/app.log"), forebay.File("")}, []string{
			"output 1 (forebay.File): file: cannot open \"nodir/app.log\": its directory does not exist", "output 2 (forebay.File): file: cannot open a log file: its path is empty",
		}, false},
		{[]forebay.Option{
			loki.To("http://h:99999", loki.Label("app", "x")), fluent.To("h:99999", "t"), netsink.To("tcp://h:99999"), loki.To("localhost:3100"),
		}, []string{
			"output 1 (loki.To): loki: config: url: its port is 99999, but ports are 1 to 65535", "output 2 (fluent.To): fluent: server \"h:99999\": the port must be 1 to 65535",
			"output 3 (netsink.To)", "its port is 99999", "output 4 (loki.To)", "use http://host:3100",
		}, false},
		{[]forebay.Option{
			forebay.Console(os.Stderr, forebay.Rotate(1, 1)), forebay.File("a.log", loki.Label("a", "b")),
			loki.To("http://h", loki.Label("a", "b"), forebay.Compress("gzip")), forebay.Writer(io.Discard, forebay.Direct(), forebay.Spool("s")),
			forebay.File("b.log", forebay.BusyTimeout(1)),
			forebay.Console(os.Stderr, forebay.Direct()), forebay.File("c.log", forebay.CloseWriter()), forebay.Writer(recordDiscard{io.Discard}, forebay.Buffer(1<<20)),
			forebay.Writer(io.Discard, forebay.CloseWriter()), forebay.Writer(io.Discard, forebay.Direct(), forebay.CloseWriter()),
		}, []string{
			"output 1 (forebay.Console): forebay.Rotate does not apply to it", "output 2 (forebay.File): loki.Label does not apply to it",
			"output 3 (loki.To): forebay.Compress does not apply to it", "output 4 (forebay.Writer): forebay.Spool does not apply to it, because it writes in the caller; leave out Direct",
			"output 5 (forebay.File): BusyTimeout does not apply to it; see WhenFull",
			"output 6 (forebay.Console): Direct does not apply to it; use Writer(w, Direct())", "output 7 (forebay.File): CloseWriter does not apply to it; leave it out",
			"output 8 (forebay.Writer): forebay.Buffer does not apply to it, because its writer has memory; leave it out",
			"output 9 (forebay.Writer): CloseWriter: the writer (io.discard) has no method Close; leave it out", "output 10 (forebay.Writer): CloseWriter: the writer (io.discard) has no method Close",
		}, false},
		{[]forebay.Option{
			forebay.File("a.log", forebay.Rotate(100, 1)), forebay.File("b.log", forebay.Rotate(4<<10, -1)), forebay.File("c.log", forebay.RotateEvery(1, 0)),
			forebay.File("d.log", forebay.Compress("rar")), forebay.File("e.log", forebay.WhenFull("panic")), forebay.File("f.log", forebay.WhenFull("spill")),
			forebay.File("g.log", forebay.Buffer(1)), forebay.File("h.log", forebay.Delivery(nil)), forebay.File("i.log", nil),
			forebay.File("j.log", forebay.Level(nil)), forebay.File("k.log", forebay.Level(nilVar)), forebay.File("l.log", forebay.Encoder(nil)),
			forebay.File("m.log", forebay.Spool("")), forebay.File("n.log", forebay.Spool(blocker+"/x")), forebay.File("o.log", forebay.CrashSafe(blocker)),
			loki.To("http://h", loki.Label("a", "b"), loki.Label("a", "c")), loki.To("http://h", forebay.Configure[loki.Config](nil)), fluent.To("h", "t", forebay.Configure[fluent.Config](nil)),
			netsink.To("tcp://h:1", forebay.Configure[netsink.Config](nil)), fluent.To("h", "t", forebay.Encoder(encode.JSON(nil))),
			loki.To("http://h", loki.Label("a", "b"), forebay.Encoder(encode.JSON(&encode.Options{Level: "loud"}))),
		}, []string{
			"output 1 (forebay.File): forebay.Rotate: 100 bytes is too small for a file; give its maximum size in bytes, 4096 or more, such as 100<<20 for 100 MiB", "output 2 (forebay.File): forebay.Rotate: -1 old files", "output 3 (forebay.File): forebay.RotateEvery: 1ns is too short",
			`output 4 (forebay.File): forebay.Compress: "rar"`, "output 5 (forebay.File): forebay.WhenFull: slab: ", `output 6 (forebay.File): WhenFull is "spill", but there is no Spool; add Spool(dir)`,
			"output 7 (forebay.File): forebay.Buffer: 1 bytes are too few", "output 8 (forebay.File): forebay.Delivery: the function is nil", "output 9 (forebay.File): an option is nil",
			"output 10 (forebay.File): the level is a nil", "output 11 (forebay.File): the level is a nil *slog.LevelVar", "output 12 (forebay.File): the encoder is nil",
			"output 13 (forebay.File): forebay.Spool: the directory is empty", "output 14 (forebay.File): forebay.Spool: cannot make directory ", "output 15 (forebay.File): forebay.CrashSafe: cannot make directory ",
			"output 16 (loki.To): loki.Label: the label a is given twice", "output 17 (loki.To): forebay.Configure: the function is nil", "output 18 (fluent.To): forebay.Configure: the function is nil",
			"output 19 (netsink.To): forebay.Configure: the function is nil", "output 20 (fluent.To): the encoder does not write Forward entries", "output 21 (loki.To)", "loud",
		}, false},
		{[]forebay.Option{
			forebay.File("a.log", forebay.Spool("s")), forebay.File("b.log", forebay.Spool("./s"), forebay.Name("b")), forebay.Console(os.Stderr, forebay.Name("b")),
		}, []string{"output 2 (forebay.File): Spool: ", "is already used by output 1 (forebay.File); give each a separate one", `output 3 (forebay.Console): the name "b" is already used by output 2 (forebay.File)`}, false},
		{[]forebay.Option{
			forebay.File("a.log"), forebay.File("./a.log", forebay.Rotate(1<<20, 1)), forebay.File("c.log", forebay.Compress("gzip")),
		}, []string{"output 2 (forebay.File): the file ", "is already used by output 1 (forebay.File)", "output 3 (forebay.File): Compress applies to rotated files; add Rotate"}, false},
		{[]forebay.Option{forebay.Route(encode.JSON(nil), forebay.File("a.log", forebay.Encoder(encode.Logfmt(nil))), loki.To("http://h", loki.Label("a", "b")))}, []string{
			"route 1, output 1 (forebay.File): it has the option Encoder, but it is in a Route", "route 1, output 2 (loki.To): it has its own encoder; give it to New without a Route",
		}, false},
		{[]forebay.Option{forebay.To(dest), forebay.Console(nil)}, []string{"output 2 (forebay.Console)"}, true},
		{[]forebay.Option{forebay.To(dest, forebay.Buffer(1))}, []string{"output 1 (forebay.To): forebay.Buffer"}, true},
		{[]forebay.Option{forebay.Driver("x.To", 1, func(*int, *forebay.Setup) (deliver.Destination, error) { panic("oops") })}, []string{"output 1 (x.To): it panicked: oops"}, false},
	} {
		closed = false
		log, err := forebay.New(tt.opts...)
		if err == nil || log != nil {
			t.Fatalf("no error, want %q", tt.want)
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error:\n%v\nlacks %q", err, want)
			}
		}
		if tt.closes != closed {
			t.Errorf("the destination was closed: %t, want %t: %v", closed, tt.closes, err)
		}
	}
	log, err := forebay.New(forebay.File("a.log")) // the failed New has released the file
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
}

type closingDest struct {
	deliver.Destination
	closed *bool
}

func (d closingDest) Close(context.Context) error {
	*d.closed = true
	return nil
}

// A syncBuffer is a buffer that one goroutine writes and another goroutine reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Each common option has the same meaning for every output.
func TestOptionsApplyToAllOutputs(t *testing.T) {
	t.Chdir(t.TempDir())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	defer srv.Close()
	var console, text syncBuffer
	level := new(slog.LevelVar)
	var mu sync.Mutex
	var sent []string
	dest := deliver.SendFunc(deliver.Traits{}, func(_ context.Context, b *batch.Batch) batch.Outcome {
		mu.Lock()
		defer mu.Unlock()
		for _, rec := range b.All() {
			sent = append(sent, string(rec.Data))
		}
		return batch.Outcome{}
	})
	log, err := forebay.New(
		forebay.Console(&console, forebay.Level(slog.LevelDebug)),
		forebay.File("app.log", forebay.Rotate(1<<20, 2), forebay.CrashSafe("crash"), forebay.Level(level)),
		loki.To(srv.URL, loki.Label("app", "shop"), forebay.Spool("spool/loki"), forebay.Buffer(1<<20), forebay.WhenFull("spill")),
		forebay.Writer(&text, forebay.Encoder(encode.Logfmt(nil)), forebay.Name("text"), forebay.Level(slog.LevelWarn)),
		forebay.To(dest, forebay.Name("mine")),
		forebay.To(deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome { return batch.Outcome{} })),
	)
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("low")
	log.Info("mid", slog.Int("n", 1))
	slogger := log.Slog()
	slogger.Warn("high")
	level.Set(slog.LevelError)
	slogger.Warn("not in the file")
	var names []string
	for _, o := range log.Router().Stats().Outputs {
		names = append(names, o.Name)
	}
	if want := []string{"console", "file:app.log", "loki", "text", "mine", "forebay.To"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	rep, err := log.Router().Close(context.Background())
	if err != nil {
		t.Error(err)
	}
	for i, want := range []uint64{4, 2, 3, 2, 3, 3} {
		if got := rep.Outputs[i].Delivered; got != want {
			t.Errorf("%s: %d delivered, want %d: %v", rep.Outputs[i].Name, got, want, rep.Outputs[i])
		}
	}
	if s := console.String(); strings.Count(s, "\n") != 4 || !strings.Contains(s, "INFO  mid  n=1\n") {
		t.Errorf("console:\n%s", s)
	}
	b, err := os.ReadFile("app.log")
	if err != nil || strings.Count(string(b), "\n") != 2 || !strings.Contains(string(b), `"msg":"mid","n":1}`) {
		t.Errorf("file: %s, %v", b, err)
	}
	if s := text.String(); strings.Count(s, "\n") != 2 || !strings.Contains(s, " level=WARN msg=high\n") {
		t.Errorf("text: %s", s)
	}
	if len(sent) != 3 || !strings.Contains(sent[0], `"msg":"mid"`) {
		t.Errorf("mine: %q", sent)
	}
}

// A record is encoded once for all outputs with the same encoder.
func TestOutputsWithSameEncoderShareResult(t *testing.T) {
	calls := 0
	v := valuer(func() slog.Value { calls++; return slog.IntValue(calls) })
	var a, b, c syncBuffer
	log, err := forebay.New(forebay.Writer(&a), forebay.Writer(&b), forebay.Writer(&c, forebay.Direct()))
	if err != nil {
		t.Fatal(err)
	}
	log.Info("x", slog.Any("v", v))
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if calls != 1 || a.String() != b.String() || a.String() != c.String() || !strings.Contains(a.String(), `"v":1}`) {
		t.Errorf("%d calls, %q, %q, %q", calls, a.String(), b.String(), c.String())
	}
}

type valuer func() slog.Value

func (v valuer) LogValue() slog.Value { return v() }

// Records that Close keeps in a spool are delivered by the next Logger with that spool.
func TestSpooledRecordsAreDeliveredByNextNew(t *testing.T) {
	dir := t.TempDir()
	down := deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome { return batch.FailedOutcome(errors.New("down")) })
	quiet := forebay.OnError(func(batch.Event) {})
	log, err := forebay.New(quiet, forebay.To(down, forebay.Spool(dir), forebay.Name("mine")))
	if err != nil {
		t.Fatal(err)
	}
	log.Info("kept")
	rep, err := log.Router().Close(canceledContext(t))
	if err != nil || rep.Kept() != 1 {
		t.Fatalf("%v, %v", rep, err)
	}
	var got []string
	up := deliver.SendFunc(deliver.Traits{}, func(_ context.Context, b *batch.Batch) batch.Outcome {
		for _, rec := range b.All() {
			got = append(got, string(rec.Data))
		}
		return batch.Outcome{}
	})
	log, err = forebay.New(quiet, forebay.To(up, forebay.Spool(dir), forebay.Name("mine")))
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil || len(got) != 1 || !strings.Contains(got[0], "kept") {
		t.Errorf("%q, %v", got, err)
	}
}

// canceledContext returns a context that has ended.
func canceledContext(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// A Logger that discards all records has a nil Router, whose methods do nothing.
func TestNilRouter(t *testing.T) {
	var log *forebay.Logger
	r := log.Router()
	r.SetLevel("db", slog.LevelDebug)
	rep, err := r.Close(t.Context())
	if r.Levels() != nil || r.Flush(t.Context()) != nil || len(r.Stats().Outputs) != 0 || err != nil || len(rep.Outputs) != 0 || r.Logger() != nil {
		t.Error("a nil Router has something")
	}
	slog.New(r).With("a", 1).WithGroup("g").Info("nobody hears this")
}

// Logger.Close also writes the number of lost records to standard error, because a deferred call
// discards its error.
func TestLoggerCloseReportsLosses(t *testing.T) {
	down := deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome {
		return batch.FailedOutcome(errors.New("it is down"))
	})
	log, err := forebay.New(forebay.OnError(func(batch.Event) {}), forebay.To(down, forebay.Name("x"), forebay.Delivery(func(o *deliver.OutputOptions) {
		o.CloseTimeout = 100 * time.Millisecond
	})))
	if err != nil {
		t.Fatal(err)
	}
	stderr := stderrOf(t, func() {
		log.Info("lost")
		if err := log.Close(); err == nil || !strings.Contains(err.Error(), "1 record lost") {
			t.Errorf("%v, want a lost record", err)
		}
		_ = log.Close() // writes nothing more
	})
	if !strings.HasPrefix(stderr, "forebay: output x: deliver: close: ") || !strings.Contains(stderr, "it is down") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("standard error has %q", stderr)
	}
}

// Logger.Close writes to standard error how many records are kept on disk, and where.
func TestLoggerCloseReportsKeptRecords(t *testing.T) {
	down := deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome {
		return batch.FailedOutcome(errors.New("it is down"))
	})
	dir := t.TempDir()
	log, err := forebay.New(forebay.OnError(func(batch.Event) {}), forebay.To(down, forebay.Name("x"), forebay.Spool(dir), forebay.Delivery(func(o *deliver.OutputOptions) {
		o.Deliver.Breaker = &deliver.BreakerOptions{Failures: 1}
	})))
	if err != nil {
		t.Fatal(err)
	}
	text := stderrOf(t, func() {
		log.Info("a")
		log.Info("b")
		for end := time.Now().Add(time.Minute); log.Router().Stats().Outputs[0].Pending.Spill < 2 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, _ = log.Router().Close(ctx)
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		_ = log.Close() // writes nothing more
	})
	if want := "forebay: close: output x: 2 records kept in " + dir + " for the next start\n"; text != want {
		t.Errorf("standard error has %q, want %q", text, want)
	}
}

// Close writes the number of records that were dropped before the call, because the error of
// Close does not include them.
func TestLoggerCloseReportsDroppedRecords(t *testing.T) {
	release := make(chan struct{})
	slow := deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome { <-release; return batch.Outcome{} })
	log, err := forebay.New(forebay.OnError(func(batch.Event) {}), forebay.To(slow, forebay.Name("x"), forebay.Buffer(4096), forebay.WhenFull("drop-newest")))
	if err != nil {
		t.Fatal(err)
	}
	for range 100_000 {
		log.Info("a")
	}
	lost := log.Router().Stats().Outputs[0].Dropped.Total()
	close(release)
	text := stderrOf(t, func() { _ = log.Close() })
	if want := fmt.Sprintf("forebay: close: output x: %d records dropped since the start (full=%d)\n", lost, lost); lost == 0 || text != want {
		t.Errorf("standard error has %q, want %q", text, want)
	}
}

// CloseWriter closes the writer of a buffered output after its last record. Without CloseWriter the
// writer stays open.
func TestCloseWriter(t *testing.T) {
	for _, closes := range []bool{false, true} {
		f, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		w := &closeRecorder{}
		var opts []forebay.OutputOption
		if closes {
			opts = append(opts, forebay.CloseWriter())
		}
		log, err := forebay.New(forebay.Writer(f, opts...), forebay.Writer(w, opts...))
		if err != nil {
			t.Fatal(err)
		}
		log.Info("hello")
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(f.Name())
		if err != nil || !strings.Contains(string(text), "hello") || !strings.Contains(w.String(), "hello") {
			t.Errorf("file %q, %v, writer %q", text, err, w.String())
		}
		if _, err := f.WriteString("more"); errors.Is(err, os.ErrClosed) != closes || w.closed != closes {
			t.Errorf("CloseWriter %t: file %v, writer closed %t", closes, err, w.closed)
		}
	}
}

type closeRecorder struct {
	bytes.Buffer
	closed bool
}

func (c *closeRecorder) Close() error {
	c.closed = true
	return nil
}

// stderrOf returns the text that f writes to os.Stderr.
func stderrOf(t *testing.T, f func()) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stderr")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	old := os.Stderr
	os.Stderr = out
	defer func() { os.Stderr = old }()
	f()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// New reports every mistake on a line that names the output, even if one option or one driver has
// several.
func TestEachMistakeNamesItsOutput(t *testing.T) {
	_, err := forebay.New(
		forebay.File(filepath.Join(t.TempDir(), "a.log"), forebay.Rotate(-1, -2), forebay.RotateEvery(1, -3)),
		loki.To("http://h:99999", forebay.Configure(func(c *loki.Config) { c.BatchBytes = -1 })),
		forebay.File(filepath.Join(t.TempDir(), "b.log"), forebay.Delivery(func(o *deliver.OutputOptions) { o.BufferRecords, o.CloseTimeout = 1, -1 })))
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	for i, want := range []string{
		"output 1 (forebay.File): forebay.Rotate: -1 bytes", "output 1 (forebay.File): forebay.Rotate: -2 old files",
		"output 1 (forebay.File): forebay.RotateEvery: 1ns", "output 1 (forebay.File): forebay.RotateEvery: -3 old files",
		"output 2 (loki.To): loki: config: ", "output 2 (loki.To): loki: config: ",
	} {
		if want = "forebay: cannot make router: " + want; i >= len(lines) || !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d has not %q:\n%v", i+1, want, err)
		}
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, "forebay: cannot make router: output ") {
			t.Errorf("line without output: %q", line)
		}
	}
}
