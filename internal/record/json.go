package record

import (
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// text is a line, or a part of one.
type text interface{ []byte | string }

// members calls yield with each key and value of a JSON object, in order and as
// they are written, until yield returns false. obj must be valid.
func members[T text](obj T, yield func(key, value T) bool) {
	i := space(obj, 0) + 1 // behind '{'
	for {
		i = space(obj, i)
		if i >= len(obj) || obj[i] == '}' {
			return
		}
		if obj[i] == ',' {
			i = space(obj, i+1)
		}
		k := skip(obj, i)
		key := obj[i:k]
		i = space(obj, space(obj, k)+1) // behind ':'
		v := skip(obj, i)
		if !yield(key, obj[i:v]) {
			return
		}
		i = v
	}
}

// space returns the index of the first byte at or behind i that is no space.
func space[T text](b T, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// skip returns the index behind the value that begins at i.
func skip[T text](b T, i int) int {
	switch b[i] {
	case '"':
		for i++; b[i] != '"'; i++ {
			if b[i] == '\\' {
				i++
			}
		}
		return i + 1
	case '{', '[':
		depth := 0
		for {
			switch b[i] {
			case '"':
				i = skip(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
	}
	for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] != ' ' && b[i] != '\t' && b[i] != '\r' && b[i] != '\n' {
		i++
	}
	return i
}

// Attrs returns the members of a valid object as attributes, in their order: objects as
// groups, lists as the JSON that stands there, and numbers so that no digit changes.
func Attrs(obj []byte) []slog.Attr {
	return attrsOf(string(obj)) // one copy, of which names and texts are parts
}

func attrsOf(obj string) []slog.Attr {
	attrs := make([]slog.Attr, 0, 8)
	members(obj, func(key, value string) bool {
		a := slog.Attr{Key: unescape(key)}
		switch {
		case value[0] == '"':
			a.Value = slog.StringValue(unescape(value))
		case value[0] == '{' && value[space(value, 1)] != '}':
			a.Value = slog.GroupValue(attrsOf(value)...)
		case value[0] == 't' || value[0] == 'f':
			a.Value = slog.BoolValue(value[0] == 't')
		case value[0] == '-' || isDigit(value[0]):
			a.Value = number(value)
		default:
			a.Value = slog.AnyValue(json.RawMessage(value))
		}
		attrs = append(attrs, a)
		return true
	})
	return attrs
}

// number returns the number that s is written as, with a Kind of its own if the encoders
// write that in the same way.
func number(s string) slog.Value {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && s != "-0" {
		return slog.Int64Value(n)
	}
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		return slog.Uint64Value(n)
	}
	f, err := strconv.ParseFloat(s, 64)
	if err == nil && string(jsontext.AppendFloat(nil, f, 64)) == s {
		return slog.Float64Value(f)
	}
	return slog.AnyValue(json.Number(s))
}

// unescape returns what a valid JSON string says.
func unescape(quoted string) string {
	s := unquoted(quoted)
	if strings.IndexByte(s, '\\') >= 0 {
		return string(jsontext.AppendUnescaped(nil, []byte(s)))
	}
	return s
}
