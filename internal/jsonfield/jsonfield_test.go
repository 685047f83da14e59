package jsonfield

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestValidNameAsInEncodingJSON(t *testing.T) {
	for _, name := range []string{"a", "é", "日本", "7", "a b", "a/b", "$%-/", "@[]^_{|}~"} {
		if !ValidName(name) {
			t.Errorf("%q is refused", name)
		}
	}
	for _, name := range []string{"", "b'c", `a\b`, `a"b`, "a,b", "a`b", "\u2028", "a\tb", "€"} {
		if ValidName(name) {
			t.Errorf("ValidName accepts %q", name)
		}
	}
}

// accepts reports whether encoding/json uses the name in a tag.
func accepts(t *testing.T, name string) bool {
	typ := reflect.StructOf([]reflect.StructField{{Name: "Own", Type: reflect.TypeFor[int](), Tag: reflect.StructTag(`json:"` + name + `"`)}})
	text, err := json.Marshal(reflect.New(typ).Elem().Interface())
	if err != nil {
		t.Fatal(err)
	}
	return !strings.Contains(string(text), "Own")
}

// ValidName accepts exactly the names that encoding/json of Go 1.26 accepts. Later releases accept
// more names.
func TestNamesOfEncodingJSON(t *testing.T) {
	if accepts(t, "b'c") {
		t.Log("this release accepts more names")
		return
	}
	for r := rune(1); r < 0x3100; r++ {
		name := "a" + string(r)
		if strings.ContainsAny(name, "\",\\`") {
			continue // this character is part of the syntax of tags
		}
		if accepts(t, name) != ValidName(name) {
			t.Errorf("%q: %v", name, ValidName(name))
		}
	}
}

func TestVisibleTakesTheLeastDeepField(t *testing.T) {
	for _, tt := range []struct {
		names []Name
		want  []int
	}{
		{nil, nil},
		{[]Name{{"a", 1, false}, {"b", 1, false}}, []int{0, 1}},
		{[]Name{{"a", 2, true}, {"a", 1, false}}, []int{1}},
		{[]Name{{"a", 2, false}, {"a", 2, true}}, []int{1}},
		{[]Name{{"a", 2, false}, {"a", 2, false}, {"b", 3, true}}, []int{2}},
		{[]Name{{"a", 2, true}, {"a", 2, true}, {"a", 3, true}}, nil},
		{[]Name{{}, {"a", 1, false}, {}}, []int{0, 1, 2}},
	} {
		got := Visible(tt.names, func(n *Name) (Name, bool) { return *n, n.Name != "" })
		if !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.names, got, tt.want)
		}
	}
}
