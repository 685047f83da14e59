package forebay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
)

// If a program ends in a way listed in docs/EXITS.md immediately after a record, the record is in
// the file, or is lost, as that page documents.
func TestExits(t *testing.T) {
	if mode := os.Getenv("FOREBAY_EXIT"); mode != "" {
		exitAs(mode)
		return
	}
	for _, tt := range []struct {
		mode string
		want []string // lines in the file; its last line contains the last element
		lost string   // text that is not in the file
		err  string   // text on standard error
		code int
	}{
		{"close", []string{"before"}, "", "", 0},
		{"log.Fatal", []string{"before", "last words"}, "", "", 1},
		{"log.Panicf with positions", []string{"before", "last words"}, "", "panic: last words", 2},
		{"NewLogLogger", []string{"before", "last words"}, "", "", 1},
		{"recover", []string{"before", `"msg":"panic","panic":"oops","stack":"`}, "", "panic: oops [recovered, repanicked]", 2},
		{"Exit", []string{"before"}, "", "", 3},
		{"sync level", []string{"before", "important"}, "not important", "", 4},
		{"SIGTERM", []string{"before", "stopping"}, "", "", 0},
		{"os.Exit", nil, "before", "", 5},
		{"after close", []string{"before"}, "too late", "router: closed: a record was written after Close; it and later records are refused\n", 0},
		{"log.Fatal after close", []string{"before"}, "too late", "router: closed: a record was written after Close; it and later records are refused\n", 1},
		{"sampled", []string{"before", "more", "last words"}, "", "", 1},
		{"below the level", nil, "words", "", 1}, // see docs/EXITS.md
		{"below the level, set apart", []string{"important", "last words"}, "", "", 1},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			if tt.mode == "SIGTERM" && runtime.GOOS == "windows" {
				t.Skip("no such signal")
			}
			dir := t.TempDir()
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(exe, "-test.run=^TestExits$")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "FOREBAY_EXIT="+tt.mode)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			var exit *exec.ExitError
			if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("exit code %d, want %d: %s", code, tt.code, stderr.String())
			}
			b, err := os.ReadFile(dir + "/app.log")
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if !strings.Contains(string(b), want) {
					t.Errorf("%q lacks %q", b, want)
				}
			}
			if n := len(tt.want); n > 0 {
				b := bytes.TrimSuffix(b, []byte("\n"))
				if last := b[bytes.LastIndexByte(b, '\n')+1:]; !bytes.Contains(last, []byte(tt.want[n-1])) {
					t.Errorf("the last line is %q, want %q", last, tt.want[n-1])
				}
			}
			if tt.lost != "" && strings.Contains(string(b), tt.lost) {
				t.Errorf("%q has %q", b, tt.lost)
			}
			if !strings.Contains(stderr.String(), tt.err) {
				t.Errorf("standard error %q lacks %q", stderr.String(), tt.err)
			}
		})
	}
}

// A slowFile is the name of a file to which each Write takes 500 ms. Exit must wait for such a
// Write.
type slowFile string

func (f slowFile) Write(p []byte) (int, error) {
	time.Sleep(500 * time.Millisecond)
	return len(p), os.WriteFile(string(f), p, 0o600)
}

// exitAs runs in a child process, which it ends in the given way.
func exitAs(mode string) {
	flags := 0
	if mode == "log.Panicf with positions" {
		flags = log.Lshortfile
	}
	log.SetFlags(flags)
	var opts []Option
	level := slog.LevelInfo
	switch mode {
	case "sync level":
		opts = append(opts, SyncLevel(slog.LevelWarn))
	case "sampled":
		opts = append(opts, Sample(slog.LevelInfo, 1, 0))
	case "below the level", "below the level, set apart":
		level = slog.LevelWarn
	}
	// Records are flushed only when log.Fatal, Exit or Close requires it.
	never := Delivery(func(o *deliver.OutputOptions) { o.Slab.FlushInterval, o.Slab.FlushLevel = -1, slog.Level(100) })
	out := File("app.log", Level(level), never)
	if mode == "Exit" {
		out = Writer(slowFile("app.log"), never)
	}
	l, err := New(append(opts, out)...)
	if err != nil {
		panic(err)
	}
	slog.SetDefault(l.Slog())
	l.Info("before")
	switch mode {
	case "close":
		l.Close()
		os.Exit(0)
	case "log.Fatal":
		log.Fatal("last words")
	case "log.Panicf with positions":
		log.Panicf("last %s", "words")
	case "NewLogLogger":
		slog.NewLogLogger(l.Slog().Handler(), slog.LevelDebug+4).Fatalln("last words")
	case "recover":
		defer l.Recover()
		panic("oops")
	case "Exit":
		Exit(3)
	case "sync level":
		l.Warn("important")
		l.Info("not important")
		os.Exit(4)
	case "SIGTERM": // as main in docs/EXITS.md
		defer os.Exit(0)
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		defer l.Close()
		defer l.Recover()
		p, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = p.Signal(syscall.SIGTERM)
		}
		if err != nil {
			panic(err)
		}
		<-ctx.Done()
		slog.Info("stopping")
	case "os.Exit":
		os.Exit(5)
	case "after close":
		l.Close()
		l.Info("too late")
		slog.Info("too late")
		os.Exit(0)
	case "log.Fatal after close":
		l.Close()
		log.Fatal("too late")
	case "sampled":
		log.Print("last words")
		l.Info("more")
		log.Fatal("last words")
	case "below the level":
		slog.Warn("important words")
		log.Fatal("last words")
	case "below the level, set apart":
		slog.SetLogLoggerLevel(slog.LevelError)
		slog.Warn("important")
		log.Fatal("last words")
	}
}

// With SyncLevel, callers wait for a hanging destination for at most 250 ms, and not at all while
// its circuit breaker is open.
func TestSyncLevelWaitsAtMost250ms(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var down atomic.Bool
		hang := make(chan struct{})
		dest := deliver.SendFunc(deliver.Traits{}, func(ctx context.Context, b *batch.Batch) batch.Outcome {
			if down.Load() {
				return batch.FailedOutcome(errors.New("down"))
			}
			select {
			case <-ctx.Done():
			case <-hang:
			}
			return batch.FailedOutcome(errors.New("hung"))
		})
		l, err := New(quiet(), SyncLevel(slog.LevelError), To(dest))
		if err != nil {
			t.Fatal(err)
		}
		took := func() time.Duration {
			begun := time.Now()
			l.Error("m")
			return time.Since(begun)
		}
		if d := took(); d != syncTimeout {
			t.Errorf("waited %v", d)
		}
		down.Store(true)
		close(hang)
		time.Sleep(time.Minute) // enough failures to open the circuit breaker
		if d := took(); d != 0 {
			t.Errorf("waited %v with an open circuit", d)
		}
		l.Close()
	})
}

// Recover does nothing on a nil Logger, and without a panic.
func TestRecoverWithoutPanicOrLogger(t *testing.T) {
	var w lines
	r := newRouter(t, Route(plain(), Writer(&w, Direct())))
	func() { defer r.Logger().Recover() }()
	if w.len() != 0 {
		t.Errorf("%q", w.all())
	}
	for _, l := range []*Logger{nil, {}, r.Logger()} {
		func() {
			defer func() {
				if p := recover(); p != "oops" {
					t.Errorf("recovered %v", p)
				}
			}()
			defer l.Recover()
			panic("oops")
		}()
	}
	if w.len() != 1 || !strings.Contains(w.all()[0], "TestRecoverWithoutPanicOrLogger") {
		t.Errorf("%q", w.all())
	}
}

// The detection of log.Fatal does not allocate for a call site seen before.
func TestFatalDetectionDoesNotAllocate(t *testing.T) {
	race.Skip(t)
	var w lines
	r := newRouter(t, Route(plain(), Writer(&w, Direct(), Level(slog.LevelError))))
	log := slog.New(r)
	if n := allocs.PerRun(100, func() { log.Info("m") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSampleLimitsBurst(t *testing.T) {
	var a, b lines
	r := newRouter(t, Sample(slog.LevelInfo, 2, 3), Sample(slog.LevelWarn, 1, 0), Route(plain(), Writer(&a, Direct()), Writer(&b, Direct(), Level(slog.LevelError))))
	at := time.Unix(1700000000, 0)
	h := r.Logger().Slog().Handler()
	log := func(sec int, l slog.Level, msg string, n int) (got string) {
		a.reset()
		for range n {
			h.Handle(context.Background(), slog.NewRecord(at.Add(time.Duration(sec)*time.Second), l, msg, 0))
		}
		for _, s := range a.all() {
			_, s, _ = strings.Cut(s, `"msg":`)
			got += strings.TrimSuffix(s, "}\n") + " "
		}
		return got
	}
	for _, tt := range []struct {
		sec  int
		l    slog.Level
		msg  string
		n    int
		want string
	}{
		{0, slog.LevelInfo, "x", 9, `"x" "x" "x","repeated":2 "x","repeated":2 `},
		{0, slog.LevelInfo, "y", 1, `"y" `},
		{0, slog.LevelInfo + 3, "x", 1, `"x" `}, // a level outside the ranges of all samples
		{1, slog.LevelInfo, "x", 3, `"x","repeated":1 "x" `},
		{0, slog.LevelWarn, "x", 3, `"x" `},
		{9, slog.LevelWarn, "x", 1, `"x","repeated":2 `},
		{0, slog.LevelError, "x", 5, `"x" "x" "x" "x" "x" `}, // no Sample for this level
	} {
		if got := log(tt.sec, tt.l, tt.msg, tt.n); got != tt.want {
			t.Errorf("%d × %v %s in second %d: %q, want %q", tt.n, tt.l, tt.msg, tt.sec, got, tt.want)
		}
	}
	st := r.Stats().Outputs
	if st[0].Dropped[batch.Sampled] != 8 || st[0].Accepted != st[0].Delivered+8 {
		t.Errorf("%v", st[0])
	}
	if st[1].Dropped.Total() != 0 || st[1].Delivered != 5 {
		t.Errorf("%v", st[1])
	}
	// Records of loggers with different names are counted separately.
	a.reset()
	db := r.Logger().Named("db")
	for range 3 {
		for _, l := range []*Logger{r.Logger(), db, db.With(slog.Int("a", 1))} {
			l.Slog().Handler().Handle(context.Background(), slog.NewRecord(at, slog.LevelWarn, "n", 0))
		}
	}
	if got := a.all(); len(got) != 2 || !strings.Contains(got[1], `"logger":"db"`) {
		t.Errorf("%q, want one record of each name", got)
	}
	// Sample also applies to calls of the Logger.
	a.reset()
	for range 100 {
		r.Logger().Warn("z")
	}
	if n := a.len(); n < 1 || n > 50 {
		t.Errorf("%d of 100 logged", n)
	}
}

func TestSampleRefusesInvalidCounts(t *testing.T) {
	for _, tt := range []struct {
		opts []Option
		want string
	}{
		{[]Option{Sample(0, -1, 1)}, "Sample(INFO): first -1 and every 1 are not valid counts"},
		{[]Option{Sample(0, 0, 0)}, "Sample(INFO): it leaves out every record"},
		{[]Option{Sample(0, 1, 0), Sample(1, 1, 0)}, "Sample(INFO+1): its levels overlap those of Sample(INFO)"},
	} {
		_, err := NewRouter(append(tt.opts, Writer(&lines{}, Direct()))...)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}

// Sample limits a burst of one message.
func ExampleSample() {
	log, err := New(Sample(slog.LevelInfo, 1, 100), Writer(lineWriter{}, Encoder(plain())))
	if err != nil {
		panic(err)
	}
	h := log.Slog().Handler()
	// All records have the same time, so that they are in one second. A program would call
	// log.Info.
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for range 101 {
		h.Handle(context.Background(), slog.NewRecord(noon, slog.LevelInfo, "retrying", 0))
	}
	log.Close()
	fmt.Println(log.Router().Stats())
	// Output:
	// {"level":"INFO","msg":"retrying"}
	// {"level":"INFO","msg":"retrying","repeated":99}
	// writer: accepted=101 delivered=2 dropped=99{sampled=99}
}

// log.Fatal writes the number of undelivered records to standard error, both for a hanging
// destination and for a destination whose circuit breaker is open. If all records are delivered,
// it writes nothing.
func TestFatalReportsUndeliveredRecords(t *testing.T) {
	for state, want := range map[string]string{
		"well":  "",
		"hangs": "forebay: output dest: the program may exit now; 3 records not delivered after 250ms\n",
		"down":  "forebay: output dest: the program may exit now; 3 records not delivered at once: ",
	} {
		bubble.Test(t, func(t *testing.T) {
			dest := deliver.SendFunc(deliver.Traits{}, func(ctx context.Context, b *batch.Batch) (o batch.Outcome) {
				switch state {
				case "hangs":
					<-ctx.Done()
				case "down":
				default:
					return o
				}
				return batch.FailedOutcome(errors.New("down"))
			})
			l, err := New(quiet(), To(dest, Name("dest")))
			if err != nil {
				t.Fatal(err)
			}
			text := captureStderr(t)
			l.Info("one")
			l.Info("two")
			time.Sleep(time.Minute) // the circuit breaker is open by then
			func() {
				defer func() { _ = recover() }()
				defer l.Recover()
				panic("oops")
			}()
			if got := text(); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
				t.Errorf("%s: %q", state, got)
			}
			_, _ = l.Router().Close(t.Context())
		})
	}
}
