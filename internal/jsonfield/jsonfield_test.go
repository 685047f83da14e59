package jsonfield

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// What encoding/json does is the reference.
func TestValidName(t *testing.T) {
	for r := rune(1); r < 0x3100; r++ {
		name := "a" + string(r)
		if strings.ContainsAny(name, "\",\\`") {
			continue // part of the syntax of tags
		}
		typ := reflect.StructOf([]reflect.StructField{{Name: "Own", Type: reflect.TypeFor[int](), Tag: reflect.StructTag(`json:"` + name + `"`)}})
		text, err := json.Marshal(reflect.New(typ).Elem().Interface())
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]int
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		if _, own := m["Own"]; own == ValidName(name) {
			t.Errorf("%q: %v, encoding/json wrote %s", name, ValidName(name), text)
		}
	}
	if ValidName("") {
		t.Error("no name is no name")
	}
}

func TestVisible(t *testing.T) {
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
