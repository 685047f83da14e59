package forebaytest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fake is a testing.TB that stores the errors and logs that a Recorder reports.
type fake struct {
	testing.TB
	mu       sync.Mutex
	errors   []string
	logs     []string
	fatal    bool
	cleanups []func()
}

func (f *fake) Helper()      {}
func (f *fake) Name() string { return "TestFake" }

func (f *fake) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

func (f *fake) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	f.fatal = true
	runtime.Goexit()
}

func (f *fake) Failed() bool                    { return len(f.errors) > 0 }
func (f *fake) Log(args ...any)                 { f.logs = append(f.logs, fmt.Sprint(args...)) }
func (f *fake) Logf(format string, args ...any) { f.Log(fmt.Sprintf(format, args...)) }
func (f *fake) Cleanup(fn func())               { f.cleanups = append(f.cleanups, fn) }

func (f *fake) end() {
	for _, fn := range f.cleanups {
		fn()
	}
}

// run calls fn in a new goroutine, so that Fatalf can end the goroutine, as in a test.
func (f *fake) run(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	<-done
}

// wantErrors compares the errors reported so far with want, without the times of records.
func (f *fake) wantErrors(t *testing.T, want ...string) {
	t.Helper()
	if len(f.errors) != len(want) {
		t.Fatalf("errors: %q", f.errors)
	}
	for i := range want {
		if f.errors[i] != want[i] {
			t.Errorf("error:\n%s\nwant:\n%s", f.errors[i], want[i])
		}
	}
}

// handle logs a record without a time, so that error texts can be compared.
func handle(t *testing.T, h slog.Handler, level slog.Level, msg string, args ...any) {
	t.Helper()
	rec := slog.NewRecord(time.Time{}, level, msg, 0)
	rec.Add(args...)
	if err := h.Handle(t.Context(), rec); err != nil {
		t.Error(err)
	}
}

func TestRecordsHaveAttributesByKey(t *testing.T) {
	rec := New(t)
	before := time.Now()
	rec.Logger().With(slog.String("app", "shop")).WithGroup("http").Log(slog.LevelDebug-8, "served",
		slog.Int("status", 200), slog.Group("url", slog.String("path", "/x"), slog.Bool("tls", false)),
		slog.Duration("took", 1500*time.Millisecond), slog.Any("err", io.EOF), slog.Uint64("big", math.MaxUint64),
		slog.Float64("part", 0.25), slog.Any("none", nil), slog.Any("list", []any{1, "a", map[string]any{"k": map[string]int{"n": 1}}}),
		slog.Any("empty", map[string]int{}))
	rec.Logger().Slog().Error("second")
	got := rec.Records()
	if len(got) != 2 {
		t.Fatalf("%d records", len(got))
	}
	r := got[0]
	if r.Level != slog.LevelDebug-8 || r.Message != "served" || r.Time.Before(before.Add(-time.Second)) || r.Time.After(time.Now().Add(time.Second)) {
		t.Errorf("%+v", r)
	}
	want := map[string]any{
		"app": "shop", "http.status": int64(200), "http.url.path": "/x", "http.url.tls": false,
		"http.took": int64(1500000000), "http.err": "EOF", "http.big": uint64(math.MaxUint64), "http.part": 0.25,
		"http.none": nil, "http.list": []any{int64(1), "a", map[string]any{"k.n": int64(1)}}, "http.empty": map[string]any{},
	}
	if !reflect.DeepEqual(r.Attrs, want) {
		t.Errorf("attrs\n%#v\nwant\n%#v", r.Attrs, want)
	}
	if !strings.HasPrefix(r.Source, "forebaytest/forebaytest_test.go:") {
		t.Errorf("source %q", r.Source)
	}
	if r = got[1]; r.Level != slog.LevelError || r.Message != "second" || len(r.Attrs) != 0 ||
		!strings.HasPrefix(r.Source, "forebaytest/forebaytest_test.go:") {
		t.Errorf("%+v", r)
	}
	got[0].Message = "changed"
	if rec.Records()[0].Message != "served" {
		t.Error("Records is not a copy")
	}
}

// The keys and formats of other loggers are recognized.
func TestLinesOfOtherLoggers(t *testing.T) {
	at := time.Date(2024, 5, 6, 7, 8, 9, 500e6, time.UTC)
	for _, c := range []struct {
		name, in string
		want     []Record
	}{
		{"zap", `{"level":"warn","ts":1714979289.5,"logger":"db","caller":"db/pool.go:7","msg":"slow","took":1.10}` + "\n",
			[]Record{{at, slog.LevelWarn, "slow", "db/pool.go:7", map[string]any{"logger": "db", "took": 1.1}}}},
		{"zerolog", `{"level":"error","n":1e3,"time":"2024-05-06T07:08:09.5Z","caller":"/go/src/app/main.go:7","message":"lost","level":"x"}` + "\n",
			[]Record{{at, slog.LevelError, "lost", "app/main.go:7", map[string]any{"n": int64(1000), "level": "x"}}}},
		{"slog", `{"time":"2024-05-06T07:08:09.5Z","level":"INFO+2","source":{"function":"main.f","file":"/app/main.go","line":7},"msg":"m","source":"cdn"}` + "\n",
			[]Record{{at, slog.LevelInfo + 2, "m", "app/main.go:7", map[string]any{"source": "cdn"}}}},
		{"logfmt", `ts=2024-05-06T07:08:09.5Z level=debug msg="a b" n=12`,
			[]Record{{at, slog.LevelDebug, "a b", "", map[string]any{"n": int64(12)}}}},
		{"text", "it broke\n\ngoroutine 1\n", []Record{{Message: "it broke\n\ngoroutine 1", Attrs: map[string]any{}}}},
		{"text with a level", "ERROR: no such file\n", []Record{{Level: slog.LevelError, Message: "ERROR: no such file", Attrs: map[string]any{}}}},
		{"several", `{"msg":"a"}` + "\n\r\n" + `{"msg":"b","source":"cdn","message":"c"}` + "\n",
			[]Record{{Message: "a", Attrs: map[string]any{}}, {Message: "b", Attrs: map[string]any{"source": "cdn", "message": "c"}}}},
		{"nothing", "", []Record{{Attrs: map[string]any{}}}},
		{"a number beyond all", `{"msg":"m","n":123456789012345678901234567890,"list":[1e999]}`,
			[]Record{{Message: "m", Attrs: map[string]any{"n": json.Number("123456789012345678901234567890"), "list": []any{json.Number("1e999")}}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := New(t)
			if n, err := io.WriteString(rec, c.in); n != len(c.in) || err != nil {
				t.Errorf("Write: %d, %v", n, err)
			}
			got := rec.Records()
			for i := range got {
				got[i].Time = got[i].Time.UTC()
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// One Recorder captures the records of all loggers of a program.
func TestRecorderCapturesSeveralLoggers(t *testing.T) {
	rec := New(t)
	slog.New(slog.NewJSONHandler(rec, nil)).Warn("from slog", "n", 1)
	log.New(rec, "app: ", 0).Print("from log")
	slog.NewLogLogger(rec.Logger().Slog().Handler(), slog.LevelError).Print("from a bridge")
	rec.Want(slog.LevelWarn, "from slog", "n", 1)
	rec.Want(slog.LevelInfo, "app: from log")
	rec.Want(slog.LevelError, "from a bridge")
}

// A Recorder can be an additional output of a program's Logger, with any encoder.
func TestRecorderIsOutputOfRouter(t *testing.T) {
	for _, enc := range []encode.Encoder{encode.JSON(nil), encode.JSON(&encode.Options{Time: "unixnano", Level: "lower"}), encode.JSON(&encode.Options{TimeKey: "-", LevelKey: "-"}), encode.Logfmt(nil)} {
		rec := New(t)
		var buf bytes.Buffer
		user := func(ctx context.Context, dst []slog.Attr) []slog.Attr { return append(dst, slog.String("user", "bob")) }
		log, err := forebay.New(forebay.Writer(&buf), forebay.Context(user), forebay.Writer(rec, forebay.Level(slog.LevelDebug), forebay.Encoder(enc)))
		if err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		log.Slog().With("a", 1).Debug("hello there", "b", 2)
		r := rec.Want(slog.LevelDebug, "hello there", "a", 1, "b", 2, "user", "bob")
		if len(r.Attrs) != 3 || r.Time.Before(before.Add(-time.Second)) || r.Time.After(time.Now().Add(time.Second)) {
			t.Errorf("%+v", r)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestWantComparesLevelMessageAttributes(t *testing.T) {
	rec := New(t)
	at := time.Now()
	type point struct{ X, Y int }
	rec.Logger().Info("m", slog.Int64("i", 1), slog.Duration("d", time.Second), slog.Any("err", errors.Join(io.EOF, io.ErrClosedPipe)),
		slog.Time("at", at), slog.Any("p", point{1, 2}), slog.Group("g", slog.String("s", "x")), slog.Any("l", []int{1, 2}))
	for _, args := range [][]any{
		nil,
		{"i", 1},
		{"i", uint8(1), "d", time.Second},
		{"d", 1_000_000_000},
		{"err", "EOF\nio: read/write on closed pipe"},
		{"err", errors.Join(io.EOF, io.ErrClosedPipe)},
		{"at", at},
		{"p", point{1, 2}},
		{"p.X", 1},
		{"p", map[string]int{"X": 1, "Y": 2}},
		{"g.s", "x"},
		{slog.Group("g", "s", "x")},
		{slog.Int("i", 1), "l", []any{1, 2}},
	} {
		if r := rec.Want(slog.LevelInfo, "m", args...); r.Message != "m" {
			t.Errorf("%v: %+v", args, r)
		}
	}
	f := &fake{}
	rec = New(f)
	rec.Logger().Info("m", slog.Int64("i", 1))
	for i, args := range [][]any{{"i", 2}, {"i", "1"}, {"j", 1}, {"i", nil}} {
		if rec.Want(slog.LevelInfo, "m", args...); len(f.errors) != i+1 {
			t.Errorf("%v is found", args)
		}
	}
	rec.Want(slog.LevelWarn, "m")
	rec.Want(slog.LevelInfo, "n")
	if len(f.errors) != 6 {
		t.Errorf("errors: %q", f.errors)
	}
}

func TestWantExplains(t *testing.T) {
	f := &fake{}
	rec := New(f)
	rec.Want(slog.LevelInfo, "request", "status", 200)
	h := rec.Logger().Slog().Handler()
	handle(t, h, slog.LevelInfo, "request", "status", 500, "path", "/<x>", "user", "bob")
	handle(t, h, slog.LevelInfo, "request", "status", 404, "path", "/y")
	handle(t, h, slog.LevelWarn, "other", "status", 200)
	if r := rec.Want(slog.LevelInfo, "request", "status", 200, "path", "/<x>", "id", 7); r.Attrs != nil {
		t.Errorf("%+v", r)
	}
	rec.Want(slog.LevelError, "othre", "status", 200)
	f.wantErrors(t, `no record
    INFO  "request" status=200
nothing was logged`, `no record
    INFO  "request" id=7 path="/<x>" status=200
the nearest of 3:
    INFO  "request" path="/<x>" status=500 user="bob"
        id: missing, want 7
        status: 500, want 200`, `no record
    ERROR "othre" status=200
the nearest of 3:
    WARN  "other" status=200
        level: WARN, want ERROR
        message: "other", want "othre"`)
}

func TestNoneReportsRecordsFromLevel(t *testing.T) {
	f := &fake{}
	rec := New(f)
	h := rec.Logger().Slog().Handler()
	rec.None(slog.LevelDebug)
	handle(t, h, slog.LevelInfo, "fine")
	rec.None(slog.LevelWarn)
	f.wantErrors(t)
	handle(t, h, slog.LevelWarn, "careful", "n", 1)
	handle(t, h, slog.LevelError, "lost")
	rec.None(slog.LevelWarn)
	f.wantErrors(t, `2 records of WARN or above:
    WARN  "careful" n=1
    ERROR "lost"`)
}

func TestWaitReturnsLaterRecord(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rec := New(t)
		rec.Logger().Info("tick", slog.Int("n", 0))
		if r := rec.Wait(0, slog.LevelInfo, "tick"); r.Attrs["n"] != int64(0) {
			t.Errorf("what is there is not found: %+v", r)
		}
		go func() {
			for n := 1; n < 5; n++ {
				time.Sleep(time.Second)
				rec.Logger().Info("tick", slog.Int("n", n))
			}
		}()
		start := time.Now()
		rec.Wait(time.Minute, slog.LevelInfo, "tick", "n", 3)
		if got := time.Since(start); got != 3*time.Second {
			t.Errorf("waited %v", got)
		}
		rec.Wait(time.Minute, slog.LevelInfo, "tick", "n", 4)
	})
}

func TestWaitFailsAfterTimeout(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &fake{}
		rec := New(f)
		handle(t, rec.Logger().Slog().Handler(), slog.LevelInfo, "m")
		start := time.Now()
		f.run(func() { rec.Wait(time.Minute, slog.LevelInfo, "n") })
		if got := time.Since(start); got != time.Minute || !f.fatal {
			t.Errorf("waited %v, fatal %v", got, f.fatal)
		}
		f.wantErrors(t, `within 1m0s no record
    INFO  "n"
the nearest of 1:
    INFO  "m"
        message: "m", want "n"`)
	})
}

// If the test has failed, the captured records are logged at its end.
func TestRecordsAreLoggedIfTestFails(t *testing.T) {
	f := &fake{}
	rec := New(f)
	handle(t, rec.Logger().Slog().Handler(), slog.LevelInfo, "first", "n", 1)
	handle(t, rec.Logger().Slog().Handler(), slog.LevelInfo, "second")
	f.end()
	if f.logs != nil {
		t.Errorf("logged at the end of the test: %q", f.logs)
	}
	f = &fake{}
	rec = New(f)
	handle(t, rec.Logger().Slog().Handler(), slog.LevelInfo, "first", "n", 1)
	handle(t, rec.Logger().Slog().Handler(), slog.LevelInfo, "second")
	f.Errorf("something else")
	f.end()
	if want := "2 records were logged:\n    INFO  \"first\" n=1\n    INFO  \"second\""; len(f.logs) != 1 || f.logs[0] != want {
		t.Errorf("logged at the end of the test: %q", f.logs)
	}
	f = &fake{errors: []string{"something"}}
	New(f)
	f.end()
	if len(f.logs) != 1 || f.logs[0] != "nothing was logged" {
		t.Errorf("logged at the end of the test: %q", f.logs)
	}
}

// A goroutine that logs after the end of its test does not end the process.
func TestLoggingAfterTestIsReported(t *testing.T) {
	var rec *Recorder
	var late bytes.Buffer
	t.Run("short", func(t *testing.T) {
		rec = New(t)
		rec.stderr = &late
		rec.Logger().Info("in time")
	})
	straggler := func() {
		rec.Logger().Warn("too late", slog.Int("n", 1))
		rec.Logger().Warn("later still")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		straggler()
	}()
	<-done
	got := late.String()
	for _, part := range []string{"forebaytest: logged after the end of TestLoggingAfterTestIsReported/short:\n", `WARN  "too late" n=1  at forebaytest/forebaytest_test.go:`,
		"TestLoggingAfterTestIsReported.func2()", "created by"} {
		if !strings.Contains(got, part) {
			t.Errorf("no %q in\n%s", part, got)
		}
	}
	if strings.Contains(got, "later still") || len(rec.Records()) != 1 {
		t.Errorf("%d records\n%s", len(rec.Records()), got)
	}
}

func TestManyGoroutines(t *testing.T) {
	const callers, each = 8, 200
	rec := New(t)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for n := range each {
				if n%2 == 0 {
					rec.Logger().Info("m", slog.Int("caller", c), slog.Int("n", n))
				} else {
					fmt.Fprintf(rec, `{"level":"info","msg":"m","caller":%d,"n":%d}`, c, n)
				}
			}
		})
	}
	rec.Wait(time.Hour, slog.LevelInfo, "m", "caller", 3, "n", each-1)
	wg.Wait()
	next := make([]int64, callers)
	for _, r := range rec.Records() {
		c := r.Attrs["caller"].(int64)
		if r.Attrs["n"] != next[c] {
			t.Fatalf("caller %d: %v, want %d", c, r, next[c])
		}
		next[c]++
	}
	for c, n := range next {
		if n != each {
			t.Errorf("caller %d: %d records", c, n)
		}
	}
	for _, o := range rec.Logger().Router().Stats().Outputs {
		if o.Dropped != (batch.Drops{}) {
			t.Errorf("dropped: %v", o.Dropped)
		}
	}
}

// Logger with options returns a new Logger.
func TestLoggerOptionsApply(t *testing.T) {
	f := &fake{}
	r := New(f)
	type key struct{}
	l := r.Logger(forebay.RedactKeys("password"), forebay.Context(func(ctx context.Context, dst []slog.Attr) []slog.Attr {
		return append(dst, slog.Any("trace", ctx.Value(key{})))
	}))
	l.InfoContext(context.WithValue(t.Context(), key{}, 7), "m", slog.String("password", "x"))
	r.Logger().Info("plain", slog.String("password", "x"))
	if got := r.Want(slog.LevelInfo, "m", "password", "[redacted]", "trace", 7).Source; !strings.HasPrefix(got, "forebaytest/forebaytest_test.go:") {
		t.Errorf("source %q", got)
	}
	r.Want(slog.LevelInfo, "plain", "password", "x")
	if f.Failed() {
		t.Error(f.errors)
	}
	done := make(chan bool)
	go func() { // Fatal ends this goroutine
		defer close(done)
		r.Logger(forebay.RedactKeys(""))
	}()
	<-done
	if !f.fatal || !strings.Contains(fmt.Sprint(f.errors), "redaction") {
		t.Error(f.errors)
	}
}

// As an output of another Logger, a Recorder receives source positions, even if no other encoder
// writes them.
func TestRecorderAsOutputHasSources(t *testing.T) {
	r := New(t)
	l, err := forebay.New(forebay.Console(io.Discard), forebay.Writer(r, forebay.Level(slog.LevelDebug)))
	if err != nil {
		t.Fatal(err)
	}
	l.Debug("m", slog.Int("n", 1))
	l.Slog().Info("slog")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	for _, rec := range r.Records() {
		if !strings.HasPrefix(rec.Source, "forebaytest/forebaytest_test.go:") {
			t.Errorf("%+v", rec)
		}
	}
	if len(r.Records()) != 2 {
		t.Error(r.Records())
	}
}
