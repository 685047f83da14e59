package forebay

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
)

// EnabledForAny considers every name with a level, even if no logger has the name yet.
func TestEnabledForAny(t *testing.T) {
	r := newRouter(t, Writer(io.Discard, Direct()), Writer(new(lines), Direct(), Level(slog.LevelError)))
	var none Router
	if none.h.EnabledForAny(slog.LevelError) {
		t.Error("a Router without outputs takes records")
	}
	want := func(want slog.Level) {
		t.Helper()
		for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			if got := r.h.EnabledForAny(l); got != (l >= want) {
				t.Errorf("%v: %v, want records from %v on", l, got, want)
			}
		}
	}
	want(slog.LevelInfo)
	r.SetLevel("", slog.LevelWarn)
	want(slog.LevelWarn)
	r.SetLevel("db", slog.LevelDebug)
	want(slog.LevelDebug)
	r.SetLevel("db", slog.LevelError)
	want(slog.LevelWarn)
	r.SetLevel("", nil)
	want(slog.LevelInfo)
}

// For random levels of names and outputs, the router behaves like an independent implementation of
// the rules of SetLevel.
func TestLevelsModel(t *testing.T) {
	all := []slog.Level{slog.LevelDebug - 1, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError, slog.LevelError + 1}
	names := []string{"", "db", "db.pool", "db.pool.x", "web", "dbx"}
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		// One output has no level, one has a fixed level, and one has a level that changes.
		var specs []OutputSpec
		var outs []slog.Leveler // nil: the level of the logger applies
		var bufs []*lines
		for range 1 + rnd.IntN(3) {
			var l slog.Leveler
			switch rnd.IntN(3) {
			case 0:
				l = all[rnd.IntN(len(all))]
			case 1:
				l = new(slog.LevelVar)
			}
			w := new(lines)
			outs, bufs = append(outs, l), append(bufs, w)
			opts := []OutputOption{Direct()}
			if l != nil {
				opts = append(opts, Level(l))
			}
			specs = append(specs, Writer(w, opts...))
		}
		r := newRouter(t, Route(plain(), specs...))
		log := r.Logger()
		set := map[string]slog.Level{}
		for range 30 {
			switch l := all[rnd.IntN(len(all))]; rnd.IntN(4) {
			case 0:
				name := names[rnd.IntN(len(names))]
				r.SetLevel(name, l)
				set[name] = l
			case 1:
				name := names[rnd.IntN(len(names))]
				r.SetLevel(name, nil)
				delete(set, name)
			case 2:
				for _, o := range outs {
					if v, ok := o.(*slog.LevelVar); ok && rnd.IntN(2) == 0 {
						v.Set(l)
					}
				}
			}
			name := names[rnd.IntN(len(names))]
			level := all[rnd.IntN(len(all))]
			gate, isSet := modelLevel(set, name)
			got := log.Named(name)
			any := false
			for i, o := range outs {
				n := bufs[i].len()
				want := !isSet || level >= gate
				if o == nil {
					want = want && (isSet || level >= slog.LevelInfo)
				} else {
					want = want && level >= o.Level()
				}
				any = any || want
				got.Log(level, "m")
				if fromSlog := rnd.IntN(2) == 0; fromSlog {
					bufs[i].reset()
					n = 0
					got.Slog().Log(context.Background(), level, "m")
				}
				if wrote := bufs[i].len() > n; wrote != want {
					t.Fatalf("seed %d: name %q at %v, set %v, output %v: written %t", seed, name, level, set, o, wrote)
				}
			}
			if got.Enabled(level) != any || got.Slog().Enabled(context.Background(), level) != any {
				t.Fatalf("seed %d: name %q at %v, set %v: enabled %t, want %t", seed, name, level, set, got.Enabled(level), any)
			}
			if any && !r.h.EnabledForAny(level) {
				t.Fatalf("seed %d: name %q at %v, set %v: no name is enabled", seed, name, level, set)
			}
		}
		for name, l := range r.Levels() {
			want, ok := modelLevel(set, name)
			if !ok {
				want = slog.LevelInfo
			}
			if l != want {
				t.Fatalf("seed %d: Levels returned %[3]v for %[2]q, want %[4]v", seed, name, l, want)
			}
		}
	}
}

func modelLevel(set map[string]slog.Level, name string) (slog.Level, bool) {
	for {
		if l, ok := set[name]; ok {
			return l, true
		}
		if name == "" {
			return 0, false
		}
		i := strings.LastIndex(name, ".")
		name = name[:max(i, 0)]
	}
}

// Handle applies the level of the logger name, even if the caller has not called Enabled.
func TestHandleObeysLevelOfName(t *testing.T) {
	var w lines
	r := newRouter(t, Route(plain(), Writer(&w, Direct(), Level(slog.LevelDebug))))
	r.SetLevel("db", slog.LevelWarn)
	rec := slog.NewRecord(time.Unix(1700000000, 0), slog.LevelInfo, "m", 0)
	if err := r.Logger().Named("db").Slog().Handler().Handle(context.Background(), rec); err != nil || w.len() != 0 {
		t.Errorf("%v, %q", err, w.all())
	}
	if err := r.Handle(context.Background(), rec); err != nil || w.len() != 1 {
		t.Errorf("%v, %q", err, w.all())
	}
}

// The logger name and the attributes of a context are outside all groups.
func TestNameAndContextAreOutsideGroups(t *testing.T) {
	type key struct{}
	var a, b lines
	r := newRouter(t, Route(plain(), Writer(&a, Direct())), Route(encode.Logfmt(&encode.Options{TimeKey: "-"}), Writer(&b, Direct())),
		Context(func(ctx context.Context, dst []slog.Attr) []slog.Attr {
			if ctx == nil {
				return dst
			}
			if id, ok := ctx.Value(key{}).(string); ok {
				dst = append(dst, slog.String("trace_id", id))
			}
			return dst
		}))
	ctx := context.WithValue(t.Context(), key{}, "t1")
	log := r.Logger()
	sub := log.With(slog.Int("a", 1)).Named("db").WithGroup("g").With(slog.Int("b", 2)).WithGroup("h").Named("pool")
	for _, tt := range []struct {
		log  func()
		want string
	}{
		{func() { log.InfoContext(ctx, "m", slog.Int("x", 1)) }, `"trace_id":"t1","x":1`},
		{func() { log.Slog().InfoContext(ctx, "m", "x", 1) }, `"trace_id":"t1","x":1`},
		{func() { sub.InfoContext(ctx, "m", slog.Int("x", 1)) }, `"a":1,"logger":"db.pool","trace_id":"t1","g":{"b":2,"h":{"x":1}}`},
		{func() { sub.Slog().InfoContext(ctx, "m", "x", 1) }, `"a":1,"logger":"db.pool","trace_id":"t1","g":{"b":2,"h":{"x":1}}`},
		{func() { sub.Info("m", slog.Int("x", 1)) }, `"a":1,"logger":"db.pool","g":{"b":2,"h":{"x":1}}`},
		{func() { sub.Info("m") }, `"a":1,"logger":"db.pool","g":{"b":2}`},
		{func() { sub.With(slog.Int("c", 3)).InfoContext(ctx, "m") }, `"a":1,"logger":"db.pool","trace_id":"t1","g":{"b":2,"h":{"c":3}}`},
		{func() { sub.WithContext(ctx).Info("m", slog.Int("x", 1)) }, `"a":1,"logger":"db.pool","trace_id":"t1","g":{"b":2,"h":{"x":1}}`},
		{func() { log.WithGroup("g").WithContext(ctx).Info("m") }, `"trace_id":"t1"`},
		{func() { log.WithGroup("g").Info("m", slog.Int("x", 1)) }, `"g":{"x":1}`},
		{func() { log.WithContext(ctx).Named("db").Named("x").Info("m") }, `"logger":"db.x","trace_id":"t1"`},
		{func() { sub.Slog().With("c", 3).WithGroup("i").InfoContext(ctx, "m", "x", 1) }, `"a":1,"logger":"db.pool","trace_id":"t1","g":{"b":2,"h":{"c":3,"i":{"x":1}}}`},
	} {
		a.reset()
		tt.log()
		if want := `{"level":"INFO","msg":"m",` + tt.want + "}\n"; a.len() != 1 || a.all()[0] != want {
			t.Errorf("%q\nwant %q", a.all(), want)
		}
	}
	if got := b.all()[2]; got != "level=INFO msg=m a=1 logger=db.pool trace_id=t1 g.b=2 g.h.x=1\n" {
		t.Errorf("%q", got)
	}
}

// If a Context function calls runtime.Goexit or panics, the record is logged.
func TestGoexitOfContextFunctionLosesNothing(t *testing.T) {
	var w lines
	r := newRouter(t, quiet(), Route(plain(), Writer(&w, Direct())), Context(func(context.Context, []slog.Attr) []slog.Attr { panic("oops") }))
	r.Logger().InfoContext(t.Context(), "m", slog.Int("x", 1))
	if want := []string{`{"level":"INFO","msg":"m","x":1}` + "\n"}; !slices.Equal(w.all(), want) {
		t.Errorf("%q, want %q", w.all(), want)
	}
}

// Names and contexts do not allocate per record.
func TestNamesAndContextsDoNotAllocate(t *testing.T) {
	race.Skip(t)
	r := newRouter(t, Route(plain(), Writer(io.Discard, Direct())), Context(func(_ context.Context, dst []slog.Attr) []slog.Attr {
		return append(dst, slog.Int("id", 1))
	}))
	ctx := t.Context()
	log := r.Logger().Named("db").WithGroup("g").With(slog.Int("b", 2)).WithGroup("h")
	if n := allocs.PerRun(100, func() { log.InfoContext(ctx, "m", slog.Int("x", 1)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := allocs.PerRun(100, func() { log.Debug("m", slog.Int("x", 1)) }); n != 0 {
		t.Errorf("%v allocations when off", n)
	}
}

// The source position is the position of the caller or, with WithCallerSkip, the position of the
// helper's caller.
func TestWithCallerSkipSkipsHelpers(t *testing.T) {
	var w lines
	r := newRouter(t, Route(encode.JSON(&encode.Options{TimeKey: "-", AddSource: true, Caller: "short"}), Writer(&w, Direct())))
	log := r.Logger()
	for name, helper := range map[string]func(*Logger){
		"Logger": func(l *Logger) { l.WithCallerSkip(1).InfoContext(t.Context(), "m") },
		"Slog":   func(l *Logger) { l.WithCallerSkip(1).Slog().Info("m") },
		"Slog, derived": func(l *Logger) {
			l.WithCallerSkip(1).Slog().With("a", 1).WithGroup("g").InfoContext(t.Context(), "m", "b", 2)
		},
		"in two steps": func(l *Logger) { func() { l.WithCallerSkip(1).WithCallerSkip(1).Slog().Info("m") }() },
	} {
		w.reset()
		_, _, line, _ := runtime.Caller(0)
		helper(log)
		if got, want := w.all()[0], fmt.Sprintf("/levels_test.go:%d\"", line+1); !strings.Contains(got, want) {
			t.Errorf("%s: %q lacks %q", name, got, want)
		}
	}
	// WithCallerSkip does not change the position of a record whose position is not on the stack.
	w.reset()
	h := log.WithCallerSkip(1).Slog().Handler()
	for _, pc := range []uintptr{0, reflect.ValueOf(TestExits).Pointer() + 1} {
		if err := h.Handle(t.Context(), slog.NewRecord(time.Time{}, slog.LevelInfo, "m", pc)); err != nil {
			t.Error(err)
		}
	}
	if got := w.all(); strings.Contains(got[0], "source") || !strings.Contains(got[1], "/sync_test.go:") {
		t.Errorf("%q", got)
	}
}

func ExampleLogger_Named() {
	log, err := New(Writer(lineWriter{}, Encoder(plain())))
	if err != nil {
		panic(err)
	}
	db := log.Named("db")
	db.Debug("not shown")
	log.Router().SetLevel("db", slog.LevelDebug) // may be called at any time
	db.Debug("query", slog.Int("rows", 3))
	log.Debug("not shown either")
	log.Close()
	// Output:
	// {"level":"DEBUG","msg":"query","logger":"db","rows":3}
}

// A lineWriter writes to standard output.
type lineWriter struct{}

func (lineWriter) Write(p []byte) (int, error) { return fmt.Print(string(p)) }
