// Package jsonfield implements the rules of encoding/json for the names of struct fields, for
// encoders that read structs by reflection.
package jsonfield

import (
	"strings"
	"unicode"
)

// A Name is the name of a field, with the properties that decide which of several fields with that
// name is written.
type Name struct {
	Name   string
	Depth  int  // 1 for a field of the struct; more for fields of embedded structs
	Tagged bool // the name comes from a tag
}

// Visible returns the indexes of the fields that are written, in ascending order. Of several fields
// with the same name, the field with the smallest depth is written. At equal depth, a field whose
// name comes from a tag is written. If several fields are left, none of them is written. A field
// for which the function name returns false has no name and is always written.
func Visible[F any](fields []F, name func(*F) (Name, bool)) []int {
	names := make([]Name, len(fields))
	same := map[string][]int{}
	for i := range fields {
		if n, ok := name(&fields[i]); ok {
			names[i] = n
			same[n.Name] = append(same[n.Name], i)
		}
	}
	var visible []int
	for i := range fields {
		if dominant(names, same[names[i].Name], i) {
			visible = append(visible, i)
		}
	}
	return visible
}

// dominant reports whether field i is written. same contains the indexes of all fields with its
// name.
func dominant(names []Name, same []int, i int) bool {
	n := names[i]
	for _, k := range same {
		if o := names[k]; k != i && (o.Depth < n.Depth || o.Depth == n.Depth && (o.Tagged || !n.Tagged)) {
			return false
		}
	}
	return true
}

// ValidName reports whether encoding/json of Go 1.26 accepts a name in a tag. A field with an
// invalid name is written with its Go name. Later releases of Go accept more names, but the
// encoders of forebay do not depend on the release.
func ValidName(name string) bool {
	for _, r := range name {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return false
		}
	}
	return name != ""
}
