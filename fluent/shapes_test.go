package fluent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"
)

//lint:file-ignore SA5008 the tags are deliberately unusual

// These types have unusual fields, tags and methods that encoding/json supports.
type (
	hiddenPart  struct{ A int }
	taggedPart  struct{ B string }
	PublicPart  struct{ C float64 }
	jsonAndText [2]int
	textOnAddr  struct{ X int }
	nilText     []string
	nilJSON     map[string]int
	hiddenText  struct{ A int }

	embedsTagged struct {
		hiddenPart `json:"in"`
		D          int
	}
	embedsPointer struct {
		*taggedPart `json:"at"`
		PublicPart
		D int
	}
	embedsBoth struct {
		hiddenPart
		PublicPart `json:"-"`
		*taggedPart
		A string
	}
	embedsText struct {
		hiddenText `json:"t"`
		B          int
	}
	pointsToFirst struct {
		H PublicPart
		P *PublicPart
	}
	embedsError struct {
		error
		A int
	}
	embedsStringer struct {
		fmt.Stringer
		A int
	}
	wrapsError struct{ error }
	panicsZero struct{ N int }
	hasZero    struct {
		Z panicsZero `json:"z,omitzero"`
		A int
	}
	wordText string // has MarshalText, which is not used for map keys of kind string
	zeroPtr  struct{ N int }
	quoted   struct {
		U uintptr      `json:"u,string"`
		S string       `json:"s,string"`
		P *string      `json:"p,string"`
		N json.Number  `json:"n,string"`
		W wordText     `json:"w,string"`
		J jsonAndText  `json:"j,string"`
		T textOnNumber `json:"t,string"`
		F float32      `json:"f,string"`
		A any          `json:"a,string"`
	}
	textOnNumber int
	names        struct {
		C int `json:"é.-/"`
	}
	noNames struct { // no tag has a valid name; releases of encoding/json differ in this case
		A int `json:"a\\b"`
		B int `json:"b'c"`
		D int `json:"\u2028"`
	}
	zeros struct {
		Z zeroPtr                    `json:"z,omitzero"`
		I any                        `json:"i,omitzero"`
		T interface{ IsZero() bool } `json:"t,omitzero"`
		P *time.Time                 `json:"p,omitzero"`
	}
	options struct {
		A int               `json:"a,string"`
		B *int              `json:",omitempty"`
		C []int             `json:"c,omitempty"`
		D map[string]int    `json:"d,omitempty"`
		E any               `json:"e,omitempty"`
		F [0]int            `json:"f,omitempty"`
		G struct{}          `json:"g,omitempty"`
		H time.Time         `json:"h,omitzero"`
		I bool              `json:"i i,omitempty"`
		J string            `json:"j,omitempty"`
		K map[int]string    `json:"k"`
		L map[uint8][]int   `json:"l"`
		M *struct{ X *int } `json:"m"`
	}
)

func (p *jsonAndText) MarshalJSON() ([]byte, error)  { return []byte(`"by address"`), nil }
func (p jsonAndText) MarshalText() ([]byte, error)   { return []byte("by value"), nil }
func (p *textOnAddr) MarshalText() ([]byte, error)   { return []byte("by address"), nil }
func (n nilText) MarshalText() ([]byte, error)       { return fmt.Appendf(nil, "%d of them", len(n)), nil }
func (n nilJSON) MarshalJSON() ([]byte, error)       { return fmt.Appendf(nil, "%d", len(n)), nil }
func (panicsZero) IsZero() bool                      { panic("zero") }
func (w wordText) MarshalText() ([]byte, error)      { return append([]byte("w:"), w...), nil }
func (n *textOnNumber) MarshalText() ([]byte, error) { return []byte("by address"), nil }
func (z *zeroPtr) IsZero() bool                      { return z.N == 5 }

// Fields and values of unusual types are encoded as encoding/json encodes them.
func TestUnusualTypesMatchEncodingJSON(t *testing.T) {
	one, at := 1, time.Unix(1, 123456789).UTC()
	first := &pointsToFirst{}
	first.P = &first.H
	part := []any{5, nil}
	part[1] = part[:1]
	for i, v := range []any{
		embedsTagged{hiddenPart{1}, 2}, &embedsTagged{hiddenPart{1}, 2}, map[string]embedsTagged{"x": {}},
		embedsPointer{}, embedsPointer{taggedPart: &taggedPart{"b"}, D: 1}, &embedsPointer{taggedPart: &taggedPart{"b"}},
		embedsBoth{}, embedsBoth{hiddenPart{1}, PublicPart{2}, &taggedPart{"x"}, "a"}, embedsText{}, &embedsText{hiddenText{1}, 2},
		jsonAndText{1, 2}, &jsonAndText{1, 2}, struct{ P jsonAndText }{}, &struct{ P jsonAndText }{}, []jsonAndText{{}}, [1]jsonAndText{}, map[string]jsonAndText{"a": {}},
		textOnAddr{1}, &textOnAddr{1}, map[string]textOnAddr{"a": {}}, struct{ T textOnAddr }{}, &struct{ T textOnAddr }{},
		map[string]struct{ T [1]textOnAddr }{"a": {}}, map[string]*textOnAddr{"a": {}, "b": nil}, map[string][]textOnAddr{"a": {{}}},
		map[wordText]wordText{"k": "v"}, names{3}, quoted{}, &quoted{}, quoted{1, "x\"", new(string), "1.50", "w", jsonAndText{}, 5, 1e-7, 1}, &quoted{T: 5, A: "s"},
		zeros{}, zeros{Z: zeroPtr{5}, I: at, T: time.Time{}, P: &time.Time{}}, &zeros{Z: zeroPtr{5}, T: (*time.Time)(nil)}, []any{zeros{Z: zeroPtr{4}, T: at}},
		net.IP(nil), net.ParseIP("::1"), struct{ IP net.IP }{}, nilText(nil), nilJSON(nil), struct {
			A nilText
			B nilJSON
			C *nilText
		}{}, netip.Addr{}, map[string]net.IP{"a": nil}, map[netip.Addr]int{netip.MustParseAddr("1.2.3.4"): 1},
		options{}, options{A: 1, B: &one, C: []int{1}, D: map[string]int{"a": 1}, E: 0, J: "j", K: map[int]string{-1: "a", 2: "b"}, L: map[uint8][]int{3: nil}, M: &struct{ X *int }{&one}},
		nest(9, first), nest(9, part), map[string]map[string]map[string]int{"a": {"b": {"c": 1}, "d": nil}}, map[string][]map[string]bool{"a": {{"b": true}}},
		map[string]error{"a": nil}, embedsStringer{nil, 3}, map[string]any{"m": map[string]any(nil), "s": []any(nil), "t": []string(nil)},
		map[string]*map[string]int{"a": {"b": 1}}, map[string][2]string{"a": {"x", "y"}}, map[string]json.Number{"a": "1.5"}, map[string]json.RawMessage{"a": json.RawMessage(`[1, {"b" : null}]`)},
	} {
		want, err := json.Marshal(map[string]any{"v": v})
		if err != nil {
			if _, ok := v.(embedsStringer); !ok {
				t.Errorf("%d: %v", i, err)
			}
			continue
		}
		if got := encoded(t, map[string]any{"v": v}); !equalJSON(got, string(want)) {
			t.Errorf("%d: %T: got %s, want %s", i, v, got, want)
		}
	}
	for _, tt := range []struct {
		v    any
		want string
	}{
		{embedsError{errors.New("x"), 3}, `{"message":"x"}`},
		{map[string]embedsError{"e": {errors.New("x"), 3}}, `{"e":"x"}`},
		{map[string]any{"e": wrapsError{errors.New("x")}}, `{"e":"x"}`},
		{noNames{1, 2, 4}, `{"A":1,"B":2,"D":4}`},
		// If a method panics, a text replaces the value.
		{hasZero{A: 1}, `{"z":{"N":0},"A":1}`},
	} {
		if got := encoded(t, tt.v); !equalJSON(got, tt.want) {
			t.Errorf("%T: %s, want %s", tt.v, got, tt.want)
		}
	}
}
