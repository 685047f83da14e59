package transform

import (
	"bytes"
	"log/slog"
	"strconv"
	"strings"
	"unsafe"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/record"
)

// Field returns the text of a field, which a [Where] compares with its patterns. If the text must
// be converted, it is appended to dst. If not, the text is part of the memory of ev. The text is
// valid until dst or ev changes.
func Field(ev *record.Event, name string, dst []byte) (text []byte, ok bool) {
	return fieldText(ev, name, dst)
}

// fieldText returns the text of a field, as described at Field.
func fieldText(ev *record.Event, name string, dst []byte) (text []byte, ok bool) {
	if name == messageField {
		return messageText(ev, dst)
	}
	if v := attrOf(ev.More, name); v != nil {
		return attrText(dst, v), true
	}
	switch ev.Format {
	case record.JSON:
		if v := valueAt(ev.Line, record.Space(ev.Line, 0), name); v != nil {
			return valueText(v, dst), true
		}
	case record.Logfmt:
		if v, ok := pairOf(ev.Line, name, name); ok {
			return record.LogfmtText(v), true
		}
	}
	return nil, false
}

// messageText returns the message. In JSON and logfmt it is the value of the field msg or message,
// whichever occurs first. If this field is repeated, its last value is the message. In text the
// message is the line.
func messageText(ev *record.Event, dst []byte) (text []byte, ok bool) {
	switch ev.Format {
	case record.JSON:
		var key, v []byte
		record.Members(ev.Line, record.Space(ev.Line, 0), func(m record.Member) bool {
			if ev.Line[m.Value] != '"' {
				return true
			}
			switch k := ev.Line[m.Key:m.KeyEnd]; string(k) {
			case `"msg"`, `"message"`:
				if v == nil || string(k) == string(key) {
					key, v = k, ev.Line[m.Value:m.End]
				}
			}
			return true
		})
		if v == nil {
			return nil, false
		}
		return record.AppendString(dst, v), true
	case record.Logfmt:
		v, ok := pairOf(ev.Line, "msg", "message")
		if !ok {
			return nil, false
		}
		return record.LogfmtText(v), true
	}
	return ev.Line, true
}

// valueText returns the text of the JSON value v.
func valueText(v, dst []byte) []byte {
	if v[0] == '"' {
		return record.AppendString(dst, v)
	}
	return v
}

// valueAt returns the value of the named field in the object at b[obj], or nil if there is no such
// field. If a name is repeated, valueAt returns the last value, like most readers of JSON.
func valueAt(b []byte, obj int, name string) []byte {
	var value, nested []byte
	restLen := -1 // length of the rest of the path within the object that contains nested
	record.Members(b, obj, func(m record.Member) bool {
		switch rest, match := follow(b[m.Key:m.KeyEnd], name); match {
		case fullMatch:
			value = b[m.Value:m.End]
		case prefixMatch:
			var v []byte
			if b[m.Value] == '{' {
				v = valueAt(b, m.Value, rest)
			}
			if v != nil || restLen == len(rest) {
				nested, restLen = v, len(rest)
			}
		}
		return true
	})
	if value == nil {
		return nested
	}
	return value
}

// A keyMatch is the result of comparing a key with the beginning of a path of names.
type keyMatch uint8

const (
	noMatch     keyMatch = iota // the path does not begin with the key
	prefixMatch                 // the path begins with the key and a dot
	fullMatch
)

// follow compares a quoted JSON key with the beginning of name, which may be a path. It returns the
// rest of the path after the key.
func follow(quoted []byte, name string) (rest string, match keyMatch) {
	key := quoted[1 : len(quoted)-1]
	if len(key) > 0 && bytes.IndexByte(key, '\\') >= 0 {
		var buf [64]byte
		key = jsontext.AppendUnescaped(buf[:0], key)
	}
	switch n := len(key); {
	case len(name) < n || name[:n] != string(key):
	case len(name) == n:
		return "", fullMatch
	case name[n] == '.':
		return name[n+1:], prefixMatch
	}
	return "", noMatch
}

// pairOf returns the value of the logfmt pair whose key is name or alias. If both keys occur in the
// line, the first one counts. If that key is repeated, pairOf returns its last value.
func pairOf(line []byte, name, alias string) (value []byte, ok bool) {
	record.Pairs(line, func(m record.Member) bool {
		switch key := line[m.Key:m.KeyEnd]; {
		case string(key) == name:
			alias = name
		case string(key) == alias:
			name = alias
		default:
			return true
		}
		value, ok = nil, true
		if m.Value > m.KeyEnd {
			value = line[m.Value:m.End]
		}
		return true
	})
	return value, ok
}

// attrOf returns the value of the first attribute with the given name, or nil.
func attrOf(attrs []slog.Attr, name string) (value *slog.Value) {
	for i := range attrs {
		a := &attrs[i]
		if a.Key == name {
			return &a.Value
		}
		if rest, ok := strings.CutPrefix(name, a.Key); ok && value == nil && a.Value.Kind() == slog.KindGroup && strings.HasPrefix(rest, ".") {
			value = attrOf(a.Value.Group(), rest[1:])
		}
	}
	return value
}

// attrText returns the text of an attribute.
func attrText(dst []byte, v *slog.Value) []byte {
	switch v.Kind() {
	case slog.KindString:
		s := v.String()
		return unsafe.Slice(unsafe.StringData(s), len(s))
	case slog.KindInt64:
		return strconv.AppendInt(dst, v.Int64(), 10)
	case slog.KindUint64:
		return strconv.AppendUint(dst, v.Uint64(), 10)
	case slog.KindBool:
		return strconv.AppendBool(dst, v.Bool())
	}
	return append(dst, v.String()...)
}

// asString returns b as a string without a copy. The caller must not keep the string after b
// changes.
func asString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

const (
	levelField   = "level"
	messageField = "msg"
)
