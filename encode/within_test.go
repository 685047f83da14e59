package encode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// asValue returns the JSON of v as an attribute. Logfmt and console write this JSON as a quoted
// string.
func asValue(t *testing.T, e Encoder, v any) string {
	t.Helper()
	line := strings.TrimSuffix(encodeOne(t, e, slog.Any("k", v)), "\n")
	if _, text, ok := strings.Cut(line, ` k=`); ok {
		var s string
		if json.Unmarshal([]byte(text), &s) == nil {
			return s
		}
		return text
	}
	_, text, _ := strings.Cut(strings.TrimSuffix(line, "}"), `"k":`)
	return text
}

// Formats of times, durations and levels also apply within structs, maps and lists.
func TestFormatsApplyWithinValues(t *testing.T) {
	at := time.Date(2026, 11, 20, 23, 4, 5, 6_000_000, time.FixedZone("", -5400))
	d, l := 1500*time.Millisecond, slog.LevelWarn+1
	for _, o := range []Options{
		{}, {Time: "rfc3339", Location: time.FixedZone("", 3600)}, {Time: "unixmilli", Duration: "text", Level: "lower"}, {OwnLocation: true, Duration: "seconds"},
		{Time: `2006 "Jan" 02`, Level: "number"}, {Time: "clock"}, {Duration: "ns"},
	} {
		for name, form := range map[string]func(*Options) Encoder{"json": JSON, "logfmt": Logfmt, "console": Console} {
			e := form(&o)
			text := func(v any) string { return asValue(t, e, v) }
			in := func(list string) string { return strings.TrimSuffix(strings.TrimPrefix(list, "["), "]") }
			ts, ds := in(text([]time.Time{at})), in(text([]time.Duration{d}))
			ls := `"` + strings.Trim(text(l), `"`) + `"`
			if o.Level == "number" {
				ls = "5"
			}
			type inner struct {
				T time.Time
				D time.Duration `json:"d"`
				L *slog.Level
			}
			fields := `{"T":` + ts + `,"d":` + ds + `,"L":` + ls + `}`
			for _, c := range []struct {
				v    any
				want string
			}{
				{inner{at, d, &l}, fields}, {&inner{at, d, &l}, fields}, {[]inner{{at, d, &l}}, `[` + fields + `]`}, {map[int]*inner{7: {at, d, &l}}, `{"7":` + fields + `}`},
				{[]any{at, &at, d, &d, l, inner{at, d, &l}}, `[` + ts + `,` + ts + `,` + ds + `,` + ds + `,` + ls + `,` + fields + `]`},
				{map[string]any{"a": at, "b": []any{d}}, `{"a":` + ts + `,"b":[` + ds + `]}`}, {map[string]time.Time{"a": at}, `{"a":` + ts + `}`}, {map[string]time.Duration{"a": d}, `{"a":` + ds + `}`},
				{struct{ D time.Duration }{d}, `{"D":` + ds + `}`}, {[2]time.Duration{d, d}, `[` + ds + `,` + ds + `]`}, {struct{ V any }{at}, `{"V":` + ts + `}`},
				{[]slog.Value{slog.TimeValue(at), slog.DurationValue(d)}, `[` + ts + `,` + ds + `]`},
			} {
				if got := text(c.v); got != c.want {
					t.Errorf("%s %+v: %T:\n got %s\nwant %s", name, o, c.v, got, c.want)
				}
			}
		}
	}
}

// A time outside the years of RFC 3339 is written in the same way within a struct or a map as in an
// attribute. Other members are not affected.
func TestTimeBeyondRFC3339WithinValues(t *testing.T) {
	v := struct {
		T time.Time
		N int
	}{time.Date(12000, 1, 2, 3, 4, 5, 0, time.UTC), 7}
	const want = `{"T":"12000-01-02T03:04:05Z","N":7}`
	if got := value(t, JSON(nil), v); got != want {
		t.Errorf("got %s", got)
	}
	if got := value(t, JSON(nil), []any{map[string]any{"a": v}}); got != `[{"a":`+want+`}]` {
		t.Errorf("got %s", got)
	}
	if got := asValue(t, Logfmt(nil), &v); got != want {
		t.Errorf("got %s", got)
	}
}

type (
	token     string
	ptrToken  struct{ S string }
	secretErr struct{ S string }
	appended  struct{ S string }
	loginErr  struct{ S string }
)

func (token) LogValue() slog.Value { return slog.StringValue("hidden") }

func (*ptrToken) LogValue() slog.Value {
	return slog.GroupValue(slog.Duration("d", time.Second), slog.Any("t", token("secret")))
}

func (e secretErr) Error() string { return "message" }

// AppendAttrs implements AttrAppender.
func (a appended) AppendAttrs(dst []slog.Attr) []slog.Attr {
	return append(dst, slog.Any("list", []any{token("secret")}), slog.Any("err", secretErr{"secret"}))
}

func (loginErr) Error() string { return "secret" }

func (loginErr) LogValue() slog.Value { return slog.StringValue("login") }

// LogValue, AppendAttrs and Error are called for values in structs, maps and lists.
func TestMethodsAreCalledWithinValues(t *testing.T) {
	const group, list = `{"d":1000000000,"t":"hidden"}`, `{"list":["hidden"],"err":"message"}`
	p := &ptrToken{"secret"}
	for _, c := range []struct {
		v    any
		want string
	}{
		{[]token{"secret"}, `["hidden"]`}, {map[string]token{"a": "secret"}, `{"a":"hidden"}`}, {[]any{token("secret"), p}, `["hidden",` + group + `]`},
		{map[string]any{"a": token("secret"), "b": map[int]any{1: p}}, `{"a":"hidden","b":{"1":` + group + `}}`},
		{struct {
			T token `json:"t,omitempty"`
			P *ptrToken
			N *ptrToken
			E error
			V any
		}{"secret", p, nil, secretErr{"secret"}, loginErr{"secret"}}, `{"t":"hidden","P":` + group + `,"N":null,"E":"message","V":"login"}`},
		{[]ptrToken{{"secret"}}, `[` + group + `]`}, {&[1]ptrToken{}, `[` + group + `]`}, {[]*ptrToken{p, nil}, `[` + group + `,null]`}, {&struct{ T ptrToken }{*p}, `{"T":` + group + `}`},
		{map[token]int{"key": 1}, `{"key":1}`}, // LogValue is not called for keys
		{[]slog.LogValuer{token("secret"), nil}, `["hidden",null]`}, {[]any{(*ptrToken)(nil)}, `[null]`},
		{[]any{appended{"secret"}, []appended{{"secret"}}}, `[` + list + `,[` + list + `]]`}, {map[string]appended{"a": {"secret"}}, `{"a":` + list + `}`}, {struct{ A *appended }{&appended{"secret"}}, `{"A":` + list + `}`},
		{[]any{errors.New("e"), fmt.Errorf("w: %w", io.EOF), []error{io.EOF, nil}}, `["e","w: EOF",["EOF",null]]`}, {map[string]error{"a": io.EOF}, `{"a":"EOF"}`},
		{[]secretErr{{"secret"}}, `["message"]`}, {[]any{loginErr{"secret"}}, `["login"]`}, {struct{ E loginErr }{}, `{"E":"login"}`},
		{[]any{slog.GroupValue(slog.Any("t", token("secret")), slog.Group("none")), slog.AnyValue(token("secret"))}, `[{"t":"hidden"},"hidden"]`},
		{[]any{slog.Any("k", token("secret"))}, `[{"Key":"k","Value":"hidden"}]`},
		{[]any{panicValuer{}, loopValuer{}, panicAppender{}, panicError{"no"}}, ``},
	} {
		got := value(t, JSON(nil), c.v)
		if !json.Valid([]byte(got)) || strings.Contains(got, "secret") || c.want != "" && got != c.want {
			t.Errorf("%T:\n got %s\nwant %s", c.v, got, c.want)
		}
		for _, e := range []Encoder{Logfmt(nil), Console(nil)} {
			if got := asValue(t, e, c.v); strings.Contains(got, "secret") {
				t.Errorf("%T: %s", c.v, got)
			}
		}
	}
	// ReplaceAttr is called for the attributes that methods of values in structs, maps and lists
	// return.
	mask := func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == "d" {
			return slog.String("d", strings.Join(groups, "/"))
		}
		return a
	}
	if got := encodeOne(t, JSON(&Options{ReplaceAttr: mask}), slog.Group("g", slog.Any("k", []any{p}))); !strings.Contains(got, `"k":[{"d":"g","t":"hidden"}]`) {
		t.Error(got)
	}
}

// An againValuer is a LogValuer that returns a list containing another againValuer.
type againValuer struct{ width int }

func (v againValuer) LogValue() slog.Value {
	list := make([]any, v.width)
	for i := range list {
		list[i] = v
	}
	return slog.AnyValue(list)
}

// An againGroup is a LogValuer that returns a group with lists containing another againGroup.
type againGroup struct{ width int }

func (v againGroup) LogValue() slog.Value {
	list := make([]againGroup, v.width)
	for i := range list {
		list[i] = v
	}
	return slog.GroupValue(slog.Any("list", list), slog.Any("map", map[string]any{"v": v}))
}

// Methods that endlessly return similar values are called a limited number of times, in every
// combination of types.
func TestEndlessMethodsWithinValuesAreBounded(t *testing.T) {
	for _, v := range []any{[]any{againValuer{1}}, []any{againValuer{2}}, map[string]any{"a": againGroup{1}}, struct{ V any }{[]any{groupValuer{1}, &selfAppender{1}}}} {
		if got := value(t, JSON(nil), v); !strings.Contains(got, "!ERROR") || len(got) > 64<<20 {
			t.Errorf("%T: %d bytes, %.100s", v, len(got), got)
		}
	}
}
