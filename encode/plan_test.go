package encode

import (
	"encoding/json"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

type embedded struct{ E int }

type ptrMarshal struct{ X int }

func (*ptrMarshal) MarshalJSON() ([]byte, error) { return []byte(`"ptr"`), nil }

type namedBytes []byte

type namedString string

// structOf returns a value of a struct type with the given tags, which go vet would reject in
// source code.
func structOf(tags ...reflect.StructTag) any {
	fields := make([]reflect.StructField, len(tags))
	for i, tag := range tags {
		fields[i] = reflect.StructField{Name: string(rune('A' + i)), Type: reflect.TypeFor[int](), Tag: tag}
	}
	return reflect.New(reflect.StructOf(fields)).Interface()
}

// All values have the JSON that encoding/json writes, including those encoded without
// encoding/json.
func TestPlannedValuesEqualEncodingJSON(t *testing.T) {
	n, s, f := 5, "s", 2.5
	ps := &s
	type inner struct {
		A int `json:"a"`
		B []string
	}
	for _, c := range []struct {
		v       any
		planned bool
	}{
		{struct{}{}, true},
		{struct {
			A int8
			B uint16 `json:"b"`
			C string `json:",omitempty"`
			D bool   `json:"d,omitempty"`
			E float32
			f int
			G []int `json:"-"`
			I []byte
			J [2]uint8
			K *int
			L **string
			M inner
			N []inner
			O *inner             `json:"o,omitempty"`
			P []*inner           `json:"p,omitempty"`
			Q namedString        `json:"Ключ"`
			R namedBytes         `json:"r-s.t_u"`
			S time.Duration      `json:"s"`
			T struct{ X, Y int } `json:"t,omitempty"`
			U [0]int             `json:"u,omitempty"`
		}{A: -5, B: 9, E: 0.1, I: []byte{1, 2}, K: &n, L: &ps, M: inner{B: []string{"x\n\xff"}}, N: []inner{{}, {A: 1}}, P: []*inner{nil, {}}, R: namedBytes("b"), f: 1}, true},
		{&inner{A: 3}, true}, {(*inner)(nil), true}, {[]inner{{A: 1}}, true}, {[]inner(nil), true}, {[][]int{{1}, nil, {}}, true}, {&n, true}, {&f, true},
		{numbered(-3), true}, {namedString("x\"y"), true}, {[3]bool{true}, true}, {[]int8{-1, 2}, true}, {[]uint8{1, 2}, true}, {[]numbered{1, 2}, true},
		{[]map[string]int{{"a": 1}}, false}, {struct{ V any }{1}, false}, {struct{ embedded }{embedded{1}}, false},
		{struct {
			A int `json:",string"`
		}{7}, false},
		{struct {
			A int `json:"a,omitzero"`
		}{0}, false},
		{struct {
			A int `json:"a b"`
		}{1}, false},
		{structOf(`json:"-,"`), true}, {structOf(`json:"a<,"`), false}, {structOf(`json:"x"`, `json:"x"`), false},
		{struct{ T time.Time }{benchTime}, false}, {struct{ N json.Number }{"1.50"}, false}, {struct{ L textual }{textual{"t"}}, false},
		{struct{ P ptrMarshal }{}, false}, {&struct{ P ptrMarshal }{}, false}, {[]ptrMarshal{{}}, false}, {&node{Name: "n"}, false}, {struct{ D []time.Duration }{[]time.Duration{1, -2}}, true}, {struct{ L slog.Level }{slog.LevelWarn}, false},
		{struct{ R json.RawMessage }{json.RawMessage(`[1, 2]`)}, false}, {map[string]string{"b": "2", "a": "1"}, false},
	} {
		var buf strings.Builder
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		want := ""
		if err := enc.Encode(c.v); err != nil {
			want = string(jsontext.AppendString(nil, "!ERROR:"+err.Error()))
		} else {
			want = literal(strings.TrimSuffix(buf.String(), "\n"))
		}
		if got := literal(value(t, JSON(nil), c.v)); got != want {
			t.Errorf("%T:\n got %s\nwant %s", c.v, got, want)
		}
	}
	// A tag name with a character that encoding/json does not allow is ignored. Later releases of
	// Go use a part of it.
	if got := value(t, JSON(nil), structOf(`json:"a\"<"`)); got != `{"A":0}` {
		t.Error(got)
	}
	if got := value(t, JSON(nil), struct{ F []float32 }{[]float32{float32(math.NaN()), 1}}); got != `{"F":["NaN",1]}` {
		t.Error(got)
	}
}

func TestPlansDoNotAllocate(t *testing.T) {
	u := &smallUser{1, "x", true}
	s := JSON(nil).Scope()
	r := &Record{Attrs: tenPlain(u)}
	dst := make([]byte, 0, 4096)
	if n := allocs.PerRun(100, func() { s.Append(dst, r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
