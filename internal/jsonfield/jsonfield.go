// Package jsonfield has the rules of encoding/json for the fields of structs that
// every encoder which looks into structs itself has to follow.
package jsonfield

import (
	"strings"
	"unicode"
)

// A Name is what decides which of several fields of one name counts.
type Name struct {
	Name   string
	Depth  int  // 1 for a field of the struct, more for those of embedded structs
	Tagged bool // the name comes from a tag
}

// Visible returns the indexes of the fields that count, in their order: of several of
// one name the least deep is taken, then the one with a tag, and if that does not
// decide it, none. A field for which name reports false has no name to share and
// always counts.
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

func dominant(names []Name, same []int, i int) bool {
	n := names[i]
	for _, k := range same {
		if o := names[k]; k != i && (o.Depth < n.Depth || o.Depth == n.Depth && (o.Tagged || !n.Tagged)) {
			return false
		}
	}
	return true
}

// ValidName reports whether encoding/json of Go 1.26 accepts a name in a tag. Otherwise the field
// has its Go name. Later releases accept more names; the encoding here does not depend on the
// release.
func ValidName(name string) bool {
	for _, r := range name {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return false
		}
	}
	return name != ""
}
