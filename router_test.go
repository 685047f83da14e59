package forebay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
)

func TestSlogtest(t *testing.T) {
	var buf bytes.Buffer
	slogtest.Run(t, func(t *testing.T) slog.Handler {
		buf.Reset()
		return newRouter(t, Route(encode.JSON(nil), Writer(&buf, Direct(), Level(slog.LevelInfo))))
	}, func(t *testing.T) map[string]any {
		return parseLines(t, &buf)[0]
	})
}

// Logger.Slog with a buffered output passes testing/slogtest.
func TestSlogtestLogger(t *testing.T) {
	var k *memOutput
	slogtest.Run(t, func(t *testing.T) slog.Handler {
		k = &memOutput{}
		return newRouter(t, Route(encode.JSON(nil), Writer(k, Level(slog.LevelInfo)))).Logger().Slog().Handler()
	}, func(t *testing.T) map[string]any {
		return parseLines(t, strings.NewReader(strings.Join(k.all(), "")))[0]
	})
}

// WithGroup with an empty name, and WithAttrs without attributes, return the receiver, as
// slog.Handler requires.
func TestEmptyWithReturnsTheReceiver(t *testing.T) {
	var buf bytes.Buffer
	r := newRouter(t, Route(encode.JSON(nil), Writer(&buf, Direct(), Level(slog.LevelInfo))))
	var none *Router
	for _, h := range []slog.Handler{r, none, &Router{}, r.Logger().Slog().Handler(), r.WithGroup("g"), r.WithAttrs([]slog.Attr{slog.Int("a", 1)})} {
		if h.WithGroup("") != h || h.WithAttrs(nil) != h || h.WithAttrs([]slog.Attr{}) != h {
			t.Errorf("%T: WithGroup or WithAttrs returned another handler", h)
		}
	}
}

// A record is encoded once per route, for any number of outputs. It is not encoded for a route
// whose outputs do not accept the level.
func TestOneEncodePerRoute(t *testing.T) {
	a, b := &countingEncoder{Encoder: plain()}, &countingEncoder{Encoder: plain()}
	var outs [5]lines
	r := newRouter(t,
		Route(a, Writer(&outs[0], Direct(), Level(slog.LevelInfo)), Writer(&outs[1], Direct(), Level(slog.LevelWarn)), Writer(&outs[2], Direct(), Level(slog.LevelDebug))),
		Route(b, Writer(&outs[3], Direct(), Level(slog.LevelError)), Writer(&outs[4], Direct(), Level(slog.LevelError+4))))
	log := slog.New(r)
	log.Debug("d")
	log.Info("i")
	log.Warn("w")
	if a.n != 3 || b.n != 0 {
		t.Errorf("encoded %d and %d times, want 3 and 0", a.n, b.n)
	}
	log.Error("e")
	if a.n != 4 || b.n != 1 {
		t.Errorf("encoded %d and %d times, want 4 and 1", a.n, b.n)
	}
	for i, want := range []int{3, 2, 4, 1, 0} {
		if got := outs[i].len(); got != want {
			t.Errorf("output %d has %d records, want %d", i, got, want)
		}
		if st := r.Stats().Outputs[i]; st.Accepted != uint64(want) {
			t.Errorf("output %d accepted %d records, want %d", i, st.Accepted, want)
		}
	}
	if r.Enabled(t.Context(), slog.LevelDebug-1) || !r.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("Enabled does not follow the lowest output")
	}
}

// A leveler is a function that implements slog.Leveler.
type leveler func() slog.Level

func (f leveler) Level() slog.Level { return f() }

// Levels change at run time, separately for each output.
func TestLevelsChangeAtRunTime(t *testing.T) {
	var a, b lines
	va, vb := new(slog.LevelVar), new(slog.LevelVar)
	custom := slog.LevelInfo
	var c lines
	r := newRouter(t, Route(plain(), Writer(&a, Direct(), Level(va)), Writer(&b, Direct(), Level(vb)), Writer(&c, Direct(), Level(leveler(func() slog.Level { return custom })))))
	log, nat := slog.New(r), r.Logger()
	counts := func() string { return fmt.Sprint(a.len(), b.len(), c.len()) }
	step := func(l slog.Level, want string) {
		t.Helper()
		log.Log(t.Context(), l, "m")
		if got := counts(); got != want {
			t.Errorf("counts %s, want %s", got, want)
		}
	}
	step(slog.LevelInfo, "1 1 1")
	step(slog.LevelDebug, "1 1 1")
	va.Set(slog.LevelDebug)
	step(slog.LevelDebug, "2 1 1")
	vb.Set(slog.LevelError)
	step(slog.LevelInfo, "3 1 2")
	custom = slog.LevelError
	step(slog.LevelInfo, "4 1 2")
	va.Set(slog.LevelError + 1)
	if nat.Enabled(slog.LevelWarn) || r.Enabled(t.Context(), slog.LevelWarn) {
		t.Error("enabled for a level that no output takes")
	}
	if got := r.Stats().Outputs[0].Level; got != slog.LevelError+1 {
		t.Errorf("Stats shows level %v", got)
	}
}

func TestPanicOfLevelerAdmitsRecords(t *testing.T) {
	var a lines
	r := newRouter(t, Route(plain(), Writer(&a, Direct(), Level(leveler(func() slog.Level { panic("oops") })))))
	slog.New(r).Debug("m")
	r.Logger().Debug("m")
	if a.len() != 2 {
		t.Errorf("%d records, want 2", a.len())
	}
}

// An output without a level accepts slog.LevelInfo and above, as slog.HandlerOptions with a nil
// level does.
func TestNilLevelIsInfo(t *testing.T) {
	var a lines
	r := newRouter(t, Route(plain(), Writer(&a, Direct())))
	r.Logger().Debug("m")
	r.Logger().Info("m")
	if a.len() != 1 {
		t.Errorf("%d records, want 1", a.len())
	}
}

// Attributes and groups are the same on every route, whether they are added by a Logger or by slog.
func TestWithAndGroupsOnAllRoutes(t *testing.T) {
	var a, b lines
	r := newRouter(t,
		Route(plain(), Writer(&a, Direct(), Level(slog.LevelInfo))),
		Route(encode.Logfmt(&encode.Options{TimeKey: "-"}), Writer(&b, Direct(), Level(slog.LevelInfo))))
	log := slog.New(r).With("x", 1).WithGroup("g").With("y", 2)
	log.Info("m", "z", 3)
	r.Logger().With(slog.Int("x", 1)).WithGroup("g").With(slog.Int("y", 2)).Info("m", slog.Int("z", 3))
	r.Logger().With(slog.Int("x", 1)).WithGroup("g").With(slog.Int("y", 2)).Slog().Info("m", "z", 3)
	r.Logger().Info("bare")
	wantA := `{"level":"INFO","msg":"m","x":1,"g":{"y":2,"z":3}}` + "\n"
	wantB := "level=INFO msg=m x=1 g.y=2 g.z=3\n"
	for i := range 3 {
		if got := a.all()[i]; got != wantA {
			t.Errorf("%d: %q, want %q", i, got, wantA)
		}
		if got := b.all()[i]; got != wantB {
			t.Errorf("%d: %q, want %q", i, got, wantB)
		}
	}
	if got := a.all()[3]; got != msg("bare") {
		t.Errorf("the router itself has changed: %q", got)
	}
}

// A keepingScope encodes the attributes of With only when a record is encoded, not in WithAttrs.
type keepingScope struct {
	encode.Scope
	attrs []slog.Attr
}

type keepingEncoder struct{ encode.Encoder }

func (e keepingEncoder) Scope() encode.Scope { return keepingScope{e.Encoder.Scope(), nil} }

func (s keepingScope) WithAttrs(attrs []slog.Attr) encode.Scope {
	return keepingScope{s.Scope, attrs}
}

func (s keepingScope) Append(dst []byte, r *encode.Record) ([]byte, batch.Meta, error) {
	return s.Scope.WithAttrs(s.attrs).Append(dst, r)
}

// With copies the attributes, because the encoder may keep the slice it is given.
func TestWithCopiesAttributes(t *testing.T) {
	var a lines
	r := newRouter(t, Route(keepingEncoder{plain()}, Writer(&a, Direct(), Level(slog.LevelInfo))))
	attrs := []slog.Attr{slog.Int("x", 1)}
	l := r.Logger().With(attrs...)
	attrs[0] = slog.Int("x", 2)
	l.Info("m", attrs...)
	if got, want := a.all()[0], `{"level":"INFO","msg":"m","x":1,"x":2}`+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestBufferedOutputReceivesMeta(t *testing.T) {
	k := &memOutput{}
	r := newRouter(t, Route(plain(), Writer(k, Level(slog.LevelDebug))))
	now := time.Unix(1234, 5678)
	if err := r.Handle(t.Context(), slog.NewRecord(now, slog.LevelWarn, "m", 0)); err != nil {
		t.Error(err)
	}
	if got, want := k.metas[0], (batch.Meta{Time: now.UnixNano(), Level: slog.LevelWarn}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A record is logged even if its context has ended.
func TestEndedContextDoesNotDropRecord(t *testing.T) {
	var a lines
	r := newRouter(t, Route(plain(), Writer(&a, Direct(), Level(slog.LevelInfo))))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	slog.New(r).InfoContext(ctx, "m")
	var none context.Context
	slog.New(r).InfoContext(none, "m")
	if a.len() != 2 {
		t.Errorf("%d records, want 2", a.len())
	}
}

type ctxKey struct{}

func TestContextAttributesPrecedeArguments(t *testing.T) {
	var a lines
	ev := &eventLog{}
	static := make([]slog.Attr, 1, 10)
	static[0] = slog.Int("static", 1)
	r := newRouter(t, OnError(ev.add),
		Context(func(ctx context.Context, dst []slog.Attr) []slog.Attr {
			if len(dst) != 0 {
				t.Errorf("an extractor sees %v", dst)
			}
			if ctx == nil {
				return dst
			}
			switch v := ctx.Value(ctxKey{}).(type) {
			case string:
				return append(dst, slog.String("trace_id", v))
			case int:
				for i := range v {
					dst = append(dst, slog.Int(fmt.Sprint("n", i), i))
				}
			case error:
				panic(v)
			}
			return dst
		}),
		Context(func(ctx context.Context, dst []slog.Attr) []slog.Attr { return static[:1] }),
		Context(func(ctx context.Context, dst []slog.Attr) []slog.Attr {
			return append(dst, slog.Int("gone", 1))[:0]
		}),
		Route(plain(), Writer(&a, Direct(), Level(slog.LevelInfo))))
	log := slog.New(r)
	ctx := context.WithValue(t.Context(), ctxKey{}, "abc")
	for _, tt := range []struct {
		log  func()
		want string
	}{
		{func() { log.InfoContext(ctx, "m", "x", 1) }, `"trace_id":"abc","static":1,"x":1}`},
		{func() { log.Info("m", "x", 1) }, `"static":1,"x":1}`},
		{func() { log.WithGroup("g").InfoContext(ctx, "m", "x", 1) }, `"trace_id":"abc","static":1,"g":{"x":1}}`},
		{func() { log.InfoContext(context.WithValue(ctx, ctxKey{}, errTest), "m", "x", 1) }, `"static":1,"x":1}`},
		{func() { r.Logger().Info("m", slog.Int("x", 1)) }, `"x":1}`},
		{func() { r.Logger().WithContext(ctx).Info("m", slog.Int("x", 1)) }, `"trace_id":"abc","static":1,"x":1}`},
		{func() { log.InfoContext(context.WithValue(ctx, ctxKey{}, 2), "m") }, `"n0":0,"n1":1,"static":1}`},
	} {
		n := a.len()
		tt.log()
		want := `{"level":"INFO","msg":"m",` + tt.want + "\n"
		if got := a.all()[n]; got != want {
			t.Errorf("%q\nwant %q", got, want)
		}
	}
	// The record has more attributes than the pooled memory has room for.
	log.InfoContext(context.WithValue(ctx, ctxKey{}, 100), "m", "last", true)
	if got := a.all()[a.len()-1]; !strings.Contains(got, `"n99":99,"static":1,"last":true`) {
		t.Errorf("%q", got)
	}
	if static[0].Key != "static" || !slices.EqualFunc(static[1:10], make([]slog.Attr, 9), slog.Attr.Equal) {
		t.Errorf("the slice of the Context function was changed: %v", static[:10])
	}
	ev.wantOps(t, r, "context panic")

	// Attributes that a Context function has appended but not returned are cleared.
	s := r.h.core.pool.get()
	r.h.core.addContext(ctx, s)
	for _, a := range s.attrs[:cap(s.attrs)] {
		if a.Key == "gone" {
			t.Error("scratch keeps an attribute that the function removed")
		}
	}
	r.h.core.pool.put(s)
}

// If a Context function calls runtime.Goexit, the record is logged.
func TestGoexitOfContextFunctionDropsNoRecord(t *testing.T) {
	var a lines
	ev := &eventLog{}
	r := newRouter(t, OnError(ev.add),
		Context(func(_ context.Context, dst []slog.Attr) []slog.Attr { return append(dst, slog.Int("before", 1)) }),
		Context(func(_ context.Context, dst []slog.Attr) []slog.Attr { runtime.Goexit(); return dst }),
		Route(plain(), Writer(&a, Direct())))
	done := make(chan struct{})
	go func() {
		defer close(done)
		slog.New(r).Info("m", "x", 1)
	}()
	<-done
	if want := `{"level":"INFO","msg":"m","before":1,"x":1}` + "\n"; a.len() != 1 || a.all()[0] != want {
		t.Errorf("%q, want %q", a.all(), want)
	}
	ev.wantOps(t, r, "context panic")
}

// The source position is the position of the call, for every way of logging, even if the methods
// are inlined.
func TestSourcePositionIsThatOfCall(t *testing.T) {
	var a lines
	enc := &countingEncoder{Encoder: encode.JSON(&encode.Options{AddSource: true})}
	r := newRouter(t, Route(enc, Writer(&a, Direct(), Level(slog.LevelDebug))))
	l, log := r.Logger(), slog.New(r)
	_, _, line, _ := runtime.Caller(0)
	l.Debug("m")
	l.Info("m", slog.Int("x", 1))
	l.Warn("m")
	l.Error("m")
	l.Log(slog.LevelInfo, "m")
	l.Slog().Info("m")
	log.Info("m")
	l.With(slog.Int("x", 1)).Info("m")
	for i, got := range parseLines(t, strings.NewReader(strings.Join(a.all(), ""))) {
		src := got["source"].(map[string]any)
		if int(src["line"].(float64)) != line+1+i || !strings.HasSuffix(src["file"].(string), "router_test.go") {
			t.Errorf("call %d: %v, want line %d", i, src, line+1+i)
		}
	}
}

// If an encoder fails, the outputs of its route that would have accepted the record count it as
// dropped. Other outputs are not affected.
func TestEncodeErrorAffectsOnlyItsRoute(t *testing.T) {
	for _, how := range []string{"error", "panic", "goexit", "shrunk"} {
		t.Run(how, func(t *testing.T) {
			bad := &countingEncoder{Encoder: plain()}
			bad.fail = func(n int) error {
				if n > 2 {
					return nil
				}
				switch how {
				case "panic":
					panic("oops")
				case "goexit":
					runtime.Goexit()
				}
				return errTest
			}
			var enc encode.Encoder = bad
			if how == "shrunk" {
				enc = shrinking{plain(), bad}
			}
			var a, b, c, d lines
			k := &memOutput{}
			ev := &eventLog{}
			r := newRouter(t, OnError(ev.add),
				Route(plain(), Writer(&a, Direct(), Level(slog.LevelInfo), Name("a"))),
				Route(enc, Writer(&b, Direct(), Level(slog.LevelInfo), Name("b")), Writer(&c, Direct(), Level(slog.LevelError), Name("c")), Writer(k, Level(slog.LevelInfo), Name("k"))),
				Route(plain(), Writer(&d, Direct(), Level(slog.LevelInfo), Name("d"))))
			log := slog.New(r)
			for range 3 {
				var wg sync.WaitGroup
				wg.Go(func() { log.Info("m") })
				wg.Wait()
			}
			if a.len() != 3 || b.len() != 1 || k.len() != 1 || c.len() != 0 || d.len() != 3 {
				t.Errorf("records: a %d, b %d, c %d, k %d, d %d", a.len(), b.len(), c.len(), k.len(), d.len())
			}
			for name, want := range map[string]uint64{"a": 0, "b": 2, "c": 0, "k": 2, "d": 0} {
				st := outputStats(t, r, name)
				if st.Dropped[batch.Encode] != want || st.Dropped.Total() != want || st.Check() != nil {
					t.Errorf("%v, want %d", st, want)
				}
			}
			ev.wantOps(t, r, "b encode", "k encode", "b recovered", "k recovered")

			if how == "shrunk" {
				return // the first encoder receives an empty slice, so it cannot return a shorter one
			}
			// A router with one route and one output, which uses core.sole, behaves like a router
			// with several.
			for _, opts := range [][]OutputOption{{Name("b"), Direct()}, {Name("b")}} {
				bad.n = 0
				ev = &eventLog{}
				r = newRouter(t, OnError(ev.add), Route(enc, Writer(&lines{}, opts...)))
				for range 3 {
					var wg sync.WaitGroup
					wg.Go(func() { r.Logger().Info("m") })
					wg.Wait()
				}
				if err := r.Flush(t.Context()); err != nil {
					t.Error(err)
				}
				if st := outputStats(t, r, "b"); st.Dropped[batch.Encode] != 2 || st.Delivered != 1 {
					t.Errorf("%v", st)
				}
				ev.wantOps(t, r, "b encode", "b recovered")
			}
		})
	}
}

// A shrinking encoder at first returns a shorter slice than it received.
type shrinking struct {
	encode.Encoder
	n *countingEncoder
}

type shrinkingScope struct {
	encode.Scope
	n *countingEncoder
}

func (e shrinking) Scope() encode.Scope { return shrinkingScope{e.Encoder.Scope(), e.n} }

func (s shrinkingScope) Append(dst []byte, r *encode.Record) ([]byte, batch.Meta, error) {
	if s.n.n++; s.n.n <= 2 {
		return nil, batch.Meta{}, nil
	}
	return s.Scope.Append(dst, r)
}

// A brokenScope is a scope whose methods WithAttrs and WithGroup fail. The router then uses the
// scope unchanged.
type brokenScope struct{ encode.Scope }

func (brokenScope) WithAttrs([]slog.Attr) encode.Scope { panic("oops") }
func (brokenScope) WithGroup(string) encode.Scope      { return nil }

type brokenEncoder struct{ encode.Encoder }

func (e brokenEncoder) Scope() encode.Scope { return brokenScope{e.Encoder.Scope()} }

func TestFailedDerivationKeepsScope(t *testing.T) {
	var a, b lines
	ev := &eventLog{}
	r := newRouter(t, OnError(ev.add), Route(brokenEncoder{plain()}, Writer(&a, Direct(), Name("a"))), Route(plain(), Writer(&b, Direct())))
	slog.New(r).With("x", 1).WithGroup("g").Info("m", "y", 2)
	if got, want := a.all()[0], `{"level":"INFO","msg":"m","y":2}`+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := b.all()[0], `{"level":"INFO","msg":"m","x":1,"g":{"y":2}}`+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	ev.wantOps(t, r, "a encode")
}

// If buffered outputs fail, the router continues and reports it.
func TestBufferedOutputErrorsAreReported(t *testing.T) {
	var a lines
	own, bare, panics := &memOutput{fail: errTest}, &bareMemOutput{}, &panickingOutput{}
	bare.t.fail = errTest
	ev := &eventLog{}
	r := newRouter(t, OnError(ev.add), Route(plain(),
		Writer(own, Name("own")), Writer(bare, Name("bare")), Writer(panics, Name("panics")), Writer(&a, Direct(), Name("a"))))
	for range 2 {
		err := r.Handle(t.Context(), slog.NewRecord(time.Now(), slog.LevelInfo, "m", 0))
		if !errors.Is(err, errTest) {
			t.Errorf("Handle: %v", err)
		}
	}
	bare.t.fail = batch.ErrClosed
	slog.New(r).Info("m")
	if a.len() != 3 {
		t.Errorf("the last output has %d records", a.len())
	}
	if st := outputStats(t, r, "own"); st.Errors != 3 || st.Accepted != 0 || st.LastError != "test error" {
		t.Errorf("%v", st)
	}
	if st := outputStats(t, r, "bare"); st.Errors != 3 || st.Accepted != 2 || st.Dropped[batch.Failed] != 2 {
		t.Errorf("%v", st)
	}
	if st := outputStats(t, r, "panics"); st.Panics != 3 || st.Dropped[batch.Failed] != 3 {
		t.Errorf("%v panics=%d", st, st.Panics)
	}
	if st := r.Stats(); st.Refused != 1 {
		t.Errorf("refused %d, want 1", st.Refused)
	}
	ev.wantOps(t, r, "panics panic")
}

type panickingOutput struct{ io.Writer }

func (panickingOutput) WriteRecord([]byte, batch.Meta) error { panic("oops") }

func (panickingOutput) Name() string { panic("oops") }

// A badAccount is an output whose method Account panics.
type badAccount struct{ memOutput }

func (*badAccount) Account() batch.Account { panic("oops") }

func TestPanicOfAccountIsContained(t *testing.T) {
	r := newRouter(t, Route(plain(), Writer(&badAccount{})))
	if st := r.Stats().Outputs[0]; st.Accepted != 0 {
		t.Errorf("%v", st)
	}
}

// After Close, a record that no output would accept is not counted as refused.
func TestDisabledRecordsAreNotCountedAsRefused(t *testing.T) {
	for _, levels := range [][2]slog.Leveler{{slog.LevelInfo, slog.LevelWarn}, {new(slog.LevelVar), new(slog.LevelVar)}} {
		r := newRouter(t, Route(plain(), Writer(&lines{}, Direct(), Level(levels[0])), Writer(&lines{}, Direct(), Level(levels[1]))))
		if _, err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		r.Logger().Debug("m")
		if st := r.Stats(); st.Refused != 0 {
			t.Errorf("refused %d", st.Refused)
		}
		r.Logger().Info("m")
		if st := r.Stats(); st.Refused != 1 {
			t.Errorf("refused %d, want 1", st.Refused)
		}
	}
}

func TestZeroRouterDiscards(t *testing.T) {
	var r Router
	if r.Enabled(t.Context(), slog.LevelError) {
		t.Error("enabled")
	}
	log := slog.New(r.WithAttrs([]slog.Attr{slog.Int("x", 1)}).WithGroup("g"))
	log.Error("m")
	r.Logger().With(slog.Int("x", 1)).WithGroup("g").Error("m")
	if err := r.Handle(t.Context(), slog.Record{}); !errors.Is(err, errClosed) {
		t.Error(err)
	}
	if _, err := r.Close(t.Context()); err != nil || r.Flush(t.Context()) != nil || len(r.Stats().Outputs) != 0 {
		t.Error("a zero Router does something")
	}
}

func TestNilLoggerDiscards(t *testing.T) {
	discards(t, nil)
	discards(t, new(Logger))
}

func discards(t *testing.T, l *Logger) {
	l.Debug("m")
	l.Info("m")
	l.Warn("m")
	l.Error("m", slog.Int("x", 1))
	l.Log(slog.LevelError, "m")
	l.With(slog.Int("x", 1)).WithGroup("g").WithContext(t.Context()).Slog().Error("m")
	if l.Enabled(slog.LevelError) {
		t.Error("enabled")
	}
}

func TestStatsString(t *testing.T) {
	st := Stats{Refused: 3, Outputs: []OutputStats{
		{Name: "a", Account: batch.Account{Accepted: 2, Delivered: 2}},
		{Name: "b", Account: batch.Account{Accepted: 1, Dropped: batch.Drops{batch.Busy: 1}}, Errors: 4, Stuck: true},
	}}
	want := "a: accepted=2 delivered=2\nb: accepted=1 delivered=0 dropped=1{busy=1} errors=4 stuck\nrefused=3"
	if got := st.String(); got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
}
