package record

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// A Member is the position of an object member or a logfmt pair in a line. Its name is
// line[Key:KeyEnd] and its value line[Value:End], both raw, including quotes. For a logfmt name
// without '=', Value and End equal KeyEnd.
type Member struct{ Key, KeyEnd, Value, End int }

// Members calls yield with the members of the object at b[obj:], in order, until yield returns
// false. b must be valid JSON. Members returns the index of the closing brace, or -1 if yield
// returned false.
func Members(b []byte, obj int, yield func(Member) bool) (end int) {
	for i := space(b, obj+1); ; {
		switch b[i] {
		case '}':
			return i
		case ',':
			i = space(b, i+1)
		}
		var m Member
		m.Key = i
		_, _, m.KeyEnd = stringAt(b, i+1)
		m.Value = space(b, space(b, m.KeyEnd)+1) // after the colon
		if b[m.Value] == '"' {
			_, _, m.End = stringAt(b, m.Value+1)
		} else {
			m.End = skip(b, m.Value)
		}
		if !yield(m) {
			return -1
		}
		i = space(b, m.End)
	}
}

// Space returns the index of the first byte at or after b[i] that is not JSON white space.
func Space(b []byte, i int) int { return space(b, i) }

// AppendString appends the value of a valid, quoted JSON string to dst. If the string has no
// escapes, it returns the bytes between the quotes instead, which share the memory of quoted.
func AppendString(dst, quoted []byte) []byte {
	s := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(s, '\\') < 0 {
		return s
	}
	return jsontext.AppendUnescaped(dst, s)
}

// Pairs calls yield with the pairs of a logfmt line, in order, until yield returns false. It
// returns false if yield did or if the line is not logfmt.
func Pairs(line []byte, yield func(Member) bool) bool {
	return pairs(line, func(key, value []byte) bool {
		at := cap(line) - cap(key)
		m := Member{Key: at, KeyEnd: at + len(key)}
		m.Value, m.End = m.KeyEnd, m.KeyEnd
		if value != nil {
			m.Value++
			m.End = m.Value + len(value)
		}
		return yield(m)
	})
}

// LogfmtText returns the text of a logfmt value. If value has no escapes, the text shares its
// memory. If value is nil, as for a name without '=', the text is "true".
func LogfmtText(value []byte) []byte {
	switch {
	case value == nil:
		return []byte("true")
	case len(value) < 2 || value[0] != '"':
		return value
	case bytes.IndexByte(value, '\\') < 0:
		return value[1 : len(value)-1]
	}
	if s, err := strconv.Unquote(string(value)); err == nil {
		return []byte(s)
	}
	var s string
	if json.Unmarshal(value, &s) == nil {
		return []byte(s)
	}
	return value[1 : len(value)-1]
}

// Elements calls yield with the raw elements of a valid JSON list, in order, until yield returns
// false.
func Elements(list []byte, yield func(element []byte) bool) {
	for i := space(list, 1); list[i] != ']'; i = space(list, i) {
		if list[i] == ',' {
			i = space(list, i+1)
		}
		from := i
		i = skip(list, i)
		if !yield(list[from:i]) {
			return
		}
	}
}
