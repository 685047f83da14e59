package forebay_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/loki"
	"github.com/forebay-log/forebay/otlp"
)

type (
	oneUUID   [16]byte
	oneText   struct{ s string }
	oneJSON   struct{ s string }
	oneLogged struct{ s string }
	oneGroup  struct{ n int }
	oneState  int
	onePart   struct {
		At  time.Time
		For time.Duration `json:"for"`
	}
	oneStruct struct {
		onePart
		Name  string `json:"name"`
		Empty string `json:"empty,omitempty"`
		Err   error
		Any   any
		List  []onePart
		Next  *oneStruct `json:",omitempty"`
		Bytes []byte
		NaN   float32
		State oneState
		Count int `json:",string"`
	}
)

func (u oneUUID) String() string               { return "not this" }
func (v oneText) MarshalText() ([]byte, error) { return []byte("text of " + v.s), nil }
func (v oneJSON) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"json": []any{v.s, 1}})
}
func (v oneLogged) LogValue() slog.Value { return slog.StringValue("logged") }
func (v *oneGroup) AppendAttrs(d []slog.Attr) []slog.Attr {
	return append(d, slog.Int("n", v.n), slog.Group("none"))
}
func (s oneState) String() string { return "not this either" }

// valueCorpus returns values of all kinds, with the text that each output must write for them. The
// text is the same within lists and maps.
func valueCorpus() []struct {
	name string
	v    any
	want string
} {
	at := time.Date(2026, 11, 20, 13, 44, 10, 1_500_000, time.FixedZone("", 3600))
	const text = `"2026-11-20T12:44:10.001500000Z"`
	var nobody *oneStruct
	var noError *json.SyntaxError
	uuid := oneUUID{1, 2, 15: 255}
	d, n := 1500*time.Millisecond, 7
	part := `{"At":` + text + `,"for":1500000000}`
	return []struct {
		name string
		v    any
		want string
	}{
		{"nil", nil, `null`},
		{"string", "a\"b\n\xff", `"a\"b\n�"`},
		{"int", -3, `-3`},
		{"uint", uint16(3), `3`},
		{"float", 1.5, `1.5`},
		{"NaN", math.NaN(), `"NaN"`},
		{"infinity", math.Inf(-1), `"-Inf"`},
		{"complex", 1 + 2i, `"(1+2i)"`},
		{"bool", true, `true`},
		{"duration", d, `1500000000`},
		{"pointer to a duration", &d, `1500000000`},
		{"time", at, text},
		{"time after the year 9999", time.Date(12000, 1, 2, 3, 4, 5, 0, time.UTC), `"12000-01-02T03:04:05Z"`},
		{"list of strings", []string{"a", "b\""}, `["a","b\""]`},
		{"pointer to a list of numbers", &[]int{1, -2}, `[1,-2]`},
		{"list of times", []time.Time{at}, `[` + text + `]`},
		{"list of durations", []time.Duration{d}, `[1500000000]`},
		{"wrapped error", fmt.Errorf("e: %w", errors.Join(io.EOF, nil)), `"e: EOF"`},
		{"empty number", json.Number(""), `0`},
		{"array of bytes", [2]byte{1, 2}, `[1,2]`},
		{"level", slog.LevelWarn + 1, `"WARN+1"`},
		{"UUID", uuid, `"01020000-0000-0000-0000-0000000000ff"`},
		{"bytes", []byte("hey"), `"aGV5"`},
		{"number", json.Number("12.5"), `12.5`},
		{"raw JSON", json.RawMessage(`{ "a": [1] }`), `{"a":[1]}`},
		{"number with String", oneState(2), `2`},
		{"error", errors.New("e"), `"e"`},
		{"MarshalText", oneText{"t"}, `"text of t"`},
		{"MarshalJSON", oneJSON{"j"}, `{"json":["j",1]}`},
		{"LogValue", oneLogged{"secret"}, `"logged"`},
		{"AttrAppender", &oneGroup{4}, `{"n":4}`},
		{"address", netip.MustParseAddr("10.0.0.1"), `"10.0.0.1"`},
		{"pointer", &n, `7`},
		{"nil pointer", nobody, `null`},
		{"list", []any{at, d, []int{1}, nil, uuid, io.EOF}, `[` + text + `,1500000000,[1],null,"01020000-0000-0000-0000-0000000000ff","EOF"]`},
		{"errors", []error{io.EOF, nil, noError}, `["EOF",null,null]`},
		{"map", map[string]any{"b": []any{d}, "a": slog.LevelInfo, "c": map[string]int{}}, `{"a":"INFO","b":[1500000000],"c":{}}`},
		{"map of numbers", map[int]onePart{7: {at, d}}, `{"7":` + part + `}`},
		{"map of anything", map[any]any{1: 1, "s": 2, true: 3, 1.5: 4, netip.MustParseAddr("::1"): 5}, `{"1":1,"1.5":4,"::1":5,"s":2,"true":3}`},
		{"struct", &oneStruct{onePart: onePart{at, d}, Name: "x", Err: io.EOF, Any: oneLogged{}, List: []onePart{{at, d}}, Next: nil, Bytes: []byte("hey"), NaN: float32(math.NaN()), State: 3, Count: 5},
			`{"At":` + text + `,"for":1500000000,"name":"x","Err":"EOF","Any":"logged","List":[` + part + `],"Bytes":"aGV5","NaN":"NaN","State":3,"Count":"5"}`},
		{"group", slog.GroupValue(slog.Int("a", 1), slog.Duration("d", d), slog.Group("none"), slog.Any("l", []any{slog.DurationValue(d)})), `{"a":1,"d":1500000000,"l":[1500000000]}`},
		{"channel", []any{make(chan int)}, `["!ERROR:json: unsupported type: chan int"]`},
		{"cycle", cyclic(), `"!ERROR`},
	}
}

func cyclic() any {
	m := map[string]any{}
	m["m"] = []any{m}
	return m
}

// A wireForm is an encoder and a function that returns the attributes of its records as JSON.
type wireForm struct {
	name  string
	enc   encode.Encoder
	attrs func(t *testing.T, rec []byte) map[string]json.RawMessage
}

func wireForms(t *testing.T) []wireForm {
	t.Helper()
	object := func(t *testing.T, text []byte) (m map[string]json.RawMessage) {
		t.Helper()
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return m
	}
	member := func(enc encode.Encoder, name string) func(t *testing.T, rec []byte) map[string]json.RawMessage {
		return func(t *testing.T, rec []byte) map[string]json.RawMessage {
			t.Helper()
			m := object(t, enc.Codec().AppendJSON(nil, rec, batch.Meta{}))
			if name == "line" {
				var line string
				if err := json.Unmarshal(m[name], &line); err != nil {
					return object(t, m[name])
				}
				return object(t, []byte(line))
			}
			return object(t, m[name])
		}
	}
	f, err := fluent.NewEncoder(nil)
	if err != nil {
		t.Fatal(err)
	}
	x, err := otlp.New(otlp.Config{URL: "http://otlp.test"})
	if err != nil {
		t.Fatal(err)
	}
	all := []wireForm{
		{"json", encode.JSON(nil), func(t *testing.T, rec []byte) map[string]json.RawMessage { return object(t, rec) }},
		{"forward", f, member(f, "record")},
		{"otlp", x.Encoder(), member(x.Encoder(), "attributes")},
	}
	for _, wire := range []string{"protobuf", "json"} {
		p, err := loki.New(loki.Config{URL: "http://loki.test", Wire: wire, Labels: map[string]string{"app": "test"}})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, wireForm{"loki " + wire, p.Encoder(), member(p.Encoder(), "line")})
	}
	return all
}

// In every output, a value has the same type and text, whether it is an attribute or part of
// another value, and whether it is an argument of the log call or of With.
func TestValueHasSameTextInAllOutputs(t *testing.T) {
	same := func(got json.RawMessage, want string) bool {
		if want == `"!ERROR` {
			return strings.HasPrefix(string(got), want)
		}
		var x, y any
		return json.Unmarshal(got, &x) == nil && json.Unmarshal([]byte(want), &y) == nil && reflect.DeepEqual(x, y)
	}
	for _, f := range wireForms(t) {
		for _, c := range valueCorpus() {
			inner, prefix := c.v, ""
			if g, ok := c.v.(slog.Value); ok {
				inner = g
			}
			if c.want == `"!ERROR` {
				prefix = c.want
			}
			attrs := []slog.Attr{slog.Any("own", c.v), slog.Any("list", []any{inner}), slog.Any("map", map[string]any{"k": inner}), slog.Group("g", slog.Any("v", c.v))}
			s := f.enc.Scope()
			for _, way := range []string{"call", "With"} {
				r := &encode.Record{Time: time.Unix(1, 0), Message: "m", Attrs: attrs}
				in := s
				if way == "With" {
					in, r.Attrs = s.WithAttrs(attrs), nil
				}
				rec, _, err := in.Append(nil, r)
				if err != nil {
					t.Fatal(err)
				}
				m := f.attrs(t, rec)
				var g map[string]json.RawMessage
				if err := json.Unmarshal(m["g"], &g); err != nil {
					t.Fatalf("%s: %v in %s", f.name, err, m["g"])
				}
				if !same(m["own"], c.want) || !same(g["v"], c.want) {
					t.Errorf("%s, %s of %s: got %s and %s, want %s", f.name, way, c.name, m["own"], g["v"], c.want)
				}
				if prefix == "" && (!same(m["list"], "["+c.want+"]") || !same(m["map"], `{"k":`+c.want+`}`)) {
					t.Errorf("%s, %s of %s: got %s and %s, want %s in them", f.name, way, c.name, m["list"], m["map"], c.want)
				}
			}
		}
	}
}

// randomValues makes random values: values of the corpus, and lists, maps and structs that contain
// them.
type randomValues struct {
	*rand.Rand
	corpus []any
}

func newRandomValues(seed uint64) *randomValues {
	r := &randomValues{Rand: rand.New(rand.NewPCG(seed, 1))}
	for _, c := range valueCorpus() {
		if c.name != "cycle" {
			r.corpus = append(r.corpus, c.v)
		}
	}
	return r
}

// value returns a random value.
func (r *randomValues) value(depth int) any {
	kind := r.IntN(12)
	if depth > 5 {
		kind = 11
	}
	switch kind {
	case 0, 1:
		list := make([]any, r.IntN(4))
		for i := range list {
			list[i] = r.value(depth + 1)
		}
		return list
	case 2, 3:
		m := map[string]any{}
		for range r.IntN(4) {
			m[string(rune('a'+r.IntN(26)))] = r.value(depth + 1)
		}
		return m
	case 4:
		return map[int8]any{int8(r.IntN(256) - 128): r.value(depth + 1), 1: nil}
	case 5:
		return &struct {
			A any `json:"a,omitempty"`
			B []any
			C *any
		}{r.value(depth + 1), []any{r.value(depth + 1)}, ptr(r.value(depth + 1))}
	case 6:
		return struct {
			*onePart
			F float32
			V any `json:",omitzero"`
		}{nil, float32(r.IntN(1000)) / 7, r.value(depth + 1)}
	case 7:
		return []slog.Value{slog.AnyValue(r.value(depth + 1)), slog.GroupValue(slog.Any("k", r.value(depth+1)))}
	case 8:
		return []int{r.IntN(1e6), -r.IntN(1e6)}
	case 9:
		return float64(r.IntN(1e6)) / 8
	}
	return r.corpus[r.IntN(len(r.corpus))]
}

// sameEverywhere checks that all outputs write the same text for a random value.
func sameEverywhere(t *testing.T, all []wireForm, seed uint64) {
	t.Helper()
	r := newRandomValues(seed)
	v := r.value(0)
	var want any
	for i, f := range all {
		rec, _, err := f.enc.Scope().Append(nil, &encode.Record{Time: time.Unix(1, 0), Message: "m", Attrs: []slog.Attr{slog.Any("v", []any{v})}})
		if err != nil {
			t.Fatal(err)
		}
		var got any
		if err := json.Unmarshal(f.attrs(t, rec)["v"], &got); err != nil {
			t.Fatalf("seed %d: %s: %v", seed, f.name, err)
		}
		if i == 0 {
			want = got
		} else if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: %s writes\n%v, %s\n%v", seed, f.name, got, all[0].name, want)
		}
	}
}

// Random values have the same text in all outputs, like the values of
// TestValueHasSameTextInAllOutputs.
func TestRandomValuesHaveSameText(t *testing.T) {
	all := wireForms(t)
	for seed := range testkit.Walks(t, 500) {
		sameEverywhere(t, all, seed)
	}
}

func FuzzValueHasSameText(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { sameEverywhere(t, wireForms(t), seed) })
}

// The option Durations sets the format of durations in every output, at every depth. The tag option
// "string" of a struct field does not change the format.
func TestDurationsApplyToAllOutputs(t *testing.T) {
	const d = 88195 * time.Nanosecond
	for name, want := range map[string]string{"": `88195`, "ns": `88195`, "text": `"88.195µs"`, "seconds": `0.000088195`} {
		for _, f := range wireForms(t) {
			var rec []byte
			opts := []forebay.Option{forebay.Route(f.enc, forebay.Writer(writerFunc(func(p []byte) (int, error) {
				rec = append(rec[:0], p...)
				return len(p), nil
			}), forebay.Direct()))}
			if name != "" {
				opts = append(opts, forebay.Durations(name))
			}
			r, err := forebay.NewRouter(opts...)
			if err != nil {
				t.Fatal(err)
			}
			slog.New(r).With("with", d).Info("m", "own", d, "list", []any{d}, "struct", struct {
				D *time.Duration `json:",string"`
			}{ptr(d)}, slog.Group("g", "d", d))
			m := f.attrs(t, rec)
			for key, want := range map[string]string{"with": want, "own": want, "list": "[" + want + "]", "struct": `{"D":` + want + `}`, "g": `{"d":` + want + `}`} {
				var x, y any
				if json.Unmarshal(m[key], &x) != nil || json.Unmarshal([]byte(want), &y) != nil || !reflect.DeepEqual(x, y) {
					t.Errorf("%s, Durations(%q): %s is %s, want %s", f.name, name, key, m[key], want)
				}
			}
		}
	}
	if _, err := forebay.NewRouter(forebay.Durations("minutes"), forebay.Writer(io.Discard, forebay.Direct())); err == nil || !strings.Contains(err.Error(), `Durations: "minutes" is not one of ns, text, seconds`) {
		t.Error(err)
	}
	own := encode.JSON(&encode.Options{Duration: "seconds", TimeKey: "-"})
	var out strings.Builder
	r, err := forebay.NewRouter(forebay.Durations("text"), forebay.Route(own, forebay.Writer(&out, forebay.Direct())))
	if err != nil {
		t.Fatal(err)
	}
	if slog.New(r).Info("m", "d", time.Second); !strings.Contains(out.String(), `"d":1`) {
		t.Error(out.String())
	}
}

// A writerFunc is a function that implements io.Writer.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
