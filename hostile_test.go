package forebay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/forebay-log/forebay/encode"
)

// Types of values whose methods panic, loop or call runtime.Goexit. Such values have crashed other
// loggers.
type (
	badValuer   struct{}
	loopValuer  struct{}
	badStringer struct{ s *string }
	badError    struct{}
	badMarshal  struct{}
	badText     struct{}
	cycle       struct{ Next *cycle }
)

func (badValuer) LogValue() slog.Value          { panic("LogValue panics") }
func (v loopValuer) LogValue() slog.Value       { return slog.AnyValue(v) }
func (b *badStringer) String() string           { return *b.s }
func (badError) Error() string                  { panic(errors.New("Error panics")) }
func (badMarshal) MarshalJSON() ([]byte, error) { panic("MarshalJSON panics") }
func (badText) MarshalText() ([]byte, error)    { return nil, errors.New("MarshalText fails") }

func hostile() map[string]slog.Attr {
	var (
		nilStringer *badStringer
		nilPathErr  *os.PathError
		nilValuer   *slog.LevelVar
	)
	loop := &cycle{}
	loop.Next = loop
	m := map[string]any{}
	m["self"] = m
	s := make([]any, 1)
	s[0] = s
	deep := slog.Int("x", 1)
	for range 5000 {
		deep = slog.Group("g", deep)
	}
	return map[string]slog.Attr{
		"panicking LogValuer":   slog.Any("k", badValuer{}),
		"endless LogValuer":     slog.Any("k", loopValuer{}),
		"nil Stringer":          slog.Any("k", nilStringer),
		"panicking Stringer":    slog.Any("k", &badStringer{}),
		"typed-nil error":       slog.Any("k", error(nilPathErr)),
		"nil LevelVar":          slog.Any("k", nilValuer),
		"panicking error":       slog.Any("k", badError{}),
		"wrapped panicking":     slog.Any("k", fmt.Errorf("x: %w", badError{})),
		"joined panicking":      slog.Any("k", errors.Join(badError{}, nilPathErr)),
		"panicking MarshalJSON": slog.Any("k", badMarshal{}),
		"failing MarshalText":   slog.Any("k", badText{}),
		"cyclic pointer":        slog.Any("k", loop),
		"cyclic map":            slog.Any("k", m),
		"cyclic slice":          slog.Any("k", s),
		"channel":               slog.Any("k", make(chan int)),
		"function":              slog.Any("k", func() {}),
		"map of functions":      slog.Any("k", map[string]any{"f": func() {}}),
		"nil":                   slog.Any("k", nil),
		"NaN":                   slog.Float64("k", math.NaN()),
		"Inf":                   slog.Any("k", []float64{math.Inf(1), math.Inf(-1)}),
		"complex":               slog.Any("k", complex(1, math.NaN())),
		"invalid UTF-8":         slog.String("k\xff", "v\xff\xc0\x80"),
		"control characters":    slog.String("a\nb\x00\x1b[31m", "c\r\n\u2028\x7f\x1b]0;x\a"),
		"huge":                  slog.String("k", strings.Repeat("x", 1<<20)),
		"empty key":             slog.String("", "v"),
		"far past":              slog.Time("k", time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC)),
		"far future":            slog.Time("k", time.Date(20000, 1, 1, 0, 0, 0, 0, time.FixedZone("odd", 12345))),
		"zero time":             slog.Time("k", time.Time{}),
		"deep group":            deep,
		"odd kind":              {Key: "k", Value: slog.AnyValue(slog.AnyValue(slog.Attr{}))},
	}
}

// If a method of a value panics, the panic does not reach the caller, each record arrives on one
// valid line, and later records are not affected.
func TestHostileValuesAffectNoOtherRecord(t *testing.T) {
	var js, lf, con bytes.Buffer
	k := &memOutput{}
	chain := &encode.Options{Errors: "chain"} // this option calls the most methods
	r := newRouter(t,
		Route(encode.JSON(chain), Writer(&js, Direct(), Name("json")), Writer(k)),
		Route(encode.Logfmt(chain), Writer(&lf, Direct(), Name("logfmt"))),
		Route(encode.Console(chain), Writer(&con, Direct(), Name("console"))))
	times := []time.Time{{}, time.Now(), time.Unix(0, math.MinInt64).Add(-time.Hour), time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)}
	for name, a := range hostile() {
		t.Run(name, func(t *testing.T) {
			ways := map[string]func(){
				"slog":      func() { slog.New(r).LogAttrs(t.Context(), slog.LevelInfo, "m\xff\n", a) },
				"slog any":  func() { slog.New(r).Info("m", []any{a.Key, a.Value.Any(), "odd"}...) },
				"slog With": func() { slog.New(r).With(a).WithGroup("g\n").With(a).Info("m") },
				"logger":    func() { r.Logger().Info("m", a) },
				"With":      func() { r.Logger().With(a).WithGroup("g").Error("m", a) },
			}
			for i, at := range times {
				ways[fmt.Sprint("time ", i)] = func() {
					rec := slog.NewRecord(at, slog.Level(math.MaxInt), "m", ^uintptr(0))
					rec.AddAttrs(a)
					if err := r.Handle(t.Context(), rec); err != nil {
						t.Error(err)
					}
				}
			}
			for way, f := range ways {
				for _, buf := range []*bytes.Buffer{&js, &lf, &con} {
					buf.Reset()
				}
				f()
				slog.New(r).Info("next", "x", 1)
				if lines := bytes.Count(js.Bytes(), []byte("\n")); lines != 2 {
					t.Errorf("%s: %d lines of JSON", way, lines)
				}
				for line := range bytes.Lines(js.Bytes()) {
					if !json.Valid(line) || !utf8.Valid(line) {
						t.Errorf("%s: invalid JSON %.200q", way, line)
					}
				}
				if lines := bytes.Count(lf.Bytes(), []byte("\n")); lines != 2 {
					t.Errorf("%s: %d lines of logfmt", way, lines)
				}
				if !bytes.HasSuffix(lf.Bytes(), []byte("msg=next x=1\n")) || bytes.ContainsAny(con.Bytes(), "\x1b\x00\a") {
					t.Errorf("%s: logfmt %.200q, console %.200q", way, lf.Bytes(), con.Bytes())
				}
			}
		})
	}
	for _, o := range r.Stats().Outputs {
		if o.Errors != 0 || o.Dropped.Total() != 0 {
			t.Errorf("%v", o)
		}
	}
}

// A LogValuer may call runtime.Goexit, as t.FailNow does, or log to the same router.
func TestLogValuerMayLogOrExit(t *testing.T) {
	var d lines
	r := newRouter(t, quiet(), Route(plain(), Writer(&d, Direct())))
	var wg sync.WaitGroup
	wg.Go(func() {
		r.Logger().Info("m", slog.Any("k", valuer(func() slog.Value { runtime.Goexit(); return slog.Value{} })))
	})
	wg.Wait()
	r.Logger().Info("outer", slog.Any("k", valuer(func() slog.Value {
		r.Logger().Info("inner")
		return slog.IntValue(1)
	})))
	got := d.all()
	want := []string{msg("inner"), `{"level":"INFO","msg":"outer","k":1}` + "\n"}
	if len(got) < 2 || got[len(got)-2] != want[0] || got[len(got)-1] != want[1] {
		t.Errorf("%q, want %q", got, want)
	}
}

type valuer func() slog.Value

func (f valuer) LogValue() slog.Value { return f() }

// The methods of an error are called once per route and record, for any number of outputs.
func TestErrorMethodsAreCalledOncePerRoute(t *testing.T) {
	var text, unwrap, stack int
	chain := &encode.Options{Errors: "chain"}
	e := &askedError{&text, &unwrap, &stack}
	out := func(name string) OutputSpec { return Writer(&lines{}, Direct(), Name(name)) }
	r := newRouter(t,
		Route(encode.JSON(chain), out("a"), out("b"), out("c")),
		Route(encode.Logfmt(chain), out("d"), out("e")))
	r.Logger().Info("m", slog.Any("err", e))
	if text != 2 || unwrap != 2 || stack != 2 {
		t.Errorf("two routes: Error was called %d times, Unwrap %d, Callers %d", text, unwrap, stack)
	}
}

type askedError struct{ text, unwrap, stack *int }

func (e *askedError) Error() string      { *e.text++; return "asked" }
func (e *askedError) Unwrap() error      { *e.unwrap++; return nil }
func (e *askedError) Callers() []uintptr { *e.stack++; return nil }
