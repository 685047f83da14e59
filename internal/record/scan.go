package record

import (
	"bytes"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// maxDepth limits the nesting of objects and lists, as in encoding/json.
const maxDepth = 10_000

// A scan validates the JSON of one line like json.Valid and, in the same pass, reports the members
// of the outermost object to a Parser. Several methods and functions scan a value, or a part of
// one, at a given index. They return the index after this part, or -1 if the part is invalid.
type scan struct {
	b        []byte
	depth    int
	nonASCII bool // a string may not be ASCII

	p  *Parser // receives the members; nil: validate only
	ev *Event
}

// ones has a 1 in each byte, and highs has the highest bit of each byte.
const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// line reports whether line is one object, with optional white space around it.
func (s *scan) line(line []byte) bool {
	if len(line) > 0 && line[0] <= ' ' {
		line = bytes.TrimLeft(line, " \t\r")
	}
	if len(line) == 0 || line[0] != '{' {
		return false
	}
	s.b = line
	i := s.object(0)
	return i > 0 && space(s.b, i) == len(s.b)
}

// value scans the value of any type at b[i].
func (s *scan) value(i int) int {
	b := s.b
	if uint(i) >= uint(len(b)) {
		return -1
	}
	switch c := b[i]; {
	case c == '"':
		return s.text(i + 1)
	case c == '{':
		return s.object(i)
	case c == '[':
		return s.list(i)
	case c == 't':
		return word(b, i, "true")
	case c == 'f':
		return word(b, i, "false")
	case c == 'n':
		return word(b, i, "null")
	}
	return numeral(b, i)
}

// object scans the object whose opening brace is b[i]. It reports the members of the outermost
// object to the Parser.
func (s *scan) object(i int) int {
	b := s.b
	if s.depth++; s.depth > maxDepth {
		return -1
	}
	if i = nonSpace(b, i+1); i < len(b) && b[i] == '}' {
		s.depth--
		return i + 1
	}
	for {
		if uint(i) >= uint(len(b)) || b[i] != '"' {
			return -1
		}
		key := i + 1
		if i = s.text(key); i < 0 {
			return -1
		}
		end := i - 1
		if i = nonSpace(b, i); uint(i) >= uint(len(b)) || b[i] != ':' {
			return -1
		}
		i = nonSpace(b, i+1)
		value := i
		if i = s.value(i); i < 0 {
			return -1
		}
		if s.depth == 1 && s.p != nil && s.ev.mayTake(b[key:end]) {
			s.member(b[key:end], b[value:i])
		}
		i = nonSpace(b, i)
		if uint(i) >= uint(len(b)) {
			return -1
		}
		if b[i] != ',' {
			if b[i] != '}' {
				return -1
			}
			s.depth--
			return i + 1
		}
		i = nonSpace(b, i+1)
	}
}

// nonSpace returns the index of the first byte at or after b[i] that is not JSON white space. It is
// inlined, because most lines have no white space there.
func nonSpace(b []byte, i int) int {
	if uint(i) < uint(len(b)) && b[i] <= ' ' {
		return space(b, i)
	}
	return i
}

// list scans the list whose opening bracket is b[i].
func (s *scan) list(i int) int {
	b := s.b
	if s.depth++; s.depth > maxDepth {
		return -1
	}
	if i = space(b, i+1); i < len(b) && b[i] == ']' {
		s.depth--
		return i + 1
	}
	for {
		if i = s.value(i); i < 0 {
			return -1
		}
		if i = space(b, i); i >= len(b) {
			return -1
		}
		switch b[i] {
		case ',':
			i = space(b, i+1)
		case ']':
			s.depth--
			return i + 1
		default:
			return -1
		}
	}
}

// member passes a member to the Parser, because it may be the level or the time. key is without
// quotes; value is raw.
func (s *scan) member(key, value []byte) {
	if value[0] == '[' && string(key) == "PRIORITY" {
		// journalctl writes a field with several values as a list. Use the first value, which is a
		// digit.
		first, _, _ := bytes.Cut(value[1:len(value)-1], []byte(","))
		if first = bytes.Trim(first, " \t\""); len(first) == 1 {
			value = first
		}
	}
	s.p.field(s.ev, key, unquoted(value), value[0] != '"')
}

// text scans the rest of a string from b[i].
func (s *scan) text(i int) int {
	end, ascii, _ := jsontext.ScanString(s.b, i)
	s.nonASCII = s.nonASCII || !ascii
	return end
}

// word scans the literal w at b[i].
func word(b []byte, i int, w string) int {
	if len(b)-i < len(w) || string(b[i:i+len(w)]) != w {
		return -1
	}
	return i + len(w)
}

// numeral scans the number at b[i] by the grammar of JSON.
func numeral(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	switch {
	case i >= len(b) || !isDigit(b[i]):
		return -1
	case b[i] == '0':
		i++
	default:
		i = digits(b, i)
	}
	if i < len(b) && b[i] == '.' {
		from := i + 1
		if i = digits(b, from); i == from {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		from := i
		if i = digits(b, from); i == from {
			return -1
		}
	}
	return i
}

// digits returns the index of the first byte at or after b[i] that is not a digit.
func digits(b []byte, i int) int {
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	return i
}
