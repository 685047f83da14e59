package fluent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/testkit"
)

// reflect.StructOf cannot create these types: types with methods or unexported fields, and embedded
// types with unexported names.
type (
	Plain struct {
		ID   int    `json:"id"`
		Name string `json:"name,omitempty"`
		_    int
	}
	hidden struct {
		Seen  bool
		Twice string `json:"twice"`
	}
	Outer struct {
		Plain
		*hidden2
		hidden
		Twice float64 `json:"twice"`
		_     string
	}
	hidden2 struct{ Deep, Twice int }
	Rec     struct {
		Next *Rec           `json:"next,omitempty"`
		Kids []Rec          `json:"kids"`
		By   map[string]Rec `json:",omitempty"`
		V    any            `json:"v"`
	}
	Clash struct {
		Left
		Right
		Own int
	}
	Left    struct{ Same, A int }
	Right   struct{ Same, B int }
	Stamped struct { // has the promoted method MarshalJSON of time.Time
		time.Time
		N int
	}
	Named struct {
		*Plain `json:"in"`
	}
	text      struct{ A, B int8 }
	textPtr   struct{ A int8 }
	js        struct{ S string }
	jsPtr     struct{ S []int8 }
	jsMap     map[string]int
	textSlice []string
	word      string
	wordText  string
	letter    byte
	letters   []letter
	num       int16
	numText   int16
	zero      struct{ X, Y int }
	zeroPtr   struct{ X, Y int }
	ratio     float32
	// A stamp replaces time.Time in reference types. docs/ENCODING.md describes its JSON form.
	stamp struct{ time.Time }
)

func (s stamp) MarshalJSON() ([]byte, error) {
	return []byte(s.UTC().Format(`"2006-01-02T15:04:05.000000000Z"`)), nil
}

func (t text) MarshalText() ([]byte, error)     { return fmt.Appendf(nil, "t%d/%d", t.A, t.B), nil }
func (t *textPtr) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "p%d", t.A), nil }
func (j js) MarshalJSON() ([]byte, error)       { return json.Marshal([]any{j.S, nil, 1.5}) }
func (j *jsPtr) MarshalJSON() ([]byte, error)   { return json.Marshal(map[string]any{"s": j.S}) }
func (j jsMap) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, " { \"n\" : %d } ", len(j)), nil
}
func (t textSlice) MarshalText() ([]byte, error) { return []byte(strings.Join(t, ",")), nil }
func (w wordText) MarshalText() ([]byte, error)  { return append([]byte("w:"), w...), nil }
func (n numText) MarshalText() ([]byte, error)   { return fmt.Appendf(nil, "n:%d", int16(n)), nil }
func (z zero) IsZero() bool                      { return z.X == 0 }
func (z *zeroPtr) IsZero() bool                  { return z.Y == 0 }

var (
	leaves = []reflect.Type{
		reflect.TypeFor[bool](), reflect.TypeFor[int](), reflect.TypeFor[int8](), reflect.TypeFor[int16](), reflect.TypeFor[int32](), reflect.TypeFor[int64](),
		reflect.TypeFor[uint](), reflect.TypeFor[uint8](), reflect.TypeFor[uint16](), reflect.TypeFor[uint32](), reflect.TypeFor[uint64](), reflect.TypeFor[uintptr](),
		reflect.TypeFor[float32](), reflect.TypeFor[float64](), reflect.TypeFor[string](), reflect.TypeFor[any](), reflect.TypeFor[[]byte](),
		reflect.TypeFor[time.Time](), reflect.TypeFor[time.Duration](), reflect.TypeFor[json.Number](), reflect.TypeFor[json.RawMessage](),
		reflect.TypeFor[map[string]any](), reflect.TypeFor[map[string]string](), reflect.TypeFor[[]any](), reflect.TypeFor[[]string](),
		reflect.TypeFor[text](), reflect.TypeFor[textPtr](), reflect.TypeFor[js](), reflect.TypeFor[jsPtr](), reflect.TypeFor[jsMap](), reflect.TypeFor[textSlice](),
		reflect.TypeFor[word](), reflect.TypeFor[wordText](), reflect.TypeFor[letter](), reflect.TypeFor[letters](), reflect.TypeFor[num](), reflect.TypeFor[numText](),
		reflect.TypeFor[zero](), reflect.TypeFor[zeroPtr](), reflect.TypeFor[ratio](), reflect.TypeFor[Outer](), reflect.TypeFor[Rec](), reflect.TypeFor[Clash](), reflect.TypeFor[Stamped](),
		reflect.TypeFor[Named](), reflect.TypeFor[hidden](), reflect.TypeFor[json.Marshaler](), reflect.TypeFor[struct{}](),
	}
	keys = []reflect.Type{
		reflect.TypeFor[string](), reflect.TypeFor[int](), reflect.TypeFor[int8](), reflect.TypeFor[uint64](), reflect.TypeFor[word](),
		reflect.TypeFor[wordText](), reflect.TypeFor[num](), reflect.TypeFor[numText](), reflect.TypeFor[text](), reflect.TypeFor[*text](),
	}
	// embedded contains types without methods that a generated struct may embed.
	embedded = []reflect.Type{
		reflect.TypeFor[Plain](), reflect.TypeFor[*Plain](), reflect.TypeFor[Left](), reflect.TypeFor[*Right](), reflect.TypeFor[Rec](),
	}
	dynamic = []reflect.Type{ // types of values in interfaces
		reflect.TypeFor[bool](), reflect.TypeFor[int](), reflect.TypeFor[uint64](), reflect.TypeFor[float64](), reflect.TypeFor[float32](), reflect.TypeFor[string](),
		reflect.TypeFor[map[string]any](), reflect.TypeFor[[]any](), reflect.TypeFor[*int](), reflect.TypeFor[text](), reflect.TypeFor[*textPtr](), reflect.TypeFor[textPtr](),
		reflect.TypeFor[jsPtr](), reflect.TypeFor[Outer](), reflect.TypeFor[*Outer](), reflect.TypeFor[Stamped](), reflect.TypeFor[map[num]text](),
		reflect.TypeFor[[]byte](), reflect.TypeFor[[3]uint8](), reflect.TypeFor[map[string]Plain](), reflect.TypeFor[[]*Plain](), reflect.TypeFor[time.Time](),
		reflect.TypeFor[**string](), reflect.TypeFor[json.Number](), reflect.TypeFor[[]map[string]textPtr](),
	}
)

// A maker generates pairs of types: a type for the Forward encoder, and a reference type for
// encoding/json, which has no option inline. For an inlined struct, the reference type embeds the
// struct. For an inlined map, the reference type has a field whose name begins with mark, and
// normalize moves the members of the map to the outer object.
type maker struct {
	b    []byte
	n    int // number of fields so far, for their names
	left int // number of fields that may still be generated
}

// mark is the beginning of the names of inlined maps in reference types.
const mark = "!inline"

func (m *maker) next() int {
	if len(m.b) == 0 {
		return 0
	}
	c := m.b[0]
	m.b = m.b[1:]
	return int(c)
}

func (m *maker) of(ts []reflect.Type) reflect.Type { return ts[m.next()%len(ts)] }

// referenceOf returns the reference type for t.
func referenceOf(t reflect.Type) reflect.Type {
	if t == reflect.TypeFor[time.Time]() {
		return reflect.TypeFor[stamp]()
	}
	return t
}

// valueType generates a type and its reference type.
func (m *maker) valueType(depth int) (typ, reference reflect.Type) {
	c := m.next()
	if depth > 4 || c < 128 {
		t := leaves[c%len(leaves)]
		return t, referenceOf(t)
	}
	switch c % 6 {
	case 0:
		a, b := m.valueType(depth + 1)
		return reflect.PointerTo(a), reflect.PointerTo(b)
	case 1:
		a, b := m.valueType(depth + 1)
		return reflect.SliceOf(a), reflect.SliceOf(b)
	case 2:
		n := m.next() % 4
		a, b := m.valueType(depth + 1)
		return reflect.ArrayOf(n, a), reflect.ArrayOf(n, b)
	case 3:
		k := m.of(keys)
		a, b := m.valueType(depth + 1)
		return reflect.MapOf(k, a), reflect.MapOf(k, b)
	default:
		return m.structType(depth + 1)
	}
}

var optionsOf = []string{"", "", ",omitempty", ",omitzero", ",omitempty,omitzero", ",string"}

// structType generates a struct type and its reference type.
func (m *maker) structType(depth int) (typ, reference reflect.Type) {
	var as, bs []reflect.StructField
	embeds := map[string]bool{}
	for n := m.next() % 7; n > 0 && m.left > 0; n-- {
		m.left--
		m.n++
		c := m.next()
		if c%8 == 0 {
			t := m.of(embedded)
			name := t.Name()
			if t.Kind() == reflect.Pointer {
				name = t.Elem().Name()
			}
			if !embeds[name] {
				embeds[name] = true
				f := reflect.StructField{Name: name, Type: t, Anonymous: true}
				if c >= 128 {
					f.Tag = `json:"em` + reflect.StructTag(strconv.Itoa(m.n)) + `,omitempty"`
				}
				as, bs = append(as, f), append(bs, f)
			}
			continue
		}
		name := "F" + strconv.Itoa(m.n)
		if c%8 == 1 { // an inlined field
			a, b := reflect.TypeFor[map[string]int](), reflect.TypeFor[map[string]int]()
			if c >= 64 {
				a, b = m.structType(depth + 1)
				if c >= 192 {
					a, b = reflect.PointerTo(a), reflect.PointerTo(b)
				}
			}
			tag := []reflect.StructTag{`fluent:",inline"`, `msgpack:",inline"`, `json:",inline"`, `codec:",flatten"`}[m.next()%4]
			as = append(as, reflect.StructField{Name: name, Type: a, Tag: tag})
			f := reflect.StructField{Name: name, Type: b, Anonymous: c >= 64}
			if c < 64 {
				f.Tag = reflect.StructTag(`json:"` + mark + strconv.Itoa(m.n) + `"`)
			}
			bs = append(bs, f)
			continue
		}
		a, b := m.valueType(depth)
		key := []string{"fluent", "msgpack", "msg", "codec", "json", "json", "json"}[m.next()%7]
		opts := optionsOf[m.next()%len(optionsOf)]
		if key != "json" && opts == ",string" {
			opts = ""
		}
		tag := ""
		switch c / 8 % 6 {
		case 0:
			tag = name + "x"
		case 1:
			tag = "a.b-c/" + name
		case 2:
			tag = "Same" // several fields may have this name; encoding/json then ignores all of them
		case 3:
			tag = "-"
			if opts == "" {
				tag = "same" + strconv.Itoa(m.n%3)
			}
		case 4:
			if key == "json" {
				tag = []string{"é" + name, "a b", `a\\b`, "a'b", "#", "\u2028"}[m.next()%6]
			}
		}
		fa := reflect.StructField{Name: name, Type: a}
		fb := reflect.StructField{Name: name, Type: b}
		if tag+opts != "" {
			fa.Tag = reflect.StructTag(key + `:"` + tag + opts + `"`)
			if b == reflect.TypeFor[time.Duration]() || b == reflect.TypeFor[*time.Duration]() {
				opts = strings.TrimSuffix(opts, "string") // encoding/json ignores the option for durations
			}
			fb.Tag = reflect.StructTag(`json:"` + tag + opts + `"`)
			if key != "json" { // the json tag is ignored if another tag is present
				fa.Tag += ` json:"other"`
			}
		}
		as, bs = append(as, fa), append(bs, fb)
	}
	return reflect.StructOf(as), reflect.StructOf(bs)
}

// A filler fills a value with random contents, which depend only on the seed. The field left limits
// the number of values, because types may contain themselves several times.
type filler struct {
	*rand.Rand
	left      int
	reference bool // interfaces contain stamp instead of time.Time
}

func newFiller(seed uint64, reference bool) *filler {
	return &filler{rand.New(rand.NewPCG(seed, 0)), 4000, reference}
}

func (r *filler) fill(v reflect.Value, depth int) {
	if r.left--; depth > 8 || r.left < 0 || r.IntN(6) == 0 {
		return // keeps the zero value
	}
	switch v.Type() {
	case reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(r.time()))
		return
	case reflect.TypeFor[stamp]():
		v.Set(reflect.ValueOf(stamp{r.time()}))
		return
	case reflect.TypeFor[json.Number]():
		v.SetString([]string{"0", "-1", "1.5", "18446744073709551615", "-9223372036854775808", "1e3", "2.5E-3"}[r.IntN(7)])
		return
	case reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte([]string{"null", ` [1, {"a" : "\u00e9\n"}] `, `"x"`, "1.25", `{"a":{"b":[]}}`}[r.IntN(5)]))
		return
	case reflect.TypeFor[json.Marshaler]():
		v.Set(reflect.ValueOf([]json.Marshaler{js{"i"}, &js{"p"}, &jsPtr{}, jsMap(nil)}[r.IntN(4)]))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Uint64()) >> r.IntN(64))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		v.SetUint(r.Uint64() >> r.IntN(64))
	case reflect.Float32:
		v.SetFloat(float64(math.Float32frombits(r.Uint32() & 0xbfffffff)))
	case reflect.Float64:
		v.SetFloat([]float64{math.Float64frombits(r.Uint64() & 0xbfffffffffffffff), math.Copysign(0, -1), 1e21, 1e-7, math.MaxFloat64, float64(r.IntN(1e6))}[r.IntN(6)])
	case reflect.String:
		v.SetString(r.text())
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		r.fill(v.Elem(), depth+1)
	case reflect.Interface:
		t := dynamic[r.IntN(len(dynamic))]
		if r.reference {
			t = referenceOf(t)
		}
		e := reflect.New(t).Elem()
		r.fill(e, depth+1)
		v.Set(e)
	case reflect.Slice:
		n := r.IntN(4)
		if r.IntN(20) == 0 && depth < 3 {
			n = 20
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			r.fill(v.Index(i), depth+1)
		}
	case reflect.Array:
		for i := range v.Len() {
			r.fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		n := r.IntN(4)
		if r.IntN(20) == 0 && depth < 3 {
			n = 20
		}
		for range n {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			r.fill(k, 0)
			r.fill(e, depth+1)
			if k.Kind() == reflect.Pointer { // two pointers may have the same text
				if v.Len() > 0 {
					continue
				}
			}
			if k.Kind() == reflect.String { // two strings with invalid bytes may have the same text
				k.SetString(strings.ToValidUTF8(k.String(), "?"))
			}
			if v.Type() == reflect.TypeFor[map[string]int]() { // the map may be inlined, so its keys must differ from field names
				k.SetString("in" + strconv.Itoa(r.IntN(1e9)))
			}
			v.SetMapIndex(k, e)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				r.fill(v.Field(i), depth+1)
			}
		}
	}
}

func (r *filler) time() time.Time {
	at := time.Unix(r.Int64N(1<<36)-1<<35, r.Int64N(1e9)*int64(r.IntN(2)))
	return at.In(time.FixedZone("", (r.IntN(96)-48)*900))
}

func (r *filler) text() string {
	switch r.IntN(5) {
	case 0:
		return "\xff\xfe" + "a\xc3"
	case 1:
		return strings.Repeat("é\u2028<&>\"\\\x00\x7f", r.IntN(5))
	case 2:
		return strings.Repeat("long ", r.IntN(1<<r.IntN(15)))
	}
	return strconv.Itoa(r.IntN(1000))
}

// decode decodes a value with the reference decoder. It returns an error if a map contains a key
// twice.
func decode(d *msgpack.Decoder) (any, error) {
	c, err := d.PeekCode()
	if err != nil {
		return nil, err
	}
	switch {
	case msgpcode.IsFixedMap(c), c == msgpcode.Map16, c == msgpcode.Map32:
		n, err := d.DecodeMapLen()
		if err != nil {
			return nil, err
		}
		m := make(map[string]any)
		for range n {
			k, err := d.DecodeString()
			if err != nil {
				return nil, err
			}
			if _, twice := m[k]; twice {
				return nil, fmt.Errorf("the key %q is there twice", k)
			}
			if m[k], err = decode(d); err != nil {
				return nil, err
			}
		}
		return m, nil
	case msgpcode.IsFixedArray(c), c == msgpcode.Array16, c == msgpcode.Array32:
		n, err := d.DecodeArrayLen()
		if err != nil {
			return nil, err
		}
		l := make([]any, n)
		for i := range l {
			if l[i], err = decode(d); err != nil {
				return nil, err
			}
		}
		return l, nil
	}
	return d.DecodeInterface()
}

// normalize returns the normal form of decoded JSON. Numbers and quoted strings become comparable
// by value, and the members of inlined maps move to the outer object.
func normalize(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any)
		for k, e := range v {
			if in, ok := e.(map[string]any); strings.HasPrefix(k, mark) && (ok || e == nil) {
				for k, e := range in {
					m[k] = normalize(e)
				}
				continue
			}
			m[k] = normalize(e)
		}
		return m
	case []any:
		for i := range v {
			v[i] = normalize(v[i])
		}
	case string:
		var in string // the escapes of a field with the option string may differ
		if strings.HasPrefix(v, `"`) && json.Unmarshal([]byte(v), &in) == nil {
			return strconv.Quote(in)
		}
	case json.Number:
		s := string(v)
		if i, err := strconv.ParseInt(s, 10, 64); err == nil && s != "-0" {
			return i
		}
		if u, err := strconv.ParseUint(s, 10, 64); err == nil {
			return u
		}
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return s
		}
		if i := int64(f); float64(i) == f && math.Abs(f) < 1<<53 {
			return i
		}
		return f
	}
	return v
}

func readJSON(b []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return normalize(v), nil
}

// Values of generated types are encoded, and a reference decoder decodes them with the same result
// as encoding/json. The types have tags of all kinds, embedded and inlined fields, pointers,
// interfaces, maps and lists.
func FuzzStructs(f *testing.F) {
	f.Add([]byte("\x06\x02\x80\x00\x05\x01\x00"), uint64(1))
	f.Add([]byte("\x05\x41\x03\x02\x80\x00\x05\x01\x00\x08\x01\x88\x02\x01\xc1\x05\x05"), uint64(2))
	f.Add([]byte("\x04\x09\x00\x02\x10\x20\x30\x40\x50\x60\x80\x81\x82\x83\x84\x85"), uint64(3))
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 64 {
		b := make([]byte, 8+r.IntN(120))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		b[0] = 6
		f.Add(b, uint64(i))
	}
	f.Fuzz(checkStructs)
}

// TestStructs is like FuzzStructs, with random types.
func TestStructs(t *testing.T) {
	n := 3000
	if testing.Short() {
		n = 300
	}
	for seed := range testkit.Walks(t, n) {
		r := rand.New(rand.NewPCG(seed, 1))
		shape := make([]byte, 8+r.IntN(190))
		for i := range shape {
			shape[i] = byte(r.Uint32())
		}
		checkStructs(t, shape, seed)
	}
}

func checkStructs(t *testing.T, shape []byte, seed uint64) {
	if len(shape) > 200 {
		return
	}
	m := maker{b: shape, left: 24}
	typ, reference := m.structType(0)
	value, refValue := reflect.New(typ), reflect.New(reference)
	newFiller(seed, false).fill(value.Elem(), 0)
	newFiller(seed, true).fill(refValue.Elem(), 0)
	// Values are passed with and without an address, because methods with pointer receivers are
	// called only on addressable values.
	for _, v := range [][2]any{
		{value.Interface(), refValue.Interface()}, {value.Elem().Interface(), refValue.Elem().Interface()},
		{map[string]any{"v": value.Elem().Interface()}, map[string]any{"v": refValue.Elem().Interface()}},
	} {
		js, err := json.Marshal(v[1])
		if err != nil {
			return // JSON cannot represent the value
		}
		want, err := readJSON(js)
		if err != nil {
			t.Fatal(err)
		}
		out, err := fluent.AppendEvent(nil, time.Unix(1, 2), v[0])
		if errors.Is(err, fluent.ErrValue) && strings.Contains(err.Error(), "nested too deeply") {
			return
		}
		if err != nil {
			t.Fatalf("%v\n%T", err, v[0])
		}
		msgpack.RegisterExtDecoder(0, time.Time{}, func(*msgpack.Decoder, reflect.Value, int) error { return nil })
		var raw []msgpack.RawMessage
		if err := msgpack.Unmarshal(out, &raw); err != nil || len(raw) != 2 {
			t.Fatalf("%v: %d elements", err, len(raw))
		}
		d := msgpack.NewDecoder(bytes.NewReader(raw[1]))
		decoded, err := decode(d)
		if err != nil {
			t.Fatalf("%v\n%T\n%s", err, v[0], js)
		}
		if n, err := d.PeekCode(); err == nil {
			t.Fatalf("more than one value: %x", n)
		}
		have, err := json.Marshal(decoded)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := readJSON(have); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v\n%T\nwant %s\n got %s", err, v[0], js, have)
		}
	}
}
