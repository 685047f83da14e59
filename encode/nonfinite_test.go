package encode

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit"
)

type celsius float64

type gauge float64

func (gauge) MarshalText() ([]byte, error) { return []byte("gauge"), nil }

type inner struct {
	Deep float64
	Same string `json:"same"`
}

type Outer struct {
	inner
	*Shown
	Text   float64 `json:",string"`
	Small  float32 `json:"small,omitempty"`
	Temp   celsius
	Gauge  gauge
	Any    any
	Point  *float64
	List   []float32
	Pair   [2]float64
	Hidden float64 `json:"-"`
	own    float64
	Next   *Outer `json:",omitempty"`
	Map    map[int]float64
}

type Shown struct{ Seen float64 }

// NaN and the infinities are written as strings, whatever their type. The caller's values are not
// changed.
func TestNonFiniteNumbersAreStrings(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	outer := Outer{
		inner: inner{nan, `a"b`}, Shown: &Shown{-inf}, Text: nan, Small: float32(inf), Temp: celsius(-inf), Gauge: gauge(nan),
		Any: map[string]any{"x": []any{nan, 1, "NaN"}}, Point: &inf, List: []float32{1.5, float32(nan)}, Pair: [2]float64{inf, 2},
		Hidden: nan, own: nan, Next: &Outer{Map: map[int]float64{7: nan}},
	}
	const nextText = `{"Deep":0,"same":"","Text":"0","Temp":0,"Gauge":"gauge","Any":null,"Point":null,"List":null,"Pair":[0,0],"Map":{"7":"NaN"}}`
	outerText := `{"Deep":"NaN","same":"a\"b","Seen":"-Inf","Text":"NaN","small":"+Inf","Temp":"-Inf","Gauge":"gauge",` +
		`"Any":{"x":["NaN",1,"NaN"]},"Point":"+Inf","List":[1.5,"NaN"],"Pair":["+Inf",2],"Next":` + nextText + `,"Map":null}`
	for _, tt := range []struct {
		v    any
		want string
	}{
		{map[string]any{"a": nan, "b": inf, "c": -inf, "d": 1.5, "e": "x"}, `{"a":"NaN","b":"+Inf","c":"-Inf","d":1.5,"e":"x"}`},
		{map[string]float64{"f": nan}, `{"f":"NaN"}`},
		{map[string]float32{"f": float32(-inf)}, `{"f":"-Inf"}`},
		{map[string]any{"m": map[string]any{"l": []any{1, nan, []float64{inf}, map[int]float32{-3: float32(nan)}}}}, `{"m":{"l":[1,"NaN",["+Inf"],{"-3":"NaN"}]}}`},
		{[]any{nan, &nan, []*float64{&inf, nil}}, `["NaN","NaN",["+Inf",null]]`},
		{outer, outerText},
		{&outer, outerText},
		{[]Outer{*outer.Next, {Pair: [2]float64{1, inf}}}, `[` + nextText + `,{"Deep":0,"same":"","Text":"0","Temp":0,"Gauge":"gauge","Any":null,"Point":null,"List":null,"Pair":[1,"+Inf"],"Map":null}]`},
		{map[string]any{"a<b>&": nan, "-": -1e300, "\n": `"`}, `{"\n":"\"","-":-1e+300,"a<b>&":"NaN"}`},
	} {
		got := value(t, JSON(nil), tt.v)
		if got != tt.want {
			t.Errorf("%+v:\n got %s\nwant %s", tt.v, got, tt.want)
		}
	}
	if !math.IsNaN(outer.Deep) || !math.IsInf(outer.Seen, -1) || !math.IsInf(*outer.Point, 1) || !math.IsNaN(float64(outer.List[1])) ||
		!math.IsNaN(outer.Next.Map[7]) || !math.IsNaN(outer.own) {
		t.Errorf("the value was changed: %+v", outer)
	}

	// A value that encoding/json rejects for another reason is replaced with an error text, which
	// depends on the release of Go. No other value is lost.
	_, bad := json.Marshal(jsonBad{})
	for want, v := range map[string]any{
		`{"a":"NaN","b":"!ERROR:json: unsupported type: chan int"}`: map[string]any{"a": nan, "b": make(chan int)},
		`["NaN","!ERROR:json: unsupported type: func()"]`:           []any{nan, func() {}},
		`["NaN","!ERROR:` + bad.Error() + `"]`:                      []any{nan, jsonBad{}},
	} {
		got := value(t, JSON(nil), v)
		if plain := strings.NewReplacer("*encode.jsonBad", "encode.jsonBad"); plain.Replace(got) != plain.Replace(want) {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	if got := string(appendLogfmt(t, slog.Any("m", map[string]float64{"f": nan}))); !strings.Contains(got, `m="{\"f\":\"NaN\"}"`) {
		t.Errorf("logfmt: %s", got)
	}
}

type jsonBad struct{}

func (jsonBad) MarshalJSON() ([]byte, error) { return json.Marshal(math.NaN()) }

func appendLogfmt(t *testing.T, a slog.Attr) []byte {
	out, _, err := Logfmt(nil).Scope().Append(nil, &Record{Message: "m", Attrs: []slog.Attr{a}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

type twig struct {
	F float64
	G float32        `json:"g,omitempty"`
	A any            `json:"a"`
	N *twig          `json:",omitempty"`
	M map[string]any `json:"m,omitempty"`
}

// tree returns a random value, and the expected value after decoding.
func (p *program) tree(depth int) (v, model any) {
	f := func() (float64, any) {
		switch p.byte() % 6 {
		case 0:
			return math.NaN(), "NaN"
		case 1:
			return math.Inf(1), "+Inf"
		case 2:
			return math.Inf(-1), "-Inf"
		case 3:
			n := math.Float64frombits(uint64(p.int64()))
			if n-n == 0 {
				return n, n
			}
		}
		n := float64(p.int64()) / 8
		return n, n
	}
	small := func() (float32, any) {
		x, m := f()
		g := float32(x)
		if _, isText := m.(string); isText {
			return g, m
		}
		if g-g != 0 {
			return 1, 1.0
		}
		var back float64
		text, _ := json.Marshal(g)
		json.Unmarshal(text, &back)
		return g, back
	}
	kind := p.byte() % 12
	if depth > 6 {
		kind %= 4
	}
	switch kind {
	case 0:
		return p.string(), nil
	case 1:
		return f()
	case 2:
		g, m := small()
		if _, isNumber := m.(float64); isNumber && depth == 0 {
			m = float64(g) // slog.AnyValue converts g to a float64
		}
		return g, m
	case 3:
		n, m := f()
		return &n, m
	case 4, 5:
		v, m := map[string]any{}, map[string]any{}
		for i := range p.byte() % 5 {
			k := fmt.Sprint("k", i)
			v[k], m[k] = p.tree(depth + 1)
		}
		return v, m
	case 6, 7:
		v, m := []any{}, []any{}
		for range p.byte() % 5 {
			x, y := p.tree(depth + 1)
			v, m = append(v, x), append(m, y)
		}
		return v, m
	case 8:
		a, m := f()
		b, n := f()
		return map[int]float64{1: a, -2: b}, map[string]any{"1": m, "-2": n}
	case 9:
		a, m := small()
		b, n := small()
		return [2]float32{a, b}, []any{m, n}
	default:
		n := twig{}
		m := map[string]any{}
		n.F, m["F"] = f()
		var g any
		if n.G, g = small(); n.G != 0 || g == "NaN" {
			m["g"] = g
		}
		n.A, m["a"] = p.tree(depth + 1)
		if p.byte()%2 == 0 {
			n.N = new(twig)
			n.N.F, g = f()
			m["N"] = map[string]any{"F": g, "a": nil}
		}
		if p.byte()%2 == 0 {
			return &n, m
		}
		return n, m
	}
}

func nonFiniteTree(t *testing.T, data []byte) {
	p := program{data: data}
	v, model := p.tree(0)
	text := value(t, JSON(nil), v)
	var got any
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if !same(got, model) {
		t.Fatalf("%+v became\n%s\nwant %v", v, text, model)
	}
}

// same reports whether decoded JSON equals a model. A nil model matches any string.
func same(got, model any) bool {
	switch m := model.(type) {
	case nil:
		if _, isText := got.(string); isText {
			return true
		}
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(m) {
			return false
		}
		for k := range m {
			if x, ok := g[k]; !ok || !same(x, m[k]) {
				return false
			}
		}
		return true
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(m) {
			return false
		}
		for i := range m {
			if !same(g[i], m[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(got, model)
}

func FuzzNonFinite(f *testing.F) {
	for i := range 200 {
		f.Add(seedBytes(uint64(i), 200))
	}
	f.Fuzz(nonFiniteTree)
}

func TestNonFiniteRandom(t *testing.T) {
	seed := testkit.Seed(t)
	for i := range uint64(effort(1000)) {
		nonFiniteTree(t, seedBytes(seed+i, int(20+i%300)))
	}
}
