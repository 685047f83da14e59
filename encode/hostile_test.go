package encode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit/race"
	"github.com/forebay-log/forebay/internal/values"
)

// These values can make an encoder panic, loop or overflow the stack.

type panicValuer struct{}

func (panicValuer) LogValue() slog.Value { panic("valuer") }

type ptrValuer struct{ s string }

func (p *ptrValuer) LogValue() slog.Value { return slog.StringValue(p.s) }

type loopValuer struct{}

func (l loopValuer) LogValue() slog.Value { return slog.AnyValue(l) }

// A groupValuer is a LogValuer that returns a group that contains the groupValuer.
type groupValuer struct{ width int }

func (g groupValuer) LogValue() slog.Value {
	attrs := make([]slog.Attr, g.width)
	for i := range attrs {
		attrs[i] = slog.Any("g", g)
	}
	return slog.GroupValue(attrs...)
}

type selfAppender struct{ width int }

// AppendAttrs implements AttrAppender.
func (s *selfAppender) AppendAttrs(dst []slog.Attr) []slog.Attr {
	for range s.width {
		dst = append(dst, slog.Any("a", s))
	}
	return dst
}

type selfListAppender struct{}

func (s *selfListAppender) AppendAttrs(dst []slog.Attr) []slog.Attr {
	return append(dst, slog.Any("l", []*selfListAppender{s, s}))
}

type panicAppender struct{}

func (panicAppender) AppendAttrs([]slog.Attr) []slog.Attr { panic(errors.New("appender")) }

type ptrAppender struct{ s string }

func (p *ptrAppender) AppendAttrs(dst []slog.Attr) []slog.Attr {
	return append(dst, slog.String("s", p.s))
}

type panicError struct{ v any }

func (p panicError) Error() string { panic(p.v) }

type ptrError struct{ s string }

func (p *ptrError) Error() string { return p.s }

func (p *ptrError) Unwrap() error { return errors.New(p.s) }

type panicUnwrap struct{}

func (panicUnwrap) Error() string { return "outside" }

func (panicUnwrap) Unwrap() error { panic("unwrap") }

type panicStringer struct{}

func (panicStringer) String() string { panic("stringer") }

type ptrStringer struct{ s string }

func (p *ptrStringer) String() string { return p.s }

type panicMarshaler struct{}

func (panicMarshaler) MarshalText() ([]byte, error) { panic("text") }

type panicJSON struct{}

func (panicJSON) MarshalJSON() ([]byte, error) { panic("json") }

type badJSON struct{ s string }

func (b badJSON) MarshalJSON() ([]byte, error) { return []byte(b.s), nil }

type errJSON struct{}

func (errJSON) MarshalJSON() ([]byte, error) { return nil, panicError{"in the error"} }

type node struct {
	Name string
	Next *node
}

type twins struct{ A, B *twins }

type parent struct {
	Child *child
}

type child struct {
	Name   string
	Parent *parent `json:"-"`
}

func deepList(n int) *node {
	var list *node
	for range n {
		list = &node{"n", list}
	}
	return list
}

func deepSlice(n int) any {
	var v any = "end"
	for range n {
		v = []any{v}
	}
	return v
}

func hostileValues() map[string]any {
	ring := &node{Name: "ring"}
	ring.Next = ring
	selfMap := map[string]any{}
	selfMap["self"] = selfMap
	selfSlice := []any{nil}
	selfSlice[0] = selfSlice
	type named []named
	typed := named{nil}
	typed[0] = typed
	deepMap := map[string]any{}
	for range 20_000 {
		deepMap = map[string]any{"m": deepMap}
	}
	var nilError *ptrError
	var nilStringer *ptrStringer
	var nilValuer *ptrValuer
	var nilAppender *ptrAppender
	var nilUser *benchUser
	cyclicPanic := map[string]any{}
	cyclicPanic["self"] = cyclicPanic
	fn := func() {}
	return map[string]any{
		"panicking LogValuer":    panicValuer{},
		"endless LogValuer":      loopValuer{},
		"LogValuer in itself":    groupValuer{1},
		"nil LogValuer":          nilValuer,
		"AttrAppender in itself": &selfAppender{1},
		"panicking AttrAppender": panicAppender{},
		"list of panicking":      []panicAppender{{}, {}},
		"nil AttrAppender":       nilAppender,
		"list of nil":            []*ptrAppender{nil, {"x"}},
		"list of nil interface":  []values.AttrAppender{nil, &ptrAppender{"x"}},
		"nil list":               (*[]*ptrAppender)(nil),
		"nil both":               nilUser,
		"panicking error":        panicError{"no"},
		"panic with error":       panicError{panicError{"again"}},
		"panic with cyclic map":  panicError{cyclicPanic},
		"panic with nil error":   panicError{error(nilError)},
		"panicking Unwrap":       panicUnwrap{},
		"nil error":              error(nilError),
		"errors":                 []error{nil, nilError, panicError{1}, errLine},
		"nil errors":             (*[]error)(nil),
		"panicking Stringer":     panicStringer{},
		"nil Stringer":           nilStringer,
		"panicking MarshalText":  panicMarshaler{},
		"panicking MarshalJSON":  panicJSON{},
		"bad JSON":               badJSON{`{"a":`},
		"two JSON values":        badJSON{`1 2`},
		"invalid UTF-8 in JSON":  badJSON{"\"\xff\xc0\x80\""},
		"newlines in JSON":       badJSON{"{\n\"a\"\r\n:1}"},
		"empty JSON":             badJSON{``},
		"error of an error":      errJSON{},
		"raw":                    json.RawMessage("{\"a\":\n1}"),
		"bad raw":                json.RawMessage(`{`),
		"empty raw":              json.RawMessage(``),
		"raw bytes":              json.RawMessage("\"\xff\""),
		"nil raw":                json.RawMessage(nil),
		"bad number":             json.Number("12\n}"),
		"ring":                   ring,
		"ring in a slice":        []*node{ring},
		"map in itself":          selfMap,
		"slice in itself":        selfSlice,
		"typed slice in itself":  typed,
		"pointer to any":         &selfMap,
		"deep list":              deepList(20_000),
		"deep slice":             deepSlice(20_000),
		"deep map":               deepMap,
		"chan":                   make(chan int),
		"func":                   fn,
		"func pointer":           &fn,
		"complex":                complex(1, 2),
		"map with func":          map[string]any{"f": fn},
		"map with NaN":           map[string]float64{"f": math.NaN()},
		"map with odd keys":      map[point2]int{{1, 2}: 3},
		"map with bad keys":      map[string]int{"\xff\n\"": 1},
		"struct with bytes":      struct{ S string }{"\xff\x00\n"},
		"NaN":                    math.NaN(),
		"+Inf":                   math.Inf(1),
		"-Inf":                   math.Inf(-1),
		"floats":                 []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64},
		"float32s":               []float32{float32(math.NaN()), float32(math.Inf(1))},
		"invalid UTF-8":          "a\xff\xfe\xed\xa0\x80b",
		"controls":               "\x00\x1b[31m\x7f\u0085\u202e\u2028\r\n",
		"strings":                []string{"\xff", "\n", "\u2028"},
		"far future":             time.Unix(1<<60, 5).UTC(),
		"far past":               time.Unix(-1<<60, 5).UTC(),
		"zero time":              time.Time{},
		"odd zone":               time.Date(2020, 1, 1, 0, 0, 0, 0, time.FixedZone("\n\"\xff", 61)),
		"times":                  []time.Time{{}, time.Unix(1<<60, 0)},
		"min":                    int64(math.MinInt64),
		"huge":                   strings.Repeat("x\n", 20_000),
		"huge list":              make([]int, 20_000),
		"nil":                    nil,
		"unsafe nil":             (*int)(nil),
	}
}

var errLine = fmt.Errorf("plain%s", "\n")

type point2 struct{ x, y int }

var hostileStrings = []string{"", "k", "a b", "a=b", `a"b`, "a\nb", "\x00", "\xff", "a.b", "\u202e", "\u2028", "ключ", strings.Repeat("k", 1000), "{", "[", ","}

func hostileEncoders() map[string]Encoder {
	const layout string = "Mon \n\"2006\" MST \xff"
	same := func(_ []string, a slog.Attr) slog.Attr { return a }
	return map[string]Encoder{
		"json":            JSON(nil),
		"json replace":    JSON(&Options{ReplaceAttr: same, AddSource: true, OwnLocation: true}),
		"json panics":     JSON(&Options{ReplaceAttr: func([]string, slog.Attr) slog.Attr { panic("replace") }}),
		"json chain":      JSON(chained),
		"logfmt chain":    Logfmt(chained),
		"console chain":   Console(chained),
		"json bare":       JSON(&Options{TimeKey: "-", LevelKey: "-", MessageKey: "-", Errors: "verbose"}),
		"json layout":     JSON(&Options{Time: layout, OwnLocation: true, Duration: "text", TimeKey: "\xff\n"}),
		"json unix":       JSON(&Options{Time: "unixnano", Level: "number", Duration: "seconds"}),
		"logfmt":          Logfmt(nil),
		"logfmt replace":  Logfmt(&Options{ReplaceAttr: same, AddSource: true, Caller: "object"}),
		"logfmt layout":   Logfmt(&Options{Time: layout, OwnLocation: true, TimeKey: "\xff\n ="}),
		"logfmt bare":     Logfmt(&Options{TimeKey: "-", LevelKey: "-", MessageKey: "-"}),
		"console":         Console(nil),
		"console color":   Console(&Options{Color: true, AddSource: true}),
		"console replace": Console(&Options{ReplaceAttr: same, OwnLocation: true, Time: layout}),
		"console panics":  Console(&Options{ReplaceAttr: func([]string, slog.Attr) slog.Attr { panic("replace") }}),
	}
}

// checkLine checks that out is one valid line, as every encoder must write it.
func checkLine(t *testing.T, e Encoder, out []byte) {
	t.Helper()
	if !utf8.Valid(out) {
		t.Fatalf("not UTF-8: %.300q", out)
	}
	body, ok := bytes.CutSuffix(out, []byte{'\n'})
	if !ok {
		t.Fatalf("no newline at the end: %.300q", out)
	}
	enc := e.(*encoder)
	switch enc.Form {
	case values.FormJSON:
		if bytes.IndexByte(body, '\n') >= 0 || !json.Valid(body) || body[0] != '{' {
			t.Fatalf("not one line of JSON: %.300q", out)
		}
	case values.FormLogfmt:
		if bytes.IndexByte(body, '\n') >= 0 {
			t.Fatalf("more than one line: %.300q", out)
		}
		if _, err := parseLogfmt(string(body)); err != nil {
			t.Fatalf("not logfmt: %v: %.300q", err, out)
		}
	case values.FormConsole:
		for i, line := range strings.Split(string(body), "\n") {
			if i > 0 && !strings.HasPrefix(line, "    ") {
				t.Fatalf("a line that looks like a record: %.300q", out)
			}
		}
		body = bytes.ReplaceAll(body, []byte("\n    "), nil)
		if enc.Color {
			for _, seq := range []string{values.ColorOff, values.ColorFaint, values.ColorRed, values.ColorGreen, values.ColorAmber, values.ColorBlue} {
				body = bytes.ReplaceAll(body, []byte(seq), nil)
			}
		}
	}
	if enc.Form != values.FormJSON {
		for _, r := range string(body) {
			if r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x2028 || r == 0x2029 || r == 0x200e || r == 0x200f {
				t.Fatalf("raw control character %q in %.300q", r, out)
			}
		}
	}
}

func TestHostileValuesDoNotBreakLines(t *testing.T) {
	values := hostileValues()
	for name, e := range hostileEncoders() {
		t.Run(name, func(t *testing.T) {
			for what, v := range values {
				for _, r := range []Record{
					{Message: what, Attrs: []slog.Attr{slog.Any("k", v), slog.Int("after", 1)}},
					{Time: time.Unix(1<<55, 0), Level: math.MaxInt, PC: 1, Attrs: []slog.Attr{slog.Group("g", slog.Any("", v)), slog.Any("", v)}},
				} {
					out, _, err := e.Scope().Append(nil, &r)
					if err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					checkLine(t, e, out)
					codecCheck(t, e, out)
				}
				s := e.Scope().WithAttrs([]slog.Attr{slog.Any("k", v)}).WithGroup("g").WithAttrs([]slog.Attr{slog.Any("k", v)})
				out, _, err := s.Append(nil, &Record{Message: "m"})
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				checkLine(t, e, out)
			}
		})
	}
}

func codecCheck(t *testing.T, e Encoder, rec []byte) {
	t.Helper()
	checkJSONLine(t, e.Codec().AppendJSON([]byte("x"), rec, batch.Meta{}), rec)
}

// checkJSONLine checks that a codec has appended one JSON object, without a newline, to "x".
func checkJSONLine(t *testing.T, out, rec []byte) {
	t.Helper()
	if len(out) < 3 || out[0] != 'x' || out[1] != '{' || !json.Valid(out[1:]) || bytes.ContainsAny(out, "\r\n") || !utf8.Valid(out) {
		t.Fatalf("AppendJSON made %.300q of %.300q", out, rec)
	}
}

func TestHostileStringsDoNotBreakLines(t *testing.T) {
	for name, e := range hostileEncoders() {
		t.Run(name, func(t *testing.T) {
			for _, a := range hostileStrings {
				for _, b := range hostileStrings {
					s := e.Scope().WithGroup(a).WithAttrs([]slog.Attr{slog.String(b, a)}).WithGroup(b)
					out, _, err := s.Append(nil, &Record{Time: benchTime, Message: b, Attrs: []slog.Attr{
						slog.String(a, b), slog.Group(b, slog.String(a, b)), slog.Any(a, &ptrAppender{b}), slog.Any(b, errors.New(a)),
					}})
					if err != nil {
						t.Fatal(err)
					}
					checkLine(t, e, out)
				}
			}
		})
	}
}

// Hostile texts are escaped.
func TestHostileTextIsEscaped(t *testing.T) {
	values := hostileValues()
	for _, c := range []struct{ name, json, logfmt string }{
		{"panicking error", `"!PANIC: no"`, `"!PANIC: no"`},
		{"panic with error", `"!PANIC: !PANIC: again"`, `"!PANIC: !PANIC: again"`},
		{"panic with cyclic map", `"!PANIC: (a value of type map[string]interface {})"`, ""},
		{"panic with nil error", `"!PANIC: <nil>"`, ""},
		{"nil error", `"<nil>"`, `<nil>`},
		{"nil Stringer", `null`, `<nil>`}, // encoding/json writes null for a nil pointer to a struct
		{"panicking Stringer", `{}`, `"!PANIC: stringer"`},
		{"nil AttrAppender", `"<nil>"`, `<nil>`},
		{"panicking AttrAppender", `"!PANIC: appender"`, ""},
		{"list of panicking", `["!PANIC: appender","!PANIC: appender"]`, ""},
		{"list of nil", `[null,{"s":"x"}]`, ""},
		{"list of nil interface", `[null,{"s":"x"}]`, ""},
		{"nil list", `null`, `<nil>`},
		{"errors", `[null,null,"!PANIC: 1","plain\n"]`, ""},
		{"panicking MarshalText", `"!PANIC: text"`, `"!PANIC: text"`},
		{"panicking MarshalJSON", `"!PANIC: json"`, `"!PANIC: json"`},
		{"bad JSON", `"!ERROR:json: error calling MarshalJSON for type encode.badJSON: unexpected end of JSON input"`, ""},
		{"invalid UTF-8 in JSON", "\"\ufffd\"", ""},
		{"newlines in JSON", `{"a":1}`, ""},
		{"raw", `{"a":1}`, `"{\"a\":1}"`},
		{"raw bytes", "\"\ufffd\"", ""},
		{"nil raw", `null`, `<nil>`},
		{"ring", `"!ERROR:encode: the value contains itself"`, ""},
		{"map in itself", `"!ERROR:encode: the value contains itself"`, ""},
		{"slice in itself", `"!ERROR:encode: the value contains itself"`, ""},
		{"typed slice in itself", `"!ERROR:encode: the value contains itself"`, ""},
		{"deep list", `"!ERROR:encode: the value is nested too deeply"`, ""},
		{"deep slice", `"!ERROR:encode: the value is nested too deeply"`, ""},
		{"deep map", `"!ERROR:encode: the value is nested too deeply"`, ""},
		{"chan", `"!ERROR:json: unsupported type: chan int"`, ""},
		{"complex", `"(1+2i)"`, ""},
		{"NaN", `"NaN"`, `NaN`},
		{"+Inf", `"+Inf"`, `+Inf`},
		{"-Inf", `"-Inf"`, `-Inf`},
		{"floats", `["NaN","+Inf","-Inf",1.7976931348623157e+308,5e-324]`, ""},
		{"invalid UTF-8", `"a` + strings.Repeat("\ufffd", 5) + `b"`, `"a` + strings.Repeat("\ufffd", 5) + `b"`},
		{"controls", `"\u0000\u001b[31m` + "\x7f\u0085\u202e" + `\u2028\r\n"`, `"\u0000\u001b[31m\u007f\u0085\u202e\u2028\r\n"`},
		{"far future", `"36533879339-02-18T10:36:16.000000005Z"`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, ok := values[c.name]
			if !ok {
				t.Fatal("no such value")
			}
			if got := strings.Replace(value(t, JSON(nil), v), "type *encode", "type encode", 1); got != c.json && c.name != "far future" {
				t.Errorf("JSON: got %s want %s", got, c.json)
			}
			if c.logfmt == "" {
				return
			}
			if got, want := encodeOne(t, Logfmt(nil), slog.Any("k", v)), "level=INFO msg=m k="+c.logfmt+"\n"; got != want {
				t.Errorf("logfmt: got %s want %s", got, want)
			}
		})
	}
}

// A cyclic value is encoded if the cycle leads through a field that encoding/json ignores.
func TestUnencodedCycleIsNoError(t *testing.T) {
	p := &parent{&child{Name: "c"}}
	p.Child.Parent = p
	if got := value(t, JSON(nil), p); got != `{"Child":{"Name":"c"}}` {
		t.Error(got)
	}
	if got := value(t, JSON(nil), deepList(400)); strings.Count(got, "Next") != 400 {
		t.Errorf("%.100s", got)
	}
	l := map[string]any{"a": []any{map[string]any{"b": []any{1, "x", nil}}}, "n": &node{Name: "n"}}
	if got, want := value(t, JSON(nil), l), `{"a":[{"b":[1,"x",null]}],"n":{"Name":"n","Next":null}}`; got != want {
		t.Errorf("got %s want %s", got, want)
	}
	loop := map[string]any{}
	loop["loop"] = loop
	if got := value(t, JSON(nil), []ownByAddress{{loop}}); got != `["own"]` {
		t.Error(got)
	}
	if got := value(t, JSON(nil), ownByAddress{loop}); got != `"!ERROR:encode: the value contains itself"` {
		t.Error(got)
	}
	own := &ownMarshaler{}
	own.Self = own
	if got := value(t, JSON(nil), own); got != `"own"` {
		t.Error(got)
	}
	if got := value(t, JSON(nil), []any{own, []ownMarshaler{*own}}); got != `["own",["own"]]` {
		t.Error(got)
	}
}

// An ownByAddress has a method MarshalJSON with a pointer receiver. If encoding/json calls that
// method, the fields are not written.
type ownByAddress struct{ Any any }

func (*ownByAddress) MarshalJSON() ([]byte, error) { return []byte(`"own"`), nil }

type ownMarshaler struct{ Self *ownMarshaler }

func (*ownMarshaler) MarshalJSON() ([]byte, error) { return []byte(`"own"`), nil }

// If the time in nanoseconds does not fit into an int64, it is unknown in Meta.
func TestTimeBeyondInt64IsUnknown(t *testing.T) {
	for _, c := range []struct {
		t    time.Time
		want string
		meta int64
	}{
		{time.Date(1500, 1, 2, 3, 4, 5, 6, time.UTC), "1500-01-02T03:04:05.000000006Z", 0},
		{time.Date(1677, 9, 21, 0, 12, 43, 145224192, time.UTC), "1677-09-21T00:12:43.145224192Z", 0},
		{time.Date(1678, 1, 1, 0, 0, 0, 0, time.UTC), "1678-01-01T00:00:00.000000000Z", time.Date(1678, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()},
		{time.Date(2262, 1, 1, 0, 0, 0, 7, time.UTC), "2262-01-01T00:00:00.000000007Z", time.Date(2262, 1, 1, 0, 0, 0, 7, time.UTC).UnixNano()},
		{time.Date(2500, 1, 1, 0, 0, 0, 1, time.UTC), "2500-01-01T00:00:00.000000001Z", 0},
		{time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC), "9999-12-31T23:59:59.999999999Z", 0},
	} {
		r := &Record{Time: c.t, Message: "m", Attrs: []slog.Attr{slog.Time("t", c.t)}}
		out, m, err := JSON(nil).Scope().Append(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf(`{"time":"%s","level":"INFO","msg":"m","t":"%[1]s"}`+"\n", c.want); string(out) != want {
			t.Errorf("got %swant %s", out, want)
		}
		if m.Time != c.meta {
			t.Errorf("%v: Meta.Time %d want %d", c.t, m.Time, c.meta)
		}
	}
}

// Deep or wide values do not terminate the process by a stack overflow, which cannot be recovered.
func TestNestingIsBounded(t *testing.T) {
	n := race.Fewer(100_000, 10) // encoding/json overflows the stack for the full depth
	const deep = `"!ERROR:encode: the value is nested too deeply"`
	for _, v := range []any{deepList(n), deepSlice(n)} {
		if got := value(t, JSON(nil), v); got != deep {
			t.Errorf("%T: %.200s", v, got)
		}
	}
	shared := &twins{}
	for range 40 { // 2^40 values if every pointer is followed
		shared = &twins{shared, shared}
	}
	if got := value(t, JSON(nil), shared); got != `"!ERROR:encode: the value holds more than 1048576 others"` {
		t.Errorf("%.200s", got)
	}
}

// Lists of a million values, and endless groups and values, are written only in part.
func TestWidthIsBounded(t *testing.T) {
	race.Skip(t)
	if got := value(t, JSON(nil), make([]any, (1<<20)+1)); len(got) != 5*((1<<20)+1)+1 {
		t.Errorf("a long list of simple values: %d bytes", len(got))
	}
	for _, v := range []any{groupValuer{2}, &selfAppender{2}, &selfListAppender{}} {
		out := encodeOne(t, JSON(nil), slog.Any("k", v))
		if !strings.Contains(out, "!ERROR: groups nested too deeply") && !strings.Contains(out, "!ERROR: too many groups made by LogValuers") {
			t.Errorf("%T: no word of it in %.200s", v, out)
		}
		if len(out) > 100<<20 {
			t.Errorf("%T: %d bytes", v, len(out))
		}
	}
}

func FuzzHostile(f *testing.F) {
	for i := range 40 {
		f.Add(seedBytes(uint64(i), 200))
	}
	encoders := hostileEncoders()
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, e := range encoders {
			var buf bytes.Buffer
			p := program{data: data, rest: 40}
			if err := p.run(testHandler{e.Scope(), &buf}, slog.DiscardHandler); err != nil {
				t.Fatal(err)
			}
			if e.(*encoder).Form == values.FormConsole {
				checkLine(t, e, buf.Bytes()[bytes.LastIndex(buf.Bytes()[:buf.Len()-1], []byte("\n"))+1:])
				continue
			}
			for line := range bytes.Lines(buf.Bytes()) {
				checkLine(t, e, line)
				codecCheck(t, e, line)
			}
		}
	})
}
