// Package labelname converts names to the grammar of Loki's labels, [a-zA-Z_][a-zA-Z0-9_]*.
package labelname

import (
	"slices"
	"unicode/utf8"
)

// Of converts name to a valid label name. Every character except ASCII letters, digits and "_"
// becomes "_". A name that begins with a digit gets a "_" in front. Loki reserves names that begin
// with "__", so only one "_" at the start is kept. An empty name becomes "_".
func Of(name string) string {
	for i := range len(name) {
		if !allowed(name[i], i == 0) || i == 1 && name[:2] == "__" {
			return string(Tail([]byte(name), 0))
		}
	}
	if name == "" {
		return "_"
	}
	return name
}

// Tail converts the name buf[start:] to a valid label name, like [Of]. It returns buf, which may be
// reallocated.
func Tail(buf []byte, start int) []byte {
	if len(buf) == start || buf[start] >= '0' && buf[start] <= '9' {
		buf = slices.Insert(buf, start, '_')
	}
	name, to := buf[start:], 0
	for i := 0; i < len(name); {
		c, n := name[i], 1
		if !allowed(c, false) {
			if c >= utf8.RuneSelf {
				_, n = utf8.DecodeRune(name[i:])
			}
			c = '_'
		}
		name[to] = c
		to, i = to+1, i+n
	}
	name = name[:to]
	for len(name) > 1 && name[0] == '_' && name[1] == '_' {
		name = name[:copy(name, name[1:])]
	}
	return buf[:start+len(name)]
}

// allowed reports whether the byte c is allowed in a label name or, if first is true, at its start.
func allowed(c byte, first bool) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || !first && c >= '0' && c <= '9'
}
