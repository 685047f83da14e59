package values

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/big"
	"math/rand/v2"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// These types cover corner cases of encoding/json. Only their fields of type any contain values
// that this package writes differently.
type (
	hiddenPart  struct{ A any }
	taggedPart  struct{ B any }
	PublicPart  struct{ C any }
	jsonAndText [2]int
	textOnAddr  struct{ X any }
	jsonOnAddr  struct{ X any }
	nilText     []any
	nilJSON     map[string]any
	keyOfText   struct{ N int }
	panicsZero  struct{ N any }
	zeroOnAddr  struct{ N any }
	recursive   struct {
		V    any
		Next *recursive
		List []recursive       `json:",omitempty"`
		Map  map[int]recursive `json:",omitempty"`
	}
	embedsTagged struct {
		hiddenPart `json:"in"`
		D          any
	}
	embedsPointer struct {
		*taggedPart `json:"at"`
		PublicPart
		D any
	}
	embedsBoth struct {
		hiddenPart
		PublicPart `json:"-"`
		*taggedPart
		A string
		V any
	}
	embedsText struct {
		textOnAddr `json:"t"`
		B          any
	}
	sameDepth struct {
		hiddenPart
		other
		V any
	}
	other        struct{ A any }
	embedsReader struct {
		io.Reader
		*PublicPart
		V any
	}
	fieldOptions struct {
		A int            `json:"a,string"`
		B *int           `json:",omitempty"`
		C []any          `json:"c,omitempty"`
		D map[string]any `json:"d,omitempty"`
		E any            `json:"e,omitempty"`
		F [0]any         `json:"f,omitempty"`
		G struct{}       `json:"g,omitempty"`
		I bool           `json:"i i,omitempty,string"`
		J string         `json:"j,omitempty,string"`
		K map[int]string `json:"k"`
		L map[uint8][]any
		M *struct{ X *any } `json:"m"`
		N *string           `json:"n,string"`
		O json.Number       `json:"o,string"`
		//lint:ignore SA5008 an unusual tag on purpose
		P panicsZero  `json:"-,"`
		Q zeroOnAddr  `json:"q,omitzero"`
		R *panicsZero `json:"r,omitzero"`
		S float64     `json:"s,string"`
		T any         `json:"<&>é"`
		_ any
		V uintptr           `json:",string"`
		W map[keyOfText]any `json:"w,omitempty"`
		X json.RawMessage   `json:"x,omitempty"`
		Y []byte            `json:"y"`
		Z []jsonOnAddr      `json:"z"`
		_ [2]int
		_ map[string]chan int
	}
)

func (p *jsonAndText) MarshalJSON() ([]byte, error) { return []byte(`"by address"`), nil }

func (p jsonAndText) MarshalText() ([]byte, error) { return []byte("by value"), nil }

func (p *textOnAddr) MarshalText() ([]byte, error) { return []byte("by address"), nil }

func (p *jsonOnAddr) MarshalJSON() ([]byte, error) { return []byte(`{"by":"address"}`), nil }

func (n nilText) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%d of them", len(n)), nil }

func (n nilJSON) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%d", len(n)), nil }

func (k keyOfText) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "key %d", k.N), nil }

func (panicsZero) IsZero() bool { panic("zero") }

func (z *zeroOnAddr) IsZero() bool { return z.N == 7 }

// Values that this package does not treat specially are written as encoding/json does.
func TestValuesAreWrittenAsByEncodingJSON(t *testing.T) {
	v := NewValues(Style{})
	one, text, x := 1, "q\"", any("x")
	rec := recursive{V: 1, Next: &recursive{V: "b"}, List: []recursive{{V: nil}}, Map: map[int]recursive{2: {}, -1: {}}}
	for i, x := range []any{
		embedsTagged{hiddenPart{1}, 2}, &embedsTagged{hiddenPart{1}, 2}, map[string]embedsTagged{"x": {}},
		embedsPointer{}, embedsPointer{taggedPart: &taggedPart{"b"}, D: 1}, &embedsPointer{taggedPart: &taggedPart{"b"}},
		embedsBoth{}, embedsBoth{hiddenPart{1}, PublicPart{2}, &taggedPart{"x"}, "a", 1}, sameDepth{}, embedsReader{}, embedsReader{strings.NewReader(""), &PublicPart{"c"}, 1},
		jsonAndText{1, 2}, &jsonAndText{1, 2}, struct {
			P jsonAndText
			V any
		}{}, &struct {
			P jsonAndText
			V any
		}{}, []any{jsonAndText{}, &jsonAndText{}, []jsonAndText{{}}, map[string]jsonAndText{"a": {}}},
		textOnAddr{1}, &textOnAddr{1}, map[string]textOnAddr{"a": {}}, map[string]*textOnAddr{"a": {}, "b": nil}, map[string][]textOnAddr{"a": {{}}}, []textOnAddr{{}}, [1]textOnAddr{}, &[1]textOnAddr{},
		[]any{net.IP(nil), net.ParseIP("::1")}, struct {
			IP net.IP
			V  any
		}{}, nilText(nil), nilJSON(nil), struct {
			A nilText
			B nilJSON
			C *nilText
			V any
		}{}, map[netip.Addr]any{netip.MustParseAddr("1.2.3.4"): 1, {}: 2}, map[*keyOfText]any{nil: 1, {3}: 2}, map[keyOfText]any{{2}: 1, {10}: "a"},
		map[int8]any{-1: 1, 10: 2, 9: 3}, map[uint]any{1: nil}, map[string]map[string]any{"a": {"c": 1}, "b": nil},
		fieldOptions{}, &fieldOptions{}, fieldOptions{A: 1, B: &one, C: []any{1}, D: map[string]any{"a": 1}, E: 0, J: "j\"", K: map[int]string{-1: "a", 2: "b"}, L: map[uint8][]any{3: nil}, M: &struct{ X *any }{&x},
			N: &text, O: "1.5", Q: zeroOnAddr{7}, S: 1.5, T: "<&>", X: json.RawMessage(`{"a":[1]}`), Y: []byte("hey"), Z: []jsonOnAddr{{}}, W: map[keyOfText]any{{1}: "x"}},
		rec, &rec, []any{rec, &rec}, []any(nil), map[string]any(nil), (*recursive)(nil), []any{nil, true, 1.5, float32(0.1), "s", json.Number("12"), int8(1), uint16(2)},
		[]any{big.NewInt(5), json.RawMessage("[1]"), [3]any{1, "b"}, [][]any{{1}, nil}, struct{}{}, [0]any{}}, map[string][]bool{"a": {true}},
		struct {
			E interface{ Foo() }
			R io.Reader
		}{},
	} {
		want, err := jsonOf(x)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if got := string(v.AppendValue(nil, nil, slog.AnyValue(x))); got != want {
			t.Errorf("%d: %T: got\n%s, want\n%s", i, x, got, want)
		}
		if got := string(v.AppendValue(nil, nil, slog.AnyValue([]any{x}))); got != "["+want+"]" {
			t.Errorf("%d: %T in a list: got\n%s, want\n[%s]", i, x, got, want)
		}
	}
}

// Where releases of Go write different JSON, this package always writes the JSON of Go 1.26.
func TestOutputDoesNotDependOnTheGoRelease(t *testing.T) {
	v := NewValues(Style{})
	for _, tt := range []struct {
		v    any
		want string
	}{
		{embedsText{}, `{"t":{"X":null},"B":null}`}, // an embedded type that is not exported, with a name in its tag
		{&embedsText{textOnAddr{1}, 2}, `"by address"`},
		{struct {
			//lint:ignore SA5008 an unusual tag on purpose
			S float64 `json:"bad\"tag,string"`
			V any
		}{S: 1.5}, `{"S":"1.5","V":null}`}, // an invalid name in the tag
	} {
		if got := string(v.AppendValue(nil, nil, slog.AnyValue(tt.v))); got != tt.want {
			t.Errorf("%T: got %s, want %s", tt.v, got, tt.want)
		}
	}
}

// jsonOf returns the output of encoding/json for v without HTML escaping.
func jsonOf(v any) (string, error) {
	var sb strings.Builder
	e := json.NewEncoder(&sb)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(sb.String(), "\n"), err
}

// Values of random types are written as encoding/json does.
func TestRandomTypesAreWrittenAsByEncodingJSON(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 8))
	v := NewValues(Style{})
	for i := range 3000 {
		x := randomValue(rng, randomType(rng, 0), 0).Interface()
		want, err := jsonOf(x)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(v.AppendValue(nil, nil, slog.AnyValue(x))); got != want {
			t.Fatalf("%d: %T: got\n%s, want\n%s", i, x, got, want)
		}
	}
}

func randomType(rng *rand.Rand, depth int) reflect.Type {
	n := 14
	if depth > 3 {
		n = 9
	}
	switch rng.IntN(n) {
	case 0:
		return reflect.TypeFor[string]()
	case 1:
		return reflect.TypeFor[int32]()
	case 2, 3:
		return reflect.TypeFor[any]()
	case 4:
		return reflect.TypeFor[float64]()
	case 5:
		return reflect.TypeFor[[]byte]()
	case 6:
		return reflect.TypeFor[textOnAddr]()
	case 7:
		return reflect.TypeFor[netip.Addr]()
	case 8:
		return reflect.TypeFor[bool]()
	case 9:
		return reflect.SliceOf(randomType(rng, depth+1))
	case 10:
		return reflect.PointerTo(randomType(rng, depth+1))
	case 11:
		return reflect.MapOf(reflect.TypeFor[string](), randomType(rng, depth+1))
	}
	fields := make([]reflect.StructField, rng.IntN(5))
	for i := range fields {
		tag := []string{"", "", `json:"same"`, `json:",omitempty"`, `json:"b,string"`, `json:"c,omitzero"`, `json:"-"`}[rng.IntN(7)]
		fields[i] = reflect.StructField{Name: string(rune('A' + i)), Type: randomType(rng, depth+1), Tag: reflect.StructTag(tag)}
	}
	return reflect.StructOf(fields)
}

func randomValue(rng *rand.Rand, rt reflect.Type, depth int) reflect.Value {
	v := reflect.New(rt).Elem()
	if rng.IntN(4) == 0 || rt == reflect.TypeFor[netip.Addr]() {
		return v
	}
	switch rt.Kind() {
	case reflect.String:
		v.SetString(drawn[rng.IntN(len(drawn)-8)]) // encoding/json escapes the last strings differently
		if strings.ContainsAny(v.String(), "\x00\x7f") || !utf8.ValidString(v.String()) {
			v.SetString("\"")
		}
	case reflect.Int32:
		v.SetInt(int64(rng.IntN(5) - 2))
	case reflect.Float64:
		v.SetFloat(rng.NormFloat64())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Interface:
		if depth < 4 {
			v.Set(randomValue(rng, randomType(rng, depth+2), depth+1))
		}
	case reflect.Pointer:
		v.Set(reflect.New(rt.Elem()))
		v.Elem().Set(randomValue(rng, rt.Elem(), depth+1))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(rt, rng.IntN(3), 3))
		for i := range v.Len() {
			v.Index(i).Set(randomValue(rng, rt.Elem(), depth+1))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(rt))
		for range rng.IntN(3) {
			v.SetMapIndex(reflect.ValueOf(drawn[1+rng.IntN(4)]), randomValue(rng, rt.Elem(), depth+1))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			v.Field(i).Set(randomValue(rng, rt.Field(i).Type, depth+1))
		}
	}
	return v
}

type (
	valueError   struct{ Code int }
	pointerError struct{ Code int }
	errorAsJSON  struct{}
	named        time.Duration
	byteError    uint8
	embedsError  struct {
		error
		Code int
	}
)

func (e valueError) Error() string { return fmt.Sprint("value ", e.Code) }

func (e byteError) Error() string { return fmt.Sprint("byte ", uint8(e)) }

func (e *pointerError) Error() string { return fmt.Sprint("pointer ", e.Code) }

func (errorAsJSON) Error() string { return "message" }

func (errorAsJSON) MarshalJSON() ([]byte, error) { return []byte(`"not this"`), nil }

// A value in a list, map or struct is written like a value that is an attribute.
func TestFormsApplyWithinValues(t *testing.T) {
	v := NewValues(Style{Duration: DurationText, Level: LevelLower})
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("x", 3600))
	text, uuid, d := `"2026-01-02T02:04:05.000006000Z"`, someUUID{1}, time.Second
	type fields struct {
		Err   error          `json:"err"`
		None  error          `json:"none"`
		Own   valueError     `json:"own"`
		Ptr   *pointerError  `json:"ptr"`
		Nil   *pointerError  `json:"nil"`
		JSON  errorAsJSON    `json:"json"`
		D     time.Duration  `json:"d,string"`
		PD    *time.Duration `json:"pd"`
		T     time.Time      `json:"t"`
		PT    *time.Time     `json:"pt"`
		Z     time.Time      `json:"z,omitzero"`
		ID    someUUID       `json:"id"`
		PID   *someUUID      `json:"pid"`
		L     slog.Level     `json:"l"`
		NaN   float64        `json:"nan,string"`
		Inf   float32        `json:"inf"`
		Named named          `json:"named"`
		Any   any            `json:"any"`
		Errs  []error        `json:"errs"`
		Map   map[int]error  `json:"map"`
		Skip  error          `json:"-"`
		Empty error          `json:"empty,omitempty"`
	}
	for _, tt := range []struct {
		v    any
		want string
	}{
		{fields{Err: errors.New("e\""), Own: valueError{1}, Ptr: &pointerError{2}, D: d, PD: &d, T: at, PT: &at, ID: uuid, PID: &uuid, L: slog.LevelWarn, NaN: math.NaN(), Inf: float32(math.Inf(-1)), Named: 1,
			Any: []any{at, d, uuid, slog.LevelInfo, math.Inf(1), valueError{3}, &uuid}, Errs: []error{nil, valueError{4}}, Map: map[int]error{2: io.EOF, -1: nil}},
			`{"err":"e\"","none":null,"own":"value 1","ptr":"pointer 2","nil":null,"json":"message","d":"1s","pd":"1s","t":` + text + `,"pt":` + text + `,"id":"01000000-0000-0000-0000-000000000000","pid":"01000000-0000-0000-0000-000000000000",` +
				`"l":"warn","nan":"NaN","inf":"-Inf","named":1,"any":[` + text + `,"1s","01000000-0000-0000-0000-000000000000","info","+Inf","value 3","01000000-0000-0000-0000-000000000000"],"errs":[null,"value 4"],"map":{"-1":null,"2":"EOF"}}`},
		{struct{ E embedsError }{embedsError{io.EOF, 1}}, `{"E":"EOF"}`},
		{[2]time.Duration{1, 2}, `["1ns","2ns"]`}, {[]*time.Time{nil, &at}, `[null,` + text + `]`}, {[][]error{{io.EOF}}, `[["EOF"]]`}, {[]valueError{{5}}, `["value 5"]`},
		{map[string]struct{ D time.Duration }{"k": {1}}, `{"k":{"D":"1ns"}}`}, {&struct{ P **time.Duration }{}, `{"P":null}`},
		{[]any{slog.StringValue("in a value"), slog.AnyValue(io.EOF), digest{1}}, `["in a value","EOF",[1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]]`},
		{struct{ pointerError }{pointerError{6}}, `{"Code":6}`},
		{struct {
			F func()
			C complex64
			E error
		}{nil, 1, io.EOF}, `{"F":"!ERROR:json: unsupported type: func()","C":"(1+0i)","E":"EOF"}`},
		{map[any]error{1: io.EOF}, `{"1":"EOF"}`},
		{struct{ E error }{panickyError{}}, `{"E":"!PANIC: boom"}`},
		{map[panickyKey]any{{}: 1}, `{"!PANIC: key":1}`},
		{[]byteError{1, 2}, `["byte 1","byte 2"]`}, {[]named{1}, `[1]`}, {struct{ B []byteError }{}, `{"B":null}`},
		{[]any{(*pointerError)(nil)}, `[null]`},
	} {
		for range 2 { // in the second round, the type is in the cache
			if got := string(v.AppendValue([]byte("["), nil, slog.AnyValue(tt.v))); got != "["+tt.want {
				t.Errorf("%T: got\n%s, want\n%s", tt.v, got[1:], tt.want)
			}
		}
		if text := string(v.AppendText(nil, nil, slog.AnyValue(tt.v))); text != tt.want && `"`+text+`"` != tt.want {
			t.Errorf("%T: text %s, want %s", tt.v, text, tt.want)
		}
	}
}

type (
	panickyError struct{}
	panickyKey   struct{}
)

func (panickyError) Error() string { panic("boom") }

func (panickyKey) MarshalText() ([]byte, error) { panic("key") }

// Cyclic, deep and large values are replaced by a text after a limited time.
func TestLimitsOfNestedValues(t *testing.T) {
	v := NewValues(Style{})
	ring := &recursive{V: io.EOF}
	ring.Next = ring
	list := make([]any, 8)
	for i := range list {
		list[i] = list
	}
	shared := any(io.EOF)
	for range 40 {
		shared = []any{shared, shared}
	}
	self := map[string]any{}
	self["a"], self["b"] = self, struct{ E any }{self}
	var appender []againAppender
	appender = append(appender, againAppender{})
	for name, x := range map[string]any{"ring": ring, "list": list, "shared": shared, "map": self} {
		if got := string(v.AppendValue(nil, nil, slog.AnyValue(x))); !strings.HasPrefix(got, `"!ERROR:encode: the value`) {
			t.Errorf("%s: got %.100s", name, got)
		}
	}
	if got := string(v.AppendValue(nil, nil, slog.AnyValue(appender))); !json.Valid([]byte(got)) {
		t.Errorf("got %.100s", got)
	}
	deep := any(io.EOF)
	for range 900 {
		deep = []any{deep}
	}
	if got := string(v.AppendValue(nil, nil, slog.AnyValue(deep))); got != strings.Repeat("[", 900)+`"EOF"`+strings.Repeat("]", 900) {
		t.Errorf("got %.100s", got)
	}
}

// An againAppender is an AttrAppender that logs a list containing another againAppender.
type againAppender struct{}

func (againAppender) AppendAttrs(dst []slog.Attr) []slog.Attr {
	return append(dst, slog.Any("again", struct{ V any }{[]againAppender{{}}}), slog.Any("more", []any{[]againAppender{{}}}))
}

// CallsMethods returns true for types whose values may contain errors.
func TestCallsMethodsOfTypesAndTheirElements(t *testing.T) {
	v := NewValues(Style{})
	for range 2 { // in the second round, the Shapes are in the cache
		checkCallsMethods(t, v)
	}
}

func checkCallsMethods(t *testing.T, v *Values) {
	t.Helper()
	for _, x := range []any{[]any{}, []error{}, &[]error{}, map[string]any{}, struct{ E error }{}, &struct{ V any }{}, [][]valueError{}, recursive{}, []againAppender{}, map[int]*pointerError{}, io.EOF, againAppender{}} {
		if !v.CallsMethods(x) {
			t.Errorf("%T does not", x)
		}
	}
	for _, x := range []any{nil, 1, "", []string{}, someUUID{}, time.Time{}, struct{ T time.Time }{}, map[string]int{}, netip.Addr{}, &struct{ D []time.Duration }{}, json.RawMessage{}, big.NewInt(1), Rendered{}} {
		if v.CallsMethods(x) {
			t.Errorf("%T does", x)
		}
	}
}

// An AttrAppender is written as the same object, whether it is an attribute or a member of a value.
func TestAppendersWithinValuesAreMaps(t *testing.T) {
	v := NewValues(Style{})
	for _, tt := range []struct {
		v    AttrAppender
		want string
	}{
		{attrList{slog.Int("a", 1), slog.Group("g", "b", "c")}, `{"a":1,"g":{"b":"c"}}`},
		{attrList{slog.Any("", attrList{slog.Int("a", 1)})}, `{"a":1}`},
		{attrList{}, `{}`},
		{(*attrList)(nil), `"<nil>"`},
	} {
		if got := string(v.AppendValue([]byte("["), nil, slog.AnyValue(tt.v))); got != "["+tt.want {
			t.Errorf("%v: got %s, want %s", tt.v, got, tt.want)
		}
		if got := string(v.AppendText([]byte("["), nil, slog.AnyValue(tt.v))); got != "["+strings.Trim(tt.want, `"`) {
			t.Errorf("%v: text %s, want %s", tt.v, got, tt.want)
		}
	}
}

type attrList []slog.Attr

func (l attrList) AppendAttrs(dst []slog.Attr) []slog.Attr { return append(dst, l...) }
