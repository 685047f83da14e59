package forebayzap

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/forebaytest"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newLog returns a Logger that writes JSON without times to w.
func newLog(t testing.TB, w io.Writer, o encode.Options) *forebay.Logger {
	t.Helper()
	o.TimeKey = "-"
	r, err := forebay.NewRouter(forebay.Route(encode.JSON(&o), forebay.Writer(w, forebay.Direct(), forebay.Level(slog.LevelDebug))))
	if err != nil {
		t.Fatal(err)
	}
	return r.Logger()
}

type user struct {
	name string
	tags []string
}

func (u user) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("name", u.name)
	return enc.AddArray("tags", zapcore.ArrayMarshalerFunc(func(a zapcore.ArrayEncoder) error {
		for _, s := range u.tags {
			a.AppendString(s)
		}
		return nil
	}))
}

type everything struct{}

func (everything) MarshalLogArray(a zapcore.ArrayEncoder) error {
	a.AppendBool(true)
	a.AppendByteString([]byte("bytes"))
	a.AppendComplex128(1 + 2i)
	a.AppendComplex64(3 - 1i)
	a.AppendFloat64(0.25)
	a.AppendFloat32(0.1)
	a.AppendInt(-1)
	a.AppendInt64(math.MinInt64)
	a.AppendInt32(-3)
	a.AppendInt16(-4)
	a.AppendInt8(-5)
	a.AppendString("s\"\n")
	a.AppendUint(1)
	a.AppendUint64(math.MaxUint64)
	a.AppendUint32(3)
	a.AppendUint16(4)
	a.AppendUint8(5)
	a.AppendUintptr(6)
	a.AppendDuration(time.Second)
	a.AppendReflected(map[string]int{"k": 1})
	a.AppendObject(user{"bob", nil})
	return a.AppendArray(zapcore.ArrayMarshalerFunc(func(a zapcore.ArrayEncoder) error { return a.AppendObject(user{"eve", []string{"x"}}) }))
}

type failing struct{}

func (failing) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddInt("begun", 1)
	return errors.New("cannot go on")
}

func fields() []zap.Field {
	at := time.Date(2024, 5, 6, 7, 8, 9, 123456789, time.UTC)
	link, _ := url.Parse("http://x/y")
	var nobody *url.URL
	return []zap.Field{
		zap.Bool("bool", true), zap.Int("int", -1), zap.Int8("int8", -8), zap.Int16("int16", -16), zap.Int32("int32", -32),
		zap.Int64("int64", math.MinInt64), zap.Uint("uint", 1), zap.Uint8("uint8", 8), zap.Uint16("uint16", 16),
		zap.Uint32("uint32", 32), zap.Uint64("uint64", math.MaxUint64), zap.Uintptr("uintptr", 7),
		zap.Float64("float64", 0.1), zap.Float32("float32", 0.1), zap.Float32("third", 1.0/3), zap.Complex128("c128", 1+2i), zap.Complex64("c64", 0.1-1i),
		zap.String("string", "a \"b\"\n"), zap.ByteString("bytestring", []byte("text")), zap.Binary("binary", []byte{0, 1, 255}),
		zap.Duration("duration", 1500*time.Millisecond), zap.Time("time", at), zap.Time("zone", at.In(time.FixedZone("x", 3600)).UTC()),
		zap.Stringer("stringer", link), zap.Stringer("nilstringer", nobody), zap.Reflect("reflect", map[string]any{"k": []int{1}}), zap.Reflect("nil", nil),
		zap.Object("object", user{"bob", []string{"a", "b"}}), zap.Inline(user{"inline", []string{"c"}}), zap.Array("array", everything{}),
		zap.Strings("strings", []string{"x", "y"}), zap.Ints("ints", []int{1, 2}), zap.Durations("durations", []time.Duration{1, 2}),
		zap.Times("times", []time.Time{at}), zap.Errors("errors", []error{io.EOF, nil, io.ErrClosedPipe}), zap.Objects("objects", []user{{"a", []string{"b"}}}),
		zap.Dict("dict", zap.Int("n", 1), zap.Dict("in", zap.String("s", "t"))), zap.Any("any", []string{"z"}), zap.Skip(),
		zap.Int64p("int64p", nil), zap.Strings("none", nil), zap.Object("failing", failing{}), zap.Error(io.EOF), zap.NamedError("cause", io.ErrUnexpectedEOF),
	}
}

// canonical returns a JSON line with sorted keys and unchanged digits, except that floats, which
// zap writes with more digits, get their shortest form.
func canonical(t *testing.T, line string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var zapConfig = zapcore.EncoderConfig{
	MessageKey: "msg", LevelKey: "level", NameKey: "logger", StacktraceKey: "stack",
	EncodeLevel: zapcore.CapitalLevelEncoder, EncodeTime: zapcore.TimeEncoderOfLayout("2006-01-02T15:04:05.000000000Z07:00"),
	EncodeDuration: zapcore.NanosDurationEncoder, EncodeName: zapcore.FullNameEncoder,
}

// logTwice calls its argument with a logger that uses zap's JSON encoder, and again with one that
// uses forebay. It returns both outputs.
func logTwice(t *testing.T, log func(*zap.Logger)) (zapOutput, forebayOutput string) {
	t.Helper()
	var a, b bytes.Buffer
	log(zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapConfig), zapcore.AddSync(&a), zap.DebugLevel)))
	log(zap.New(New(newLog(t, &b, encode.Options{}))))
	return canonical(t, a.String()), canonical(t, b.String())
}

// Fields of every zap type have the same JSON form as with zap's encoder.
func TestFieldsMatchZapJSON(t *testing.T) {
	for _, f := range fields() {
		zapOutput, forebayOutput := logTwice(t, func(l *zap.Logger) { l.Info("m", f) })
		if zapOutput != forebayOutput {
			t.Errorf("%s:\nzap  %s\nours %s", f.Key, zapOutput, forebayOutput)
		}
		zapOutput, forebayOutput = logTwice(t, func(l *zap.Logger) { l.With(f).Info("m") })
		if zapOutput != forebayOutput {
			t.Errorf("With %s:\nzap  %s\nours %s", f.Key, zapOutput, forebayOutput)
		}
	}
	zapOutput, forebayOutput := logTwice(t, func(l *zap.Logger) { l.Info("m", fields()...) })
	if zapOutput != forebayOutput {
		t.Errorf("zap  %s\nours %s", zapOutput, forebayOutput)
	}
}

// Random sequences of fields, namespaces, names and calls of With have the same JSON form as with
// zap's encoder.
func TestRandomFieldsMatchZapJSON(t *testing.T) {
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	all := fields()
	for range 300 {
		n := 0
		some := func() (fs []zap.Field) {
			for range rnd.IntN(4) {
				f := all[rnd.IntN(len(all))]
				if f.Type == zapcore.InlineMarshalerType { // repeated inlined fields would have equal keys
					continue
				}
				n++
				f.Key = fmt.Sprintf("k%d", n)
				fs = append(fs, f)
				if rnd.IntN(4) == 0 { // zap writes a namespace without fields; slog does not
					n++
					fs = append(fs, zap.Namespace(fmt.Sprintf("ns%d", n)), zap.Int("first", n))
				}
			}
			return fs
		}
		var steps []func(*zap.Logger) *zap.Logger
		for range rnd.IntN(4) {
			fs := some()
			switch rnd.IntN(3) {
			case 0:
				steps = append(steps, func(l *zap.Logger) *zap.Logger { return l.Named("db") })
			case 1:
				steps = append(steps, func(l *zap.Logger) *zap.Logger { return l.With(fs...) })
			case 2:
				steps = append(steps, func(l *zap.Logger) *zap.Logger { return l.WithLazy(fs...) })
			}
		}
		last := some()
		zapOutput, forebayOutput := logTwice(t, func(l *zap.Logger) {
			for _, step := range steps {
				l = step(l)
			}
			l.Warn("m", last...)
			l.Sync()
		})
		if zapOutput != forebayOutput {
			t.Fatalf("seed %d:\nzap  %s\nours %s", seed, zapOutput, forebayOutput)
		}
	}
}

type timed time.Duration

func (d timed) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddDuration("took", time.Duration(d))
	return nil
}

// Attributes have the order and the types of the fields, because the formats of outputs depend on
// the types.
func TestAttributesKeepTheirTypes(t *testing.T) {
	var b bytes.Buffer
	l := zap.New(New(newLog(t, &b, encode.Options{Duration: "text", Time: "unix"})))
	at := time.Unix(7, 0)
	l.Info("m", zap.String("z", "1"), zap.Duration("d", time.Second), zap.Durations("ds", []time.Duration{time.Second}),
		zap.Time("t", at), zap.Times("ts", []time.Time{at}), zap.Dict("o", zap.Duration("z", 1), zap.Duration("a", 2)),
		zap.Objects("us", []user{{"a", nil}}), zap.Objects("os", []timed{1, 2}), zap.Strings("none", nil))
	const want = `{"level":"INFO","msg":"m","z":"1","d":"1s","ds":["1s"],"t":7,"ts":[7],"o":{"z":"1ns","a":"2ns"},"us":[{"name":"a","tags":[]}],"os":[{"took":"1ns"},{"took":"2ns"}],"none":[]}` + "\n"
	if b.String() != want {
		t.Errorf("got  %swant %s", b.String(), want)
	}
}

// A zap.Error field is the error itself, so that the outputs can write its chain.
func TestErrorsReachTheOutputs(t *testing.T) {
	var b bytes.Buffer
	l := zap.New(New(newLog(t, &b, encode.Options{Errors: "chain"})))
	l.With(zap.NamedError("first", fmt.Errorf("a: %w", io.EOF))).Error("m", zap.Error(fmt.Errorf("b: %w", io.ErrClosedPipe)))
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got["first"] != "a: EOF" || got["error"] != "b: io: read/write on closed pipe" ||
		!strings.Contains(b.String(), `["EOF"]`) || !strings.Contains(b.String(), `["io: read/write on closed pipe"]`) {
		t.Error(b.String())
	}
}

func TestLevelsMapToSlog(t *testing.T) {
	for in, want := range map[zapcore.Level]slog.Level{
		zapcore.DebugLevel - 1: slog.LevelDebug - 4, zapcore.DebugLevel: slog.LevelDebug, zapcore.InfoLevel: slog.LevelInfo,
		zapcore.WarnLevel: slog.LevelWarn, zapcore.ErrorLevel: slog.LevelError, zapcore.DPanicLevel: slog.LevelError + 4,
		zapcore.PanicLevel: slog.LevelError + 4, zapcore.FatalLevel: slog.LevelError + 4,
	} {
		rec := forebaytest.New(t)
		l := zap.New(New(rec.Logger()), zap.WithPanicHook(zapcore.WriteThenGoexit), zap.WithFatalHook(zapcore.WriteThenGoexit))
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Log(in, "m")
		}()
		<-done
		rec.Want(want, "m")
	}
}

func TestEnabledFollowsOutputs(t *testing.T) {
	var b bytes.Buffer
	level := new(slog.LevelVar)
	log, err := forebay.New(forebay.Writer(&b, forebay.Direct(), forebay.Level(level)))
	if err != nil {
		t.Fatal(err)
	}
	core := New(log)
	for _, c := range []struct {
		level slog.Level
		want  zapcore.Level
	}{{slog.LevelDebug, zapcore.DebugLevel}, {slog.LevelInfo, zapcore.InfoLevel}, {slog.LevelError, zapcore.ErrorLevel},
		{slog.LevelError + 1, zapcore.DPanicLevel}, {slog.LevelError + 5, zapcore.InvalidLevel}} {
		level.Set(c.level)
		if got := zapcore.LevelOf(core); got != c.want {
			t.Errorf("LevelOf is %v, want %v", got, c.want)
		}
		l := zap.New(core)
		for at := zapcore.DebugLevel; at <= zapcore.ErrorLevel; at++ {
			if got := l.Check(at, "m") != nil; got != (at >= c.want) {
				t.Errorf("%v at %v: %v", at, c.level, got)
			}
			if got := core.Enabled(at); got != (at >= c.want) {
				t.Errorf("%v at %v: enabled %v", at, c.level, got)
			}
		}
	}
	log.Close()
}

// The level set for a name with forebay.Router.SetLevel applies to the zap logger with that name.
func TestLoggerNamesHaveTheirLevels(t *testing.T) {
	rec := forebaytest.New(t)
	log, err := forebay.New(forebay.Route(encode.JSON(nil), forebay.Writer(rec)))
	if err != nil {
		t.Fatal(err)
	}
	l := zap.New(New(log))
	db := l.With(zap.Int("a", 1), zap.Namespace("ns"), zap.Int("b", 2)).Named("db")
	pool := db.Named("pool")
	db.Debug("not yet")
	log.Router().SetLevel("db", slog.LevelDebug)
	l.Debug("not for all")
	db.Sugar().Debugf("now %d", 1)
	pool.Debug("below", zap.Int("c", 3))
	log.Router().SetLevel("db.pool", slog.LevelError)
	pool.Warn("not any more")
	log.Router().SetLevel("db.pool", nil)
	pool.Info("again")
	var got []string
	for _, r := range rec.Records() {
		got = append(got, r.Message)
	}
	if want := []string{"now 1", "below", "again"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	rec.Want(slog.LevelDebug, "below", "logger", "db.pool", "a", 1, "ns.b", 2, "ns.c", 3)
	log.Close()
}

//go:noinline
func logHere(l *zap.Logger) { l.Info("m") }

func TestCallerAndStackAreWritten(t *testing.T) {
	rec := forebaytest.New(t)
	l := zap.New(New(rec.Logger()), zap.AddCaller(), zap.AddStacktrace(zap.ErrorLevel))
	logHere(l)
	forebayOutput := rec.Logger()
	forebayOutput.Info("the line of this")
	l.Info("is one before")
	l.Sugar().Infow("and two before", "k", 1)
	line := func(i int) int {
		file, line, _ := strings.Cut(rec.Records()[i].Source, ":")
		if file != "zap/core_test.go" {
			t.Errorf("source %q", rec.Records()[i].Source)
		}
		n, _ := strconv.Atoi(line)
		return n
	}
	if n := line(1); line(2) != n+1 || line(3) != n+2 || line(0) >= n {
		t.Errorf("lines %d %d %d %d", line(0), n, line(2), line(3))
	}
	l.Error("deep")
	r := rec.Want(slog.LevelError, "deep")
	if stack, _ := r.Attrs["stack"].(string); !strings.HasPrefix(stack, "github.com/forebay-log/forebay/adapters/zap.TestCallerAndStackAreWritten\n") {
		t.Errorf("stack %q", stack)
	}
	if _, ok := rec.Records()[0].Attrs["stack"]; ok {
		t.Error("a stack below the level")
	}
	zap.New(New(rec.Logger())).Info("without AddCaller")
	if r := rec.Want(slog.LevelInfo, "without AddCaller"); r.Source != "" {
		t.Errorf("source %q", r.Source)
	}
}

// The caller is an attribute, unless an output writes it as the source position. As in zap, caller
// and stack are outside of namespaces.
func TestCallerIsAnAttributeUnlessOutputWritesSource(t *testing.T) {
	var buf bytes.Buffer
	for _, source := range []bool{false, true} {
		buf.Reset()
		l := zap.New(New(newLog(t, &buf, encode.Options{AddSource: source, Caller: "short"})), zap.AddCaller(), zap.AddStacktrace(zap.ErrorLevel))
		l.Named("db").With(zap.Namespace("ns"), zap.Int("a", 1)).Info("m", zap.Int("b", 2))
		want := `^{"level":"INFO","msg":"m","logger":"db","caller":"zap/core_test.go:\d+","ns":{"a":1,"b":2}}\n$`
		if source {
			want = `^{"level":"INFO","source":"zap/core_test.go:\d+","msg":"m","logger":"db","ns":{"a":1,"b":2}}\n$`
		}
		if !regexp.MustCompile(want).MatchString(buf.String()) {
			t.Errorf("got %swant %s", buf.String(), want)
		}
		buf.Reset()
		l.With(zap.Namespace("ns")).Error("m", zap.Int("b", 2))
		if got := buf.String(); !strings.HasSuffix(got, `,"ns":{"b":2}}`+"\n") || !strings.Contains(got, `"stack":"`) {
			t.Errorf("got %s", got)
		}
		buf.Reset()
		_ = New(newLog(t, &buf, encode.Options{})).Write(zapcore.Entry{Message: "m", Caller: zapcore.EntryCaller{Defined: true, File: "/a/b/c.go", Line: 7}}, nil)
		if got := buf.String(); !strings.Contains(got, `"caller":"b/c.go:7"`) {
			t.Errorf("got %s", got)
		}
	}
}

// A panicking is a value whose methods panic.
type panicking struct{}

func (panicking) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("half", "x")
	enc.OpenNamespace("open")
	panic("object")
}

func (panicking) MarshalLogArray(enc zapcore.ArrayEncoder) error {
	enc.AppendString("half")
	panic("array")
}

func (panicking) String() string { panic("text") }

func (panicking) Error() string { panic("error") }

type holds struct{}

func (h holds) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddInt("a", 1)
	_ = enc.AddObject("object", panicking{})
	_ = enc.AddArray("array", panicking{})
	_ = enc.AddArray("list", zapcore.ArrayMarshalerFunc(func(a zapcore.ArrayEncoder) error {
		_ = a.AppendObject(panicking{})
		_ = a.AppendArray(panicking{})
		a.AppendInt(2)
		return nil
	}))
	return enc.AddReflected("value", panicking{})
}

// If a method of a value panics, the text of the panic replaces the value. Other fields are
// unchanged.
func TestPanicInMethodBecomesText(t *testing.T) {
	var buf bytes.Buffer
	l := zap.New(New(newLog(t, &buf, encode.Options{})))
	log := func() {
		l.With(zap.Object("with", panicking{})).Info("m", zap.Int("first", 1), zap.Object("object", panicking{}), zap.Array("array", panicking{}), zap.Inline(panicking{}), zap.Stringer("text", panicking{}),
			zap.Error(panicking{}), zap.Errors("errors", []error{panicking{}, io.EOF}), zap.Object("holds", holds{}), zap.Object("nil", (*panicking)(nil)), zap.Any("any", panicking{}), zap.Int("last", 2))
	}
	log()
	const want = `{"level":"INFO","msg":"m","with":"!PANIC: object","first":1,"object":"!PANIC: object","array":"!PANIC: array","":"!PANIC: object","textError":"PANIC=text",` +
		`"error":"!PANIC: error","errors":[{"errorError":"PANIC=error"},{"error":"EOF"}],"holds":{"a":1,"object":"!PANIC: object","array":"!PANIC: array","list":["!PANIC: object","!PANIC: array",2],"value":"!PANIC: error"},` +
		`"nil":"<nil>","any":"!PANIC: object","last":2}` + "\n"
	if got := buf.String(); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	buf.Reset()
	l.Info("next", zap.Int("a", 1))
	if got := buf.String(); got != `{"level":"INFO","msg":"next","a":1}`+"\n" {
		t.Errorf("got %s", got)
	}
}

// Redaction rules apply to fields at the top level, in namespaces, in objects and in lists.
func TestRedactionFindsSecretsInEveryField(t *testing.T) {
	const secret = "hunter2"
	type form struct{ User, Password string }
	hidden := zap.Dict("o", zap.String("password", secret), zap.Int("n", 1))
	object := zapcore.ObjectMarshalerFunc(func(enc zapcore.ObjectEncoder) error {
		enc.AddString("password", secret)
		enc.AddString("name", "bob")
		return nil
	})
	list := func(mixed bool) zap.Field {
		return zap.Array("l", zapcore.ArrayMarshalerFunc(func(a zapcore.ArrayEncoder) error {
			if mixed {
				a.AppendString("x")
			}
			return a.AppendObject(object)
		}))
	}
	for name, f := range map[string]zap.Field{
		"string": zap.String("password", secret), "bytes": zap.ByteString("password", []byte(secret)), "binary": zap.Binary("password", []byte(secret)),
		"dict": hidden, "object": zap.Object("o", object), "inline": zap.Inline(object), "list": list(false), "mixed list": list(true),
		"strings": zap.Strings("password", []string{secret}), "struct": zap.Reflect("form", form{"bob", secret}), "map": zap.Any("m", map[string]string{"password": secret}),
		"error": zap.Error(errors.New("no such password=" + secret)), "text": zap.String("text", "card "+secret), "strings by pattern": zap.Strings("s", []string{secret}),
	} {
		for _, form := range []encode.Encoder{encode.JSON(nil), encode.Logfmt(nil), encode.Console(nil)} {
			var b bytes.Buffer
			r, err := forebay.NewRouter(forebay.RedactKeys("password"), forebay.RedactPattern(regexp.MustCompile(secret)),
				forebay.Route(form, forebay.Writer(&b, forebay.Direct())))
			if err != nil {
				t.Fatal(err)
			}
			l := zap.New(New(r.Logger()))
			l.Info("m", f)
			l.With(f, zap.Namespace("ns"), f).Info("m "+secret, f)
			encoded := base64.StdEncoding.EncodeToString([]byte(secret))
			if strings.Contains(b.String(), secret) || strings.Contains(b.String(), encoded) || !strings.Contains(b.String(), "[redacted]") {
				t.Errorf("%s: %s", name, b.String())
			}
		}
	}
}

// A flushCounter is a buffered output that counts its flushes.
type flushCounter struct {
	mu      sync.Mutex
	flushed int
	err     error
}

func (k *flushCounter) Write(p []byte) (int, error)          { return len(p), nil }
func (k *flushCounter) WriteRecord([]byte, batch.Meta) error { return k.err }
func (k *flushCounter) Flush() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.flushed++
	return k.err
}

func TestSyncAndFatalFlush(t *testing.T) {
	k := &flushCounter{}
	log, err := forebay.New(forebay.Writer(k), forebay.OnError(func(batch.Event) {}))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	l := zap.New(New(log), zap.WithPanicHook(zapcore.WriteThenGoexit))
	l.Error("m")
	if k.flushed != 0 {
		t.Error("an error waits")
	}
	if err := l.Sync(); err != nil || k.flushed != 1 {
		t.Errorf("Sync: %v, flushed %d times", err, k.flushed)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Panic("m")
	}()
	if <-done; k.flushed != 2 {
		t.Errorf("flushed %d times", k.flushed)
	}
	k.err = io.ErrShortWrite
	if err := l.Sync(); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("Sync: %v", err)
	}
	// If Write returned an error, zap would write a line to standard error for each record.
	if err := New(log).Write(zapcore.Entry{}, nil); err != nil {
		t.Errorf("Write: %v", err)
	}
}

func TestNilLoggerDiscards(t *testing.T) {
	core := New(nil)
	if core.Enabled(zap.ErrorLevel) || core.Sync() != nil {
		t.Error("nil does not discard")
	}
	New(new(forebay.Logger)).With([]zap.Field{zap.Int("a", 1)}).Write(zapcore.Entry{}, nil)
}

func TestConcurrentUse(t *testing.T) {
	rec := forebaytest.New(t)
	l := zap.New(New(rec.Logger())).With(zap.Namespace("ns"))
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for n := range 100 {
				l.Named("c"+strconv.Itoa(n%3)).Info("m", zap.Int("c", c), zap.Namespace("in"), zap.Int("n", n), zap.Object("u", user{"x", nil}))
			}
		})
	}
	wg.Wait()
	next := [8]int64{}
	for _, r := range rec.Records() {
		c := r.Attrs["ns.c"].(int64)
		if n := r.Attrs["ns.in.n"]; n != next[c] || r.Attrs["logger"] != fmt.Sprintf("c%d", next[c]%3) || r.Attrs["ns.in.u.name"] != "x" {
			t.Fatalf("%v, want n=%d", r, next[c])
		}
		next[c]++
	}
	if next != [8]int64{100, 100, 100, 100, 100, 100, 100, 100} {
		t.Error(next)
	}
}

func TestInfoAllocatesOnlyZapFields(t *testing.T) {
	race.Skip(t)
	log := newLog(t, io.Discard, encode.Options{})
	l := zap.New(New(log)).Named("db")
	l.Info("m")
	// The only allocation is the slice of fields, which the caller of zap allocates.
	if n := allocs.PerRun(100, func() { l.Info("m", zap.Int("a", 1), zap.String("b", "x"), zap.Duration("c", 1)) }); n > 1 {
		t.Errorf("%v allocations for three fields", n)
	}
	seven := []zap.Field{zap.Int("a", 1), zap.Int("b", 1), zap.Int("c", 1), zap.Int("d", 1), zap.Int("e", 1), zap.Int("f", 1), zap.Int("g", 1)}
	if n := allocs.PerRun(100, func() { l.Info("m", seven...) }); n > 1 {
		t.Errorf("%v allocations for seven fields", n)
	}
	if n := allocs.PerRun(100, func() { l.Log(zap.DebugLevel-1, "m", seven...) }); n > 0 {
		t.Errorf("%v allocations for nothing", n)
	}
}

func BenchmarkInfo(b *testing.B) {
	for name, core := range map[string]zapcore.Core{
		"forebay": New(newLog(b, io.Discard, encode.Options{})),
		"zap":     zapcore.NewCore(zapcore.NewJSONEncoder(zapConfig), zapcore.AddSync(io.Discard), zap.DebugLevel),
	} {
		l := zap.New(core)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.Info("request", zap.String("method", "GET"), zap.String("path", "/x"), zap.Int("status", 200), zap.Duration("took", 1))
			}
		})
		b.Run(name+" off", func(b *testing.B) {
			for b.Loop() {
				l.Log(zap.DebugLevel-1, "request")
			}
		})
	}
}
