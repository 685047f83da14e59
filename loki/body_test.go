package loki

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/encode"
)

type testUUID [16]byte

func (u testUUID) String() string               { return strings.ToUpper(fmt.Sprintf("%x", u[:])) }
func (u testUUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

var someUUID = testUUID{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10}

type attrUser struct{ id int }

func (u attrUser) AppendAttrs(dst []slog.Attr) []slog.Attr {
	return append(dst, slog.Int("id", u.id), slog.Int("id", u.id))
}

type valuer struct{ v slog.Value }

func (v valuer) LogValue() slog.Value { return v.v }

// A line contains the message, the attributes and the groups as documented in the package comment.
func TestJSONLine(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("x", 3600))
	for _, tt := range []struct {
		name  string
		c     Config
		with  []func(encode.Scope) encode.Scope
		attrs []slog.Attr
		want  string
	}{
		{name: "message", want: `{"msg":"hi"}`},
		{name: "values", attrs: []slog.Attr{
			slog.Int("i", -3), slog.Uint64("u", 7), slog.Float64("f", 1.5), slog.Bool("b", true), slog.String("s", "a\"b\n"),
			slog.Duration("d", 1500*time.Millisecond), slog.Time("t", at), slog.Any("id", someUUID), slog.Any("n", nil),
			slog.Float64("nan", math.NaN()), slog.Float64("inf", math.Inf(-1)), slog.Any("ip", netip.MustParseAddr("10.0.0.1")),
			slog.Any("list", []int{1, 2}), slog.Any("map", map[string]int{"a": 1}), slog.Any("lv", slog.LevelWarn),
		}, want: `{"msg":"hi","i":-3,"u":7,"f":1.5,"b":true,"s":"a\"b\n","d":1500000000,"t":"2026-01-02T02:04:05.000006000Z",` +
			`"id":"01234567-89ab-cdef-fedc-ba9876543210","n":null,"nan":"NaN","inf":"-Inf","ip":"10.0.0.1","list":[1,2],"map":{"a":1},"lv":"WARN"}`},
		{name: "collisions", attrs: []slog.Attr{slog.Int("msg", 1), slog.Int("a", 1), slog.Int("a", 2), slog.Int("a_", 3), slog.Int("msg", 4)},
			want: `{"msg":"hi","msg_":1,"a":1,"a_":2,"a__":3,"msg__":4}`},
		{name: "collisions in front", c: Config{NoLevelLabel: true, Line: Line{Collisions: "prefix"}}, attrs: []slog.Attr{
			slog.Int("msg", 1), slog.Int("a", 1), slog.Int("a", 2), slog.Int("_a", 3), slog.Int("msg", 4), slog.Group("a", slog.Int("x", 1), slog.Int("x", 2)), slog.Int("level", 5)},
			want: `{"msg":"hi","level":"warn","_msg":1,"a":1,"_a":2,"__a":3,"__msg":4,"___a":{"x":1,"_x":2},"_level":5}`},
		{name: "beside errors", c: Config{Line: Line{Errors: "chain"}}, attrs: []slog.Attr{
			slog.Any("err", fmt.Errorf("a: %w", io.EOF)), slog.Int("err_chain", 1), slog.Int("e_stack", 2), slog.Any("e", fmt.Errorf("b: %w", io.EOF)), slog.Any("err", io.EOF)},
			want: `{"msg":"hi","err":"a: EOF","err_chain":["EOF"],"err_chain_":1,"e_stack":2,"e_":"b: EOF","e__chain":["EOF"],"err_":"EOF"}`},
		{name: "errors in groups", c: Config{Line: Line{Errors: "chain"}}, with: []func(encode.Scope) encode.Scope{inGroup("g"), with(slog.Any("err", fmt.Errorf("a: %w", io.EOF)))},
			attrs: []slog.Attr{slog.Int("err_chain", 1), slog.Group("h", slog.Any("err", fmt.Errorf("a: %w", io.EOF)))},
			want:  `{"msg":"hi","g":{"err":"a: EOF","err_chain":["EOF"],"err_chain_":1,"h":{"err":"a: EOF","err_chain":["EOF"]}}}`},
		{name: "errors of their own", attrs: []slog.Attr{slog.Any("json", asJSON{}), slog.Any("group", asGroup{}), slog.Any("err", fmt.Errorf("a: %w", io.EOF))},
			want: `{"msg":"hi","json":"text","group":{"code":7},"err":"a: EOF"}`},
		{name: "groups", attrs: []slog.Attr{slog.Group("g", slog.Int("x", 1), slog.Int("x", 2), slog.Group("empty")), slog.Group("", slog.Int("g", 1)), slog.Group("none")},
			want: `{"msg":"hi","g":{"x":1,"x_":2},"g_":1}`},
		{name: "with", with: []func(encode.Scope) encode.Scope{with(slog.Int("a", 1)), inGroup("a"), with(slog.Int("b", 2)), inGroup("c")},
			attrs: []slog.Attr{slog.Int("a", 3)}, want: `{"msg":"hi","a":1,"a_":{"b":2,"c":{"a":3}}}`},
		{name: "with, no attributes", with: []func(encode.Scope) encode.Scope{with(slog.Int("a", 1)), inGroup("g")}, want: `{"msg":"hi","a":1}`},
		{name: "group first", with: []func(encode.Scope) encode.Scope{inGroup("g"), inGroup("h"), with(slog.Int("a", 1))}, attrs: []slog.Attr{slog.Int("a", 2)},
			want: `{"msg":"hi","g":{"h":{"a":1,"a_":2}}}`},
		{name: "valuers", attrs: []slog.Attr{slog.Any("v", valuer{slog.IntValue(1)}), slog.Any("g", valuer{slog.GroupValue(slog.Int("x", 1))}), slog.Any("u", attrUser{3})},
			want: `{"msg":"hi","v":1,"g":{"x":1},"u":{"id":3,"id_":3}}`},
		{name: "no level label", c: Config{NoLevelLabel: true}, want: `{"msg":"hi","level":"warn"}`},
		{name: "logfmt", c: Config{Line: Line{Body: bodyLogfmt}}, attrs: []slog.Attr{slog.String("a", "b c")}, want: `msg=hi a="b c"`},
		{name: "message key", c: Config{Line: Line{MessageKey: "Message"}}, attrs: []slog.Attr{slog.Int("msg", 1)}, want: `{"Message":"hi","msg":1}`},
		{name: "formatter", c: Config{Line: Line{Formatter: encode.JSON(&encode.Options{TimeKey: "-"})}}, attrs: []slog.Attr{slog.Int("a", 1)}, want: `{"level":"WARN","msg":"hi","a":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, w := range []string{wireProtobuf, wireJSON, wireGzip} {
				tt.c.Wire = w
				got, _ := encodeOne(t, tt.c, encode.Record{Level: slog.LevelWarn, Message: "hi", Attrs: tt.attrs}, tt.with...)
				if got.Line != tt.want {
					t.Errorf("%s:\n got %s\nwant %s", w, got.Line, tt.want)
				}
			}
		})
	}
}

// The error type asGroup is also an AttrAppender and is therefore logged as a group.
type asGroup struct{}

func (asGroup) Error() string                           { return "text" }
func (asGroup) AppendAttrs(dst []slog.Attr) []slog.Attr { return append(dst, slog.Int("code", 7)) }

// A countingError counts the calls of its methods.
type countingError struct {
	text                  string
	inner                 error
	errors, unwrap, stack *int
	pcs                   []uintptr
}

func (e *countingError) Error() string      { *e.errors++; return e.text }
func (e *countingError) Unwrap() error      { *e.unwrap++; return e.inner }
func (e *countingError) Callers() []uintptr { *e.stack++; return e.pcs }

func newCounting(text string, inner error) *countingError {
	pcs := make([]uintptr, 1)
	runtime.Callers(1, pcs)
	return &countingError{text, inner, new(int), new(int), new(int), pcs}
}

// Error, Unwrap and Callers are called once for each error of a chain.
func TestErrorMethodsAreCalledOncePerRecord(t *testing.T) {
	in := newCounting("in", nil)
	out := newCounting("out", in)
	got, _ := encodeOne(t, Config{Line: Line{Errors: "object"}}, encode.Record{Message: "m", Attrs: []slog.Attr{slog.Any("err", out)}})
	for _, e := range []*countingError{in, out} {
		if *e.errors != 1 || *e.unwrap != 1 || *e.stack != 1 {
			t.Errorf("%s: Error called %d times, Unwrap %d, Callers %d", e.text, *e.errors, *e.unwrap, *e.stack)
		}
	}
	for _, want := range []string{`"err":{"Type":"*loki.countingError","Message":"out","Source":"loki/body_test.go:`, `"StackTrace":"github.com/forebay-log/forebay/loki.newCounting `, `"Inner":{"Type":"*loki.countingError","Message":"in"`} {
		if !strings.Contains(got.Line, want) {
			t.Errorf("%s lacks %s", got.Line, want)
		}
	}
}

type countingValuer struct{ asked *int }

func (v countingValuer) LogValue() slog.Value {
	*v.asked++
	return slog.IntValue(*v.asked)
}

// A value that is written both to the line and to a label or metadata is evaluated once, and the
// texts are equal.
func TestLabelValuesAreEvaluatedOnce(t *testing.T) {
	for _, w := range []string{wireProtobuf, wireJSON} {
		for _, c := range []Config{{MetadataAll: true, Wire: w, Line: Line{Errors: "object"}}, {MetadataAttrs: []string{"err", "v", "made"}, LabelAttrs: []string{"err", "v"}, Wire: w, Line: Line{Errors: "object"}}} {
			err, made, asked := newCounting("text", newCounting("in", nil)), newCounting("made", nil), 0
			attrs := []slog.Attr{slog.Any("err", err), slog.Any("v", countingValuer{&asked}), slog.Any("made", valuerOf{slog.AnyValue(made)})}
			for _, scoped := range []bool{false, true} {
				*err.errors, *made.errors, asked = 0, 0, 0
				var got gotEntry
				if scoped {
					got, _ = encodeOne(t, c, encode.Record{Message: "m"}, with(attrs...))
				} else {
					got, _ = encodeOne(t, c, encode.Record{Message: "m", Attrs: attrs})
				}
				if *err.errors != 1 || *made.errors != 1 || asked != 1 {
					t.Errorf("Error was called %d and %d times, LogValue %d times", *err.errors, *made.errors, asked)
				}
				if got.Meta["err"] != "text" || got.Meta["v"] != "1" || got.Meta["made"] != "made" || !strings.Contains(got.Line, `"v":1,"made":{"Type":"*loki.countingError","Message":"made"`) ||
					!strings.Contains(got.Line, `"err":{"Type":"*loki.countingError","Message":"text","Source":`) {
					t.Errorf("%v %s", got.Meta, got.Line)
				}
			}
		}
	}
}

type valuerOf struct{ v slog.Value }

func (v valuerOf) LogValue() slog.Value { return v.v }

// Each value of Line.Errors results in the documented form.
func TestErrorFormsOfLines(t *testing.T) {
	chain := error(errors.New("end"))
	for range 30 {
		chain = fmt.Errorf("w: %w", chain)
	}
	for form, want := range map[string]string{
		"":        `{"msg":"m","plain":"a","joined":"x\ny","wrapped":"w: EOF"}`,
		"text":    `{"msg":"m","plain":"a","joined":"x\ny","wrapped":"w: EOF"}`,
		"chain":   `{"msg":"m","plain":"a","joined":"x\ny","joined_chain":[["x"],["y"]],"wrapped":"w: EOF","wrapped_chain":["EOF"]}`,
		"verbose": `{"msg":"m","plain":"a","joined":"x\ny","wrapped":"w: EOF"}`,
		"object": `{"msg":"m","plain":{"Type":"*errors.errorString","Message":"a"},"joined":{"Type":"*errors.joinError","Message":"x\ny",` +
			`"Inner":[{"Type":"*errors.errorString","Message":"x"},{"Type":"*errors.errorString","Message":"y"}]},` +
			`"wrapped":{"Type":"*fmt.wrapError","Message":"w: EOF","Inner":{"Type":"*errors.errorString","Message":"EOF"}}}`,
		"exception": `{"msg":"m","plain":{"Type":"*errors.errorString","Message":"a"},"joined":{"Type":"*errors.joinError","Message":"x\ny",` +
			`"InnerExceptions":[{"Type":"*errors.errorString","Message":"x"},{"Type":"*errors.errorString","Message":"y"}]},` +
			`"wrapped":{"Type":"*fmt.wrapError","Message":"w: EOF","InnerException":{"Type":"*errors.errorString","Message":"EOF"}}}`,
	} {
		got, _ := encodeOne(t, Config{MetadataAll: true, Line: Line{Errors: form}}, encode.Record{Message: "m", Attrs: []slog.Attr{
			slog.Any("plain", errors.New("a")),
			slog.Any("joined", errors.Join(errors.New("x"), nil, errors.New("y"))),
			slog.Any("wrapped", fmt.Errorf("w: %w", io.EOF)),
		}})
		if got.Line != want {
			t.Errorf("%s: got %s\nwant %s", form, got.Line, want)
		}
		if meta := map[string]string{"plain": "a", "joined": "x\ny", "wrapped": "w: EOF"}; !maps.Equal(got.Meta, meta) {
			t.Errorf("%s: metadata %v", form, got.Meta)
		}
	}
	got, _ := encodeOne(t, Config{Line: Line{Errors: "object"}}, encode.Record{Message: "m", Attrs: []slog.Attr{slog.Any("err", chain)}})
	if n := strings.Count(got.Line, `"Type"`); n != 20 || !strings.Contains(got.Line, `"Inner":"(and more)"`) {
		t.Errorf("got %d errors of a chain of 31: %s", n, got.Line)
	}
}

type panicky struct{}

func (panicky) Error() string { panic("boom") }

type endless struct{}

func (endless) LogValue() slog.Value {
	return slog.GroupValue(slog.Any("", endless{}), slog.Any("a", endless{}))
}

// A value that panics, or that creates groups without end, does not make the line invalid.
func TestHostileValuesDoNotBreakLine(t *testing.T) {
	got, _ := encodeOne(t, Config{MetadataAll: true, Line: Line{Errors: "object"}}, encode.Record{Message: "bad \xff", Attrs: []slog.Attr{
		slog.Any("p", panicky{}), slog.Any("e", endless{}), slog.String("s\xff", "v\xff"), slog.Any("", nil), slog.Any("f", func() {}),
		slog.Any("nilerr", (*countingError)(nil)),
	}})
	if !strings.HasPrefix(got.Line, "{\"msg\":\"bad \ufffd\","+`"p":{"Type":"loki.panicky","Message":"!PANIC: boom"}`) {
		t.Errorf("%.200s", got.Line)
	}
}
