package encode

import (
	"encoding"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/values"
)

func TestTimeFormats(t *testing.T) {
	const layout TimeFormat = "2006/01/02 MST"
	zone := time.FixedZone("XY", 2*3600)
	tm := benchTime.In(zone)
	for _, c := range []struct {
		o            JSONOptions
		json, logfmt string
	}{
		{JSONOptions{}, `"2026-11-20T13:44:10.123456789Z"`, ``},
		{JSONOptions{OwnLocation: true}, `"2026-11-20T15:44:10.123456789+02:00"`, ``},
		{JSONOptions{Location: time.FixedZone("", -3*3600-30*60)}, `"2026-11-20T10:14:10.123456789-03:30"`, ``},
		{JSONOptions{Time: TimeRFC3339Micro}, `"2026-11-20T13:44:10.123456Z"`, ``},
		{JSONOptions{Time: TimeRFC3339Milli}, `"2026-11-20T13:44:10.123Z"`, ``},
		{JSONOptions{Time: TimeRFC3339}, `"2026-11-20T13:44:10Z"`, ``},
		{JSONOptions{Time: TimeRFC3339, OwnLocation: true}, `"2026-11-20T15:44:10+02:00"`, ``},
		{JSONOptions{Time: TimeClock}, `"13:44:10.123"`, ``},
		{JSONOptions{Time: TimeClock, OwnLocation: true}, `"15:44:10.123"`, ``},
		{JSONOptions{Time: TimeUnix}, `1795182250`, ``},
		{JSONOptions{Time: TimeUnixMilli}, `1795182250123`, ``},
		{JSONOptions{Time: TimeUnixMicro}, `1795182250123456`, ``},
		{JSONOptions{Time: TimeUnixNano}, `1795182250123456789`, ``},
		{JSONOptions{Time: layout}, `"2026/11/20 UTC"`, `"2026/11/20 UTC"`},
		{JSONOptions{Time: layout, OwnLocation: true}, `"2026/11/20 XY"`, `"2026/11/20 XY"`},
	} {
		if c.logfmt == "" {
			c.logfmt = strings.Trim(c.json, `"`)
		}
		for _, replace := range []func([]string, slog.Attr) slog.Attr{nil, func(_ []string, a slog.Attr) slog.Attr { return a }} {
			c.o.ReplaceAttr = replace
			r := Record{Time: tm, Message: "m", Attrs: []slog.Attr{slog.Time("t", tm), slog.Any("l", []time.Time{tm})}}
			out, _, _ := JSON(&c.o).Scope().Append(nil, &r)
			if want := fmt.Sprintf(`{"time":%s,"level":"INFO","msg":"m","t":%[1]s,"l":[%[1]s]}`+"\n", c.json); string(out) != want {
				t.Errorf("got %swant %s", out, want)
			}
			l := LogfmtOptions{Time: c.o.Time, Location: c.o.Location, OwnLocation: c.o.OwnLocation, ReplaceAttr: replace}
			r.Attrs = r.Attrs[:1]
			out, _, _ = Logfmt(&l).Scope().Append(nil, &r)
			if want := fmt.Sprintf("time=%s level=INFO msg=m t=%[1]s\n", c.logfmt); string(out) != want {
				t.Errorf("got %swant %s", out, want)
			}
		}
	}
}

func TestDurationFormats(t *testing.T) {
	for f, want := range map[DurationFormat]string{
		"": "1500000001", DurationNanos: "1500000001", DurationText: `"1.500000001s"`, DurationSeconds: "1.500000001", "minutes": "1500000001",
	} {
		if got := value(t, JSON(&JSONOptions{Duration: f}), 1500000001*time.Nanosecond); got != want {
			t.Errorf("%v: got %s want %s", f, got, want)
		}
	}
	if got := encodeOne(t, Logfmt(nil), slog.Duration("d", 1500*time.Microsecond)); got != "level=INFO msg=m d=1.5ms\n" {
		t.Error(got)
	}
	if got := value(t, JSON(&JSONOptions{Duration: DurationText}), []time.Duration{time.Second}); got != `["1s"]` {
		t.Error(got)
	}
}

func TestLevelFormats(t *testing.T) {
	for f, want := range map[LevelFormat][]string{
		"":          {`"DEBUG-996"`, `"DEBUG"`, `"INFO"`, `"INFO+1"`, `"WARN"`, `"ERROR"`, `"ERROR+992"`},
		LevelLower:  {`"debug-996"`, `"debug"`, `"info"`, `"info+1"`, `"warn"`, `"error"`, `"error+992"`},
		LevelNumber: {`-1000`, `-4`, `0`, `1`, `4`, `8`, `1000`},
	} {
		for i, l := range []slog.Level{-1000, slog.LevelDebug, slog.LevelInfo, slog.LevelInfo + 1, slog.LevelWarn, slog.LevelError, 1000} {
			r := Record{Level: l, Attrs: []slog.Attr{slog.Any("l", l)}}
			for _, replace := range []func([]string, slog.Attr) slog.Attr{nil, func(_ []string, a slog.Attr) slog.Attr { return a }} {
				out, m, _ := JSON(&JSONOptions{Level: f, ReplaceAttr: replace}).Scope().Append(nil, &r)
				if w := fmt.Sprintf(`{"level":%s,"msg":"","l":%[1]s}`+"\n", want[i]); string(out) != w {
					t.Errorf("got %swant %s", out, w)
				}
				if m.Level != l {
					t.Errorf("Meta.Level %v", m.Level)
				}
			}
			out, _, _ := Logfmt(&LogfmtOptions{Level: f}).Scope().Append(nil, &r)
			if w := fmt.Sprintf(`level=%s msg="" l=%[1]s`+"\n", strings.Trim(want[i], `"`)); string(out) != w {
				t.Errorf("got %swant %s", out, w)
			}
		}
	}
}

func TestCallerFormats(t *testing.T) {
	var pcs [1]uintptr
	runtime.Callers(1, pcs[:])
	f := values.FrameOf(pcs[0])
	if !strings.HasSuffix(f.Source.File, "encode/options_test.go") || !strings.HasPrefix(f.Short, "encode/options_test.go:") {
		t.Fatalf("%+v", f)
	}
	object := fmt.Sprintf(`{"function":"%s","file":"%s","line":%d}`, f.Source.Function, f.Source.File, f.Source.Line)
	same := func(_ []string, a slog.Attr) slog.Attr { return a }
	for _, c := range []struct {
		e    Encoder
		want string
	}{
		{JSON(&JSONOptions{AddSource: true}), `{"level":"INFO","source":` + object + `,"msg":"m"}`},
		{JSON(&JSONOptions{AddSource: true, ReplaceAttr: same}), `{"level":"INFO","source":` + object + `,"msg":"m"}`},
		{JSON(&JSONOptions{AddSource: true, Caller: CallerFull}), `{"level":"INFO","source":"` + f.Full + `","msg":"m"}`},
		{JSON(&JSONOptions{AddSource: true, Caller: CallerShort}), `{"level":"INFO","source":"` + f.Short + `","msg":"m"}`},
		{JSON(&JSONOptions{AddSource: true, Caller: CallerShort, ReplaceAttr: same}), `{"level":"INFO","source":"` + f.Short + `","msg":"m"}`},
		{JSON(&JSONOptions{AddSource: true, Caller: CallerShort, SourceKey: "caller", LevelKey: "-"}), `{"caller":"` + f.Short + `","msg":"m"}`},
		{JSON(&JSONOptions{AddSource: true, SourceKey: "-"}), `{"level":"INFO","msg":"m"}`},
		{JSON(&JSONOptions{AddSource: true, MessageKey: "-", Caller: CallerShort}), `{"level":"INFO","source":"` + f.Short + `"}`},
		{Logfmt(&LogfmtOptions{AddSource: true}), `level=INFO source=` + f.Full + ` msg=m`},
		{Logfmt(&LogfmtOptions{AddSource: true, ReplaceAttr: same}), `level=INFO source=` + f.Full + ` msg=m`},
		{Logfmt(&LogfmtOptions{AddSource: true, Caller: CallerShort}), `level=INFO source=` + f.Short + ` msg=m`},
		{Logfmt(&LogfmtOptions{AddSource: true, Caller: CallerObject}), fmt.Sprintf(`level=INFO source.function=%s source.file=%s source.line=%d msg=m`, f.Source.Function, f.Source.File, f.Source.Line)},
		{Console(&ConsoleOptions{AddSource: true}), `INFO  ` + f.Short + ` m`},
		{Console(&ConsoleOptions{AddSource: true, ReplaceAttr: same}), `INFO  ` + f.Short + ` m`},
		{Console(&ConsoleOptions{AddSource: true, Caller: CallerObject, OmitLevel: true}), f.Full + ` m`},
	} {
		out, _, err := c.e.Scope().Append(nil, &Record{Message: "m", PC: pcs[0]})
		if err != nil || string(out) != c.want+"\n" {
			t.Errorf("got %swant %s", out, c.want)
		}
		if want := !strings.Contains(c.want, `{"level":"INFO","msg":"m"}`); c.e.NeedsPC() != want {
			t.Errorf("NeedsPC %v: %s", !want, c.want)
		}
		out, _, _ = c.e.Scope().Append(nil, &Record{Message: "m"})
		if strings.Contains(string(out), "source") {
			t.Errorf("a source without a PC: %s", out)
		}
		nonsense, _, _ := c.e.Scope().Append(nil, &Record{Message: "m", PC: 1})
		if string(nonsense) != string(out) {
			t.Errorf("a PC of no function: %s", nonsense)
		}
	}
	// A Source among the attributes follows the same format.
	src := &slog.Source{Function: "f", File: "/a/b/c.go", Line: 3}
	if got := value(t, JSON(&JSONOptions{Caller: CallerShort}), src); got != `"b/c.go:3"` {
		t.Error(got)
	}
	if got := value(t, JSON(nil), src); got != `{"function":"f","file":"/a/b/c.go","line":3}` {
		t.Error(got)
	}
	if JSON(nil).NeedsPC() || Logfmt(nil).NeedsPC() || Console(nil).NeedsPC() {
		t.Error("NeedsPC without AddSource")
	}
}

func TestKeys(t *testing.T) {
	r := Record{Time: benchTime, Message: "m"}
	for _, c := range []struct {
		e    Encoder
		want string
	}{
		{JSON(&JSONOptions{TimeKey: "ts", LevelKey: "severity", MessageKey: "message"}), `{"ts":"2026-11-20T13:44:10.123456789Z","severity":"INFO","message":"m"}`},
		{JSON(&JSONOptions{TimeKey: "a\"\n", LevelKey: "-", MessageKey: "\xff"}), `{"a\"\n":"2026-11-20T13:44:10.123456789Z","` + "\ufffd" + `":"m"}`},
		{JSON(&JSONOptions{TimeKey: "-", LevelKey: "-", MessageKey: "-"}), `{}`},
		{JSON(&JSONOptions{MessageKey: "-"}), `{"time":"2026-11-20T13:44:10.123456789Z","level":"INFO"}`},
		{JSON(&JSONOptions{LevelKey: "-", MessageKey: "-"}), `{"time":"2026-11-20T13:44:10.123456789Z"}`},
		{JSON(&JSONOptions{TimeKey: "-"}), `{"level":"INFO","msg":"m"}`},
		{Logfmt(&LogfmtOptions{TimeKey: "t s", LevelKey: "l=", MessageKey: "m\n"}), `t_s=2026-11-20T13:44:10.123456789Z l_=INFO m_=m`},
		{Logfmt(&LogfmtOptions{TimeKey: "-", LevelKey: "-", MessageKey: "-"}), ``},
		{Logfmt(&LogfmtOptions{MessageKey: "-"}), `time=2026-11-20T13:44:10.123456789Z level=INFO`},
	} {
		out, _, _ := c.e.Scope().Append([]byte("x "), &r)
		if string(out) != "x "+c.want+"\n" {
			t.Errorf("got %swant %s", out, c.want)
		}
	}
	// Whatever is left out, what follows is separated as it should be.
	for _, o := range []JSONOptions{{TimeKey: "-", LevelKey: "-", MessageKey: "-"}, {MessageKey: "-"}, {LevelKey: "-", MessageKey: "-"}} {
		s := JSON(&o).Scope()
		for _, s := range []Scope{s, s.WithAttrs([]slog.Attr{slog.Int("w", 1)}), s.WithGroup("g"), s.WithGroup("g").WithAttrs([]slog.Attr{slog.Int("w", 1)})} {
			out, _, _ := s.Append(nil, &Record{Time: benchTime, Attrs: []slog.Attr{slog.Int("a", 1)}})
			checkLine(t, JSON(&o), out)
		}
	}
}

func TestReplaceAttrSeesTheConfiguredKeys(t *testing.T) {
	var keys []string
	e := JSON(&JSONOptions{TimeKey: "ts", LevelKey: "sev", MessageKey: "m", AddSource: true, SourceKey: "at", ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		keys = append(keys, fmt.Sprintf("%v %s %v", groups == nil, a.Key, a.Value.Kind()))
		return a
	}})
	if _, _, err := e.Scope().WithGroup("g").Append(nil, &Record{Time: benchTime, Attrs: []slog.Attr{slog.Int("n", 1)}}); err != nil {
		t.Fatal(err)
	}
	want := "[true ts Time true sev Any true at Any true m String false n Int64]"
	if got := fmt.Sprint(keys); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestParsing(t *testing.T) {
	fsys := flag.NewFlagSet("x", flag.ContinueOnError)
	fsys.SetOutput(io.Discard)
	var tf TimeFormat
	var df DurationFormat
	var lf LevelFormat
	var cf CallerFormat
	var ef ErrorFormat
	for name, f := range map[string]encoding.TextUnmarshaler{"time": &tf, "duration": &df, "level": &lf, "caller": &cf, "error": &ef} {
		fsys.Func(name, "", func(s string) error { return f.UnmarshalText([]byte(s)) })
	}
	if err := fsys.Parse([]string{"-time", "UnixMilli", "-duration", "seconds", "-level", "lower", "-caller", "Short", "-error", "verbose"}); err != nil {
		t.Fatal(err)
	}
	if tf != TimeUnixMilli || df != DurationSeconds || lf != LevelLower || cf != CallerShort || ef != ErrorVerbose {
		t.Error(tf, df, lf, cf, ef)
	}
	if err := tf.UnmarshalText([]byte(time.Kitchen)); err != nil || tf != time.Kitchen {
		t.Error(tf, err)
	}
	for _, c := range []struct {
		v    interface{ UnmarshalText([]byte) error }
		text string
		want string
	}{
		{&tf, "unix-ms", `encode: cannot use time layout "unix-ms": it has no field of a time; write it for the reference time`},
		{&tf, "\x00", `encode: cannot use time layout "\x00"`},
		{&df, "minutes", `encode: cannot use duration format "minutes": it is none of "ns", "text", "seconds"`},
		{&lf, "x", `encode: cannot use level format "x": it is none of "upper", "lower", "number"`},
		{&cf, "x", `encode: cannot use caller format "x": it is none of "object", "full", "short"`},
		{&ef, "x", `encode: cannot use error format "x": it is none of "chain", "text", "verbose"`},
	} {
		if err := c.v.UnmarshalText([]byte(c.text)); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
	}
	if tf != time.Kitchen || df != DurationSeconds {
		t.Error("a failed UnmarshalText changed the value")
	}
	for _, f := range []TimeFormat{"", TimeRFC3339Nano, TimeRFC3339Micro, TimeRFC3339Milli, TimeRFC3339, TimeClock, TimeUnix, TimeUnixMilli, TimeUnixMicro, TimeUnixNano, tf} {
		var back TimeFormat
		if err := back.UnmarshalText([]byte(f)); err != nil || back != f {
			t.Errorf("%q: %v, %v", f, back, err)
		}
	}
	for _, f := range []encoding.TextUnmarshaler{&df, &lf, &cf, &ef} {
		if err := f.UnmarshalText(nil); err != nil || reflect.ValueOf(f).Elem().String() != "" {
			t.Errorf("%T: %v, %v", f, reflect.ValueOf(f).Elem(), err)
		}
	}
}

// A text that is no format means the default.
func TestUnknownFormats(t *testing.T) {
	o := &JSONOptions{Time: "x", Duration: "x", Level: "x", Caller: "x", Errors: "x", AddSource: true}
	pc, _, _, _ := runtime.Caller(0)
	r := &Record{Time: benchTime, PC: pc, Message: "m", Attrs: []slog.Attr{slog.Duration("d", 1), slog.Any("e", fmt.Errorf("a: %w", io.EOF))}}
	want, _, _ := JSON(&JSONOptions{AddSource: true}).Scope().Append(nil, r)
	got, _, _ := JSON(o).Scope().Append(nil, r)
	if string(got) != string(want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// Options may be changed after use.
func TestOptionsAreCopied(t *testing.T) {
	o := &JSONOptions{MessageKey: "a"}
	e := JSON(o)
	o.MessageKey = "b"
	if got := encodeOne(t, e); got != `{"level":"INFO","a":"m"}`+"\n" {
		t.Error(got)
	}
}

// Two encoders with different formats share what one Record remembers.
func TestTimeCacheShared(t *testing.T) {
	encoders := []Encoder{
		JSON(nil), JSON(&JSONOptions{Time: TimeRFC3339Milli, Location: time.FixedZone("", 3600)}), Logfmt(nil),
		JSON(&JSONOptions{OwnLocation: true}), JSON(&JSONOptions{Time: TimeUnixMilli}), Console(&ConsoleOptions{Location: time.UTC}),
	}
	r := new(Record)
	zones := []*time.Location{time.UTC, time.FixedZone("", 7200), time.FixedZone("", -7200)}
	for i := range 300 {
		tm := benchTime.Add(time.Duration(i) * 123 * time.Millisecond).In(zones[i%3])
		r.Time, r.Attrs = tm, []slog.Attr{slog.Time("t", tm.Add(time.Duration(i%2)*time.Hour))}
		for k, e := range encoders {
			got, _, _ := e.Scope().Append(nil, r)
			want, _, _ := e.Scope().Append(nil, &Record{Time: tm, Attrs: r.Attrs})
			if string(got) != string(want) {
				t.Fatalf("encoder %d: got %swant %s", k, got, want)
			}
		}
	}
}
