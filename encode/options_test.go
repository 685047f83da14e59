package encode

import (
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/values"
)

func TestTimeFormats(t *testing.T) {
	const layout string = "2006/01/02 MST"
	zone := time.FixedZone("XY", 2*3600)
	tm := benchTime.In(zone)
	for _, c := range []struct {
		o            Options
		json, logfmt string
	}{
		{Options{}, `"2026-11-20T13:44:10.123456789Z"`, ``},
		{Options{OwnLocation: true}, `"2026-11-20T15:44:10.123456789+02:00"`, ``},
		{Options{Location: time.FixedZone("", -3*3600-30*60)}, `"2026-11-20T10:14:10.123456789-03:30"`, ``},
		{Options{Time: "rfc3339micro"}, `"2026-11-20T13:44:10.123456Z"`, ``},
		{Options{Time: "rfc3339milli"}, `"2026-11-20T13:44:10.123Z"`, ``},
		{Options{Time: "rfc3339"}, `"2026-11-20T13:44:10Z"`, ``},
		{Options{Time: "rfc3339", OwnLocation: true}, `"2026-11-20T15:44:10+02:00"`, ``},
		{Options{Time: "clock"}, `"13:44:10.123"`, ``},
		{Options{Time: "clock", OwnLocation: true}, `"15:44:10.123"`, ``},
		{Options{Time: "unix"}, `1795182250`, ``},
		{Options{Time: "unixmilli"}, `1795182250123`, ``},
		{Options{Time: "unixmicro"}, `1795182250123456`, ``},
		{Options{Time: "unixnano"}, `1795182250123456789`, ``},
		{Options{Time: layout}, `"2026/11/20 UTC"`, `"2026/11/20 UTC"`},
		{Options{Time: layout, OwnLocation: true}, `"2026/11/20 XY"`, `"2026/11/20 XY"`},
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
			l := Options{Time: c.o.Time, Location: c.o.Location, OwnLocation: c.o.OwnLocation, ReplaceAttr: replace}
			r.Attrs = r.Attrs[:1]
			out, _, _ = Logfmt(&l).Scope().Append(nil, &r)
			if want := fmt.Sprintf("time=%s level=INFO msg=m t=%[1]s\n", c.logfmt); string(out) != want {
				t.Errorf("got %swant %s", out, want)
			}
		}
	}
}

func TestDurationFormats(t *testing.T) {
	for f, want := range map[string]string{
		"": "1500000001", "ns": "1500000001", "text": `"1.500000001s"`, "seconds": "1.500000001", "minutes": "1500000001",
	} {
		if got := value(t, JSON(&Options{Duration: f}), 1500000001*time.Nanosecond); got != want {
			t.Errorf("%v: got %s want %s", f, got, want)
		}
	}
	if got := encodeOne(t, Logfmt(nil), slog.Duration("d", 1500*time.Microsecond)); got != "level=INFO msg=m d=1500000\n" {
		t.Error(got)
	}
	if got := value(t, JSON(&Options{Duration: "text"}), []time.Duration{time.Second}); got != `["1s"]` {
		t.Error(got)
	}
}

func TestLevelFormats(t *testing.T) {
	for f, want := range map[string][]string{
		"":       {`"DEBUG-996"`, `"DEBUG"`, `"INFO"`, `"INFO+1"`, `"WARN"`, `"ERROR"`, `"ERROR+992"`},
		"lower":  {`"debug-996"`, `"debug"`, `"info"`, `"info+1"`, `"warn"`, `"error"`, `"error+992"`},
		"number": {`-1000`, `-4`, `0`, `1`, `4`, `8`, `1000`},
	} {
		for i, l := range []slog.Level{-1000, slog.LevelDebug, slog.LevelInfo, slog.LevelInfo + 1, slog.LevelWarn, slog.LevelError, 1000} {
			r := Record{Level: l, Attrs: []slog.Attr{slog.Any("l", l)}}
			for _, replace := range []func([]string, slog.Attr) slog.Attr{nil, func(_ []string, a slog.Attr) slog.Attr { return a }} {
				out, m, _ := JSON(&Options{Level: f, ReplaceAttr: replace}).Scope().Append(nil, &r)
				if w := fmt.Sprintf(`{"level":%s,"msg":"","l":%[1]s}`+"\n", want[i]); string(out) != w {
					t.Errorf("got %swant %s", out, w)
				}
				if m.Level != l {
					t.Errorf("Meta.Level %v", m.Level)
				}
			}
			out, _, _ := Logfmt(&Options{Level: f}).Scope().Append(nil, &r)
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
		{JSON(&Options{AddSource: true}), `{"level":"INFO","source":` + object + `,"msg":"m"}`},
		{JSON(&Options{AddSource: true, ReplaceAttr: same}), `{"level":"INFO","source":` + object + `,"msg":"m"}`},
		{JSON(&Options{AddSource: true, Caller: "full"}), `{"level":"INFO","source":"` + f.Full + `","msg":"m"}`},
		{JSON(&Options{AddSource: true, Caller: "short"}), `{"level":"INFO","source":"` + f.Short + `","msg":"m"}`},
		{JSON(&Options{AddSource: true, Caller: "short", ReplaceAttr: same}), `{"level":"INFO","source":"` + f.Short + `","msg":"m"}`},
		{JSON(&Options{AddSource: true, Caller: "short", SourceKey: "caller", LevelKey: "-"}), `{"caller":"` + f.Short + `","msg":"m"}`},
		{JSON(&Options{AddSource: true, SourceKey: "-"}), `{"level":"INFO","msg":"m"}`},
		{JSON(&Options{AddSource: true, MessageKey: "-", Caller: "short"}), `{"level":"INFO","source":"` + f.Short + `"}`},
		{Logfmt(&Options{AddSource: true}), `level=INFO source=` + f.Full + ` msg=m`},
		{Logfmt(&Options{AddSource: true, ReplaceAttr: same}), `level=INFO source=` + f.Full + ` msg=m`},
		{Logfmt(&Options{AddSource: true, Caller: "short"}), `level=INFO source=` + f.Short + ` msg=m`},
		{Logfmt(&Options{AddSource: true, Caller: "object"}), fmt.Sprintf(`level=INFO source.function=%s source.file=%s source.line=%d msg=m`, f.Source.Function, f.Source.File, f.Source.Line)},
		{Console(&Options{AddSource: true}), `INFO  ` + f.Short + ` m`},
		{Console(&Options{AddSource: true, ReplaceAttr: same}), `INFO  ` + f.Short + ` m`},
		{Console(&Options{AddSource: true, Caller: "object", LevelKey: "-"}), f.Full + ` m`},
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
	// A *slog.Source that is an attribute is written in the same format.
	src := &slog.Source{Function: "f", File: "/a/b/c.go", Line: 3}
	if got := value(t, JSON(&Options{Caller: "short"}), src); got != `"b/c.go:3"` {
		t.Error(got)
	}
	if got := value(t, JSON(nil), src); got != `{"function":"f","file":"/a/b/c.go","line":3}` {
		t.Error(got)
	}
	if JSON(nil).NeedsPC() || Logfmt(nil).NeedsPC() || Console(nil).NeedsPC() {
		t.Error("NeedsPC without AddSource")
	}
}

func TestKeysOfBuiltins(t *testing.T) {
	r := Record{Time: benchTime, Message: "m"}
	for _, c := range []struct {
		e    Encoder
		want string
	}{
		{JSON(&Options{TimeKey: "ts", LevelKey: "severity", MessageKey: "message"}), `{"ts":"2026-11-20T13:44:10.123456789Z","severity":"INFO","message":"m"}`},
		{JSON(&Options{TimeKey: "a\"\n", LevelKey: "-", MessageKey: "\xff"}), `{"a\"\n":"2026-11-20T13:44:10.123456789Z","` + "\ufffd" + `":"m"}`},
		{JSON(&Options{TimeKey: "-", LevelKey: "-", MessageKey: "-"}), `{}`},
		{JSON(&Options{MessageKey: "-"}), `{"time":"2026-11-20T13:44:10.123456789Z","level":"INFO"}`},
		{JSON(&Options{LevelKey: "-", MessageKey: "-"}), `{"time":"2026-11-20T13:44:10.123456789Z"}`},
		{JSON(&Options{TimeKey: "-"}), `{"level":"INFO","msg":"m"}`},
		{Logfmt(&Options{TimeKey: "t s", LevelKey: "l=", MessageKey: "m\n"}), `t_s=2026-11-20T13:44:10.123456789Z l_=INFO m_=m`},
		{Logfmt(&Options{TimeKey: "-", LevelKey: "-", MessageKey: "-"}), ``},
		{Logfmt(&Options{MessageKey: "-"}), `time=2026-11-20T13:44:10.123456789Z level=INFO`},
	} {
		out, _, _ := c.e.Scope().Append([]byte("x "), &r)
		if string(out) != "x "+c.want+"\n" {
			t.Errorf("got %swant %s", out, c.want)
		}
	}
	// The separators are correct for any combination of omitted built-in attributes.
	for _, o := range []Options{{TimeKey: "-", LevelKey: "-", MessageKey: "-"}, {MessageKey: "-"}, {LevelKey: "-", MessageKey: "-"}} {
		s := JSON(&o).Scope()
		for _, s := range []Scope{s, s.WithAttrs([]slog.Attr{slog.Int("w", 1)}), s.WithGroup("g"), s.WithGroup("g").WithAttrs([]slog.Attr{slog.Int("w", 1)})} {
			out, _, _ := s.Append(nil, &Record{Time: benchTime, Attrs: []slog.Attr{slog.Int("a", 1)}})
			checkLine(t, JSON(&o), out)
		}
	}
}

func TestReplaceAttrSeesTheConfiguredKeys(t *testing.T) {
	var keys []string
	e := JSON(&Options{TimeKey: "ts", LevelKey: "sev", MessageKey: "m", AddSource: true, SourceKey: "at", ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
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

// For an unknown format name, the default applies, and Validate returns an error.
func TestUnknownFormatIsReportedByValidate(t *testing.T) {
	o := &Options{Time: "unix-ms", Duration: "minutes", Level: "x", Caller: "y", Errors: "z", AddSource: true}
	pc, _, _, _ := runtime.Caller(0)
	r := &Record{Time: benchTime, PC: pc, Message: "m", Attrs: []slog.Attr{slog.Duration("d", 1), slog.Any("e", fmt.Errorf("a: %w", io.EOF))}}
	for _, form := range []func(*Options) Encoder{JSON, Logfmt, Console} {
		want, _, _ := form(&Options{AddSource: true}).Scope().Append(nil, r)
		e := form(o)
		got, _, _ := e.Scope().Append(nil, r)
		if string(got) != string(want) {
			t.Errorf("got %s\nwant %s", got, want)
		}
		err := e.(*encoder).Validate()
		for _, want := range []string{
			`encode: cannot use Time "unix-ms": it is not a layout with a time field; write the layout for the reference time, such as "2006-01-02 15:04:05", or use one of "rfc3339nano", "rfc3339micro",`,
			`encode: cannot use Duration "minutes": it is not one of "ns", "text", "seconds"`,
			`encode: cannot use Level "x": it is not one of "upper", "lower", "number"`,
			`encode: cannot use Caller "y": it is not one of "object", "full", "short"`,
			`encode: cannot use Errors "z": it is not one of "text", "chain", "verbose"`,
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v\nwant %s", err, want)
			}
		}
	}
}

// Format names are not case-sensitive.
func TestFormatsIgnoreCase(t *testing.T) {
	for _, times := range [][]string{timeNames, {time.Kitchen, ""}} {
		for _, text := range times {
			e := JSON(&Options{Time: text, Duration: "Seconds", Level: "LOWER", Caller: "Short", Errors: "Verbose"}).(*encoder)
			if err := e.Validate(); err != nil {
				t.Error(err)
			}
			if e.Duration != values.DurationSeconds || e.Level != values.LevelLower || e.Caller != values.CallerShort || e.Errors != values.ErrorVerbose {
				t.Errorf("%+v", e.Style)
			}
		}
	}
	for i, text := range timeNames {
		if e := JSON(&Options{Time: strings.ToUpper(text)}).(*encoder); e.Time.Kind != values.TimeKind(i) {
			t.Errorf("%s: got %v", text, e.Time.Kind)
		}
	}
}
