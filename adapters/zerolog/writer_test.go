package forebayzerolog

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/forebaytest"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newLog returns a Logger that writes JSON without times to w.
func newLog(t testing.TB, w io.Writer) *forebay.Logger {
	t.Helper()
	r, err := forebay.NewRouter(forebay.Route(encode.JSON(&encode.Options{TimeKey: "-"}), forebay.Writer(w, forebay.Direct(), forebay.Level(slog.LevelDebug-8))))
	if err != nil {
		t.Fatal(err)
	}
	return r.Logger()
}

type user struct{ name string }

func (u user) MarshalZerologObject(e *zerolog.Event) { e.Str("name", u.name).Int("n", 1) }

type users []user

func (us users) MarshalZerologArray(a *zerolog.Array) {
	for _, u := range us {
		a.Object(u)
	}
}

// fields contains a function for every type of zerolog that adds a field of this type.
var fields = []func(*zerolog.Event) *zerolog.Event{
	func(e *zerolog.Event) *zerolog.Event { return e.Str("str", "a \"b\"\n\u2028<é>\xff") },
	func(e *zerolog.Event) *zerolog.Event { return e.Strs("strs", []string{"a", "b"}) },
	func(e *zerolog.Event) *zerolog.Event {
		return e.Bytes("bytes", []byte("a\x00")).Hex("hex", []byte{1, 255})
	},
	func(e *zerolog.Event) *zerolog.Event {
		return e.RawJSON("raw", []byte(`{"z":1.10,"a":[1,{"k":1e3}]}`))
	},
	func(e *zerolog.Event) *zerolog.Event { return e.Err(errors.New("broken")).AnErr("cause", io.EOF) },
	func(e *zerolog.Event) *zerolog.Event { return e.Errs("errs", []error{io.EOF, nil}) },
	func(e *zerolog.Event) *zerolog.Event { return e.Bool("bool", true).Bools("bools", []bool{true, false}) },
	func(e *zerolog.Event) *zerolog.Event {
		return e.Int64("min", math.MinInt64).Uint64("max", math.MaxUint64).Uint8("u8", 8)
	},
	func(e *zerolog.Event) *zerolog.Event {
		return e.Float64("f", 0.1).Float32("f32", 0.1).Float64("tiny", 5e-324).Float64("big", 1e300).Float64("nan", math.NaN()).Float64("one", 1)
	},
	func(e *zerolog.Event) *zerolog.Event {
		return e.Time("at", time.Unix(7, 5)).Dur("dur", 1500*time.Microsecond).TimeDiff("diff", time.Unix(9, 0), time.Unix(7, 0))
	},
	func(e *zerolog.Event) *zerolog.Event {
		return e.Dict("dict", zerolog.Dict().Str("s", "x").Dict("in", zerolog.Dict().Int("n", 1)))
	},
	func(e *zerolog.Event) *zerolog.Event {
		return e.Object("object", user{"bob"}).Array("array", users{{"a"}, {"b"}}).EmbedObject(user{"embedded"})
	},
	func(e *zerolog.Event) *zerolog.Event {
		return e.Interface("any", map[string]any{"k": []int{1, 2}}).Any("nil", nil).Any("empty", struct{}{})
	},
	func(e *zerolog.Event) *zerolog.Event {
		return e.IPAddr("ip", net.IPv4(127, 0, 0, 1)).Stringer("stringer", net.IPv4(1, 2, 3, 4)).Type("type", 1)
	},
	func(e *zerolog.Event) *zerolog.Event { return e.Fields(map[string]any{"x": 1, "y": []string{"z"}}) },
	func(e *zerolog.Event) *zerolog.Event {
		return e.Str("password", "").Str("", "no key").Str("a.b", "dots")
	},
}

// members returns the members of a JSON line. builtin contains the members that zerolog adds
// itself. list contains all other members in order, as text with normalized escapes.
func members(t *testing.T, line []byte) (list []string, builtin map[string]string) {
	t.Helper()
	builtin = map[string]string{}
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if _, err := d.Token(); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		switch key {
		case "level", "msg", "message":
			builtin[strings.Replace(key.(string), "message", "msg", 1)] = strings.ToLower(string(b))
		default:
			list = append(list, strconv.Quote(key.(string))+": "+string(b))
		}
	}
	return list, builtin
}

// The fields of a zerolog line are written in their original order and with their original digits.
func TestFieldsKeepOrderAndDigits(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	levels := []zerolog.Level{zerolog.DebugLevel, zerolog.InfoLevel, zerolog.WarnLevel, zerolog.ErrorLevel}
	for n := range 200 {
		var theirs, ours bytes.Buffer
		some := []func(*zerolog.Event) *zerolog.Event{fields[n%len(fields)]}
		for _, i := range rnd.Perm(len(fields))[:rnd.IntN(4)] {
			some = append(some, fields[i])
		}
		level, with := levels[rnd.IntN(len(levels))], rnd.IntN(2) == 0
		for _, w := range []io.Writer{&theirs, New(newLog(t, &ours))} {
			l := zerolog.New(w)
			if with {
				l = l.With().Str("app", "shop").Dict("ctx", zerolog.Dict().Int("n", 1)).Logger()
			}
			e := l.WithLevel(level)
			for _, f := range some {
				e = f(e)
			}
			e.Msg("hello <world>")
		}
		a, aIn := members(t, theirs.Bytes())
		b, bIn := members(t, ours.Bytes())
		if !reflect.DeepEqual(a, b) || !reflect.DeepEqual(aIn, bIn) {
			t.Fatalf("seed %d:\nzerolog %sours    %s", seed, theirs.String(), ours.String())
		}
	}
}

// Numbers, booleans and objects in a line become attributes of the matching kinds, so that
// redaction and labels apply to them.
func TestAttributesKeepTheirKinds(t *testing.T) {
	var b bytes.Buffer
	r, err := forebay.NewRouter(forebay.Route(encode.Logfmt(&encode.Options{TimeKey: "-", ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 1 && groups[0] == "user" && a.Key == "password" {
			a.Value = slog.StringValue("gone")
		}
		if a.Key == "n" && a.Value.Kind() != slog.KindInt64 {
			t.Errorf("n is of kind %v", a.Value.Kind())
		}
		return a
	}}), forebay.Writer(&b, forebay.Direct())))
	if err != nil {
		t.Fatal(err)
	}
	zl := zerolog.New(New(r.Logger().With(slog.String("app", "shop")).WithGroup("req")))
	zl.Info().Int("n", 7).Dict("user", zerolog.Dict().Str("password", "hunter2")).Msg("m")
	zl = zerolog.New(New(r.Logger()))
	zl.Info().Dict("user", zerolog.Dict().Str("password", "hunter2")).Send()
	const want = "level=INFO msg=m app=shop req.n=7 req.user.password=hunter2\nlevel=INFO msg=\"\" user.password=gone\n"
	if b.String() != want {
		t.Errorf("got  %swant %s", b.String(), want)
	}
}

func TestLevelsMapToSlog(t *testing.T) {
	rec := forebaytest.New(t)
	for in, want := range map[zerolog.Level]slog.Level{
		zerolog.TraceLevel: slog.LevelDebug - 4, zerolog.DebugLevel: slog.LevelDebug, zerolog.InfoLevel: slog.LevelInfo,
		zerolog.WarnLevel: slog.LevelWarn, zerolog.ErrorLevel: slog.LevelError, zerolog.FatalLevel: slog.LevelError + 4,
		zerolog.PanicLevel: slog.LevelError + 4, zerolog.NoLevel: slog.LevelInfo,
	} {
		// The second writer has no method WriteLevel.
		for _, w := range []io.Writer{New(rec.Logger()), struct{ io.Writer }{New(rec.Logger())}} {
			l := zerolog.New(w).Level(-10)
			l.WithLevel(in).Int("in", int(in)).Msg("m")
			rec.Want(want, "m", "in", int(in))
		}
	}
	for _, r := range rec.Records() {
		if r.Attrs["level"] != nil {
			t.Error(r)
		}
	}
	if n := len(rec.Records()); n != 16 {
		t.Errorf("%d records", n)
	}
	// A line is not parsed if no output accepts its level.
	r, err := forebay.NewRouter(forebay.Writer(io.Discard, forebay.Direct(), forebay.Level(slog.LevelWarn)))
	if err != nil {
		t.Fatal(err)
	}
	w, line := New(r.Logger()), []byte(`{"level":"info","message":"m"}`)
	if n := allocs.PerRun(100, func() { w.WriteLevel(zerolog.InfoLevel, line) }); n > 0 {
		t.Errorf("%v allocations for nothing", n)
	}
}

// set sets a variable of zerolog for the duration of a test.
func set[T any](t *testing.T, v *T, to T) {
	old := *v
	*v = to
	t.Cleanup(func() { *v = old })
}

func TestTimeFormats(t *testing.T) {
	at := time.Date(2024, 5, 6, 7, 8, 9, 123456789, time.UTC)
	set(t, &zerolog.TimestampFunc, func() time.Time { return at })
	for format, unit := range map[string]time.Duration{
		time.RFC3339: time.Second, time.RFC3339Nano: 1, zerolog.TimeFormatUnix: time.Second,
		zerolog.TimeFormatUnixMs: time.Millisecond, zerolog.TimeFormatUnixMicro: time.Microsecond, zerolog.TimeFormatUnixNano: 1,
	} {
		set(t, &zerolog.TimeFieldFormat, format)
		rec := forebaytest.New(t)
		l := zerolog.New(New(rec.Logger())).With().Timestamp().Logger()
		l.Info().Int("n", 1).Msg("m")
		if r := rec.Want(slog.LevelInfo, "m", "n", 1); !r.Time.Equal(at.Truncate(unit)) || len(r.Attrs) != 1 {
			t.Errorf("%q: %v, %v", format, r.Time.UTC(), r)
		}
	}
	set(t, &zerolog.TimestampFunc, time.Now)
	set(t, &zerolog.TimeFieldFormat, time.RFC3339)
	rec := forebaytest.New(t)
	l := zerolog.New(New(rec.Logger()))
	before := time.Now()
	l.Info().Msg("without")
	l.Info().Str("time", "noon").Msg("no time")
	l.Info().Timestamp().Msg("with")
	after := time.Now()
	rec.Want(slog.LevelInfo, "no time", "time", "noon")
	for _, r := range rec.Records() {
		if r.Time.Before(before.Truncate(time.Second)) || r.Time.After(after) {
			t.Errorf("%v: not between %v and %v", r, before, after)
		}
	}
}

// zerolog writes whole seconds. Records of the same second still have increasing times.
func TestTimesWithinASecondKeepOrder(t *testing.T) {
	rec := forebaytest.New(t)
	l := zerolog.New(New(rec.Logger())).With().Timestamp().Logger()
	for range 100 {
		l.Info().Msg("m")
	}
	records, fractions := rec.Records(), 0
	for i, r := range records {
		if r.Time.Nanosecond() != 0 {
			fractions++
		}
		// parse reads the clock after zerolog, so the second may have ended meanwhile.
		if i > 0 && r.Time.Before(records[i-1].Time.Truncate(time.Second)) {
			t.Errorf("%v after %v", r.Time, records[i-1].Time)
		}
	}
	if fractions == 0 {
		t.Error("no record has a fraction of a second")
	}
}

func TestFieldNamesOfZerologAreUsed(t *testing.T) {
	set(t, &zerolog.LevelFieldName, "severity")
	set(t, &zerolog.MessageFieldName, "text")
	set(t, &zerolog.TimestampFieldName, "@timestamp")
	set(t, &zerolog.LevelFieldMarshalFunc, func(l zerolog.Level) string { return strings.ToUpper(l.String()) })
	rec := forebaytest.New(t)
	for _, w := range []io.Writer{New(rec.Logger()), struct{ io.Writer }{New(rec.Logger())}} {
		l := zerolog.New(w).With().Timestamp().Logger()
		l.Warn().Str("level", "x").Str("time", "y").Str("text", "first").Msg("m")
	}
	for _, r := range rec.Records() {
		want := map[string]any{"level": "x", "time": "y", "text": "first"}
		if r.Level != slog.LevelWarn || r.Message != "m" || !reflect.DeepEqual(r.Attrs, want) {
			t.Error(r)
		}
	}
	if n := len(rec.Records()); n != 2 {
		t.Errorf("%d records", n)
	}
}

func TestTextLineBecomesTheMessage(t *testing.T) {
	rec := forebaytest.New(t)
	w := New(rec.Logger())
	for _, line := range []string{"plain\n", "{\"level\":\r\n", "", "[1]"} {
		if n, err := w.WriteLevel(zerolog.WarnLevel, []byte(line)); n != len(line) || err != nil {
			t.Errorf("%q: %d, %v", line, n, err)
		}
		rec.Want(slog.LevelWarn, strings.TrimRight(line, "\r\n"))
	}
	w.Write([]byte(`{"level":"nonsense","message":7}`))
	rec.Want(slog.LevelInfo, "", "level", "nonsense", "message", 7)
}

// Redaction rules apply to the fields of a zerolog line.
func TestRedactionApplies(t *testing.T) {
	const secret = "hunter2"
	for name, f := range map[string]func(*zerolog.Event) *zerolog.Event{
		"string": func(e *zerolog.Event) *zerolog.Event { return e.Str("password", secret) },
		"dict":   func(e *zerolog.Event) *zerolog.Event { return e.Dict("o", zerolog.Dict().Str("password", secret)) },
		"list": func(e *zerolog.Event) *zerolog.Event {
			return e.Array("l", zerolog.Arr().Str("x").Dict(zerolog.Dict().Str("password", secret)))
		},
		"raw":    func(e *zerolog.Event) *zerolog.Event { return e.RawJSON("raw", []byte(`[{"Password":"`+secret+`"}]`)) },
		"struct": func(e *zerolog.Event) *zerolog.Event { return e.Any("form", struct{ Password string }{secret}) },
		"text":   func(e *zerolog.Event) *zerolog.Event { return e.Err(errors.New("card " + secret)) },
		"key":    func(e *zerolog.Event) *zerolog.Event { return e.Str(secret, "x") },
	} {
		var b bytes.Buffer
		r, err := forebay.NewRouter(forebay.RedactKeys("password"), forebay.RedactPattern(regexp.MustCompile("card "+secret+"|^"+secret+"$")),
			forebay.Route(encode.JSON(nil), forebay.Writer(&b, forebay.Direct())))
		if err != nil {
			t.Fatal(err)
		}
		l := zerolog.New(New(r.Logger()))
		f(l.Info()).Msg("card " + secret)
		if strings.Contains(b.String(), secret) || strings.Count(b.String(), "[redacted]") < 2 {
			t.Errorf("%s: %s", name, b.String())
		}
	}
}

// A flushCounter is a buffered output that counts its flushes.
type flushCounter struct{ flushed int }

func (k *flushCounter) Write(p []byte) (int, error)          { return len(p), nil }
func (k *flushCounter) WriteRecord([]byte, batch.Meta) error { return io.ErrShortWrite }
func (k *flushCounter) Flush() error                         { k.flushed++; return nil }

func TestFatalFlushes(t *testing.T) {
	k := &flushCounter{}
	log, err := forebay.New(forebay.Writer(k), forebay.OnError(func(batch.Event) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var failed error
	set(t, &zerolog.ErrorHandler, func(err error) { failed = err })
	set(t, &zerolog.FatalExitFunc, func() {
		if k.flushed != 1 {
			t.Error("zerolog ends the program before the message is delivered")
		}
	})
	l := zerolog.New(New(log))
	l.Error().Msg("m")
	if k.flushed != 0 {
		t.Error("an error waits")
	}
	l.Fatal().Msg("m")
	func() {
		defer func() { recover() }()
		l.Panic().Msg("m")
	}()
	if k.flushed != 2 || failed != nil {
		t.Errorf("flushed %d times, zerolog was told %v", k.flushed, failed)
	}
}

func TestNilLoggerDiscards(t *testing.T) {
	l := zerolog.New(New(nil))
	l.Error().Msg("m")
	func() {
		defer func() { recover() }()
		l.Panic().Msg("m")
	}()
}

func TestConcurrentUse(t *testing.T) {
	rec := forebaytest.New(t)
	l := zerolog.New(New(rec.Logger()))
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for n := range 100 {
				l.Info().Int("c", c).Int("n", n).Ints("list", []int{c, n}).Msg("m")
			}
		})
	}
	wg.Wait()
	next := [8]int64{}
	for _, r := range rec.Records() {
		c := r.Attrs["c"].(int64)
		if r.Attrs["n"] != next[c] || !reflect.DeepEqual(r.Attrs["list"], []any{c, next[c]}) {
			t.Fatalf("%v, want n=%d", r, next[c])
		}
		next[c]++
	}
	if next != [8]int64{100, 100, 100, 100, 100, 100, 100, 100} {
		t.Error(next)
	}
}

// Every line is logged in some form, and no line causes a panic.
func FuzzWrite(f *testing.F) {
	for _, s := range []string{`{"level":"info","message":"m"}`, "x", `{"time":1,"a":{"b":[]}}`, `{"message":"a","message":"b"}`, "{\"\xff\":\"\\ud800\"}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var b bytes.Buffer
		w := New(newLog(t, &b))
		if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if b.Len() > 0 && !json.Valid(b.Bytes()) || bytes.Count(b.Bytes(), []byte("\n")) > 1 {
			t.Errorf("%q", b.String())
		}
	})
}

func BenchmarkInfo(b *testing.B) {
	for _, c := range []struct {
		name string
		w    io.Writer
	}{{"forebay", New(newLog(b, io.Discard))}, {"zerolog", io.Discard}} {
		l := zerolog.New(c.w)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.Info().Str("method", "GET").Str("path", "/x").Int("status", 200).Dur("took", 1).Msg("request")
			}
		})
	}
}
