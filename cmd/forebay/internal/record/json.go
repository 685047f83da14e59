package record

import (
	"encoding/json"
	"log/slog"
)

// members calls yield with each key and value of a JSON object, in order and as
// they are written, until yield returns false. obj must be valid.
func members(obj []byte, yield func(key, value []byte) bool) {
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
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// skip returns the index behind the value that begins at i.
func skip(b []byte, i int) int {
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

// jsonAttrs returns the members of a valid object as attributes: strings as
// what they say, objects as groups, and everything else (numbers, lists) as the
// text that stands there, so that no digit changes.
func jsonAttrs(obj []byte) []slog.Attr {
	var attrs []slog.Attr
	members(obj, func(key, value []byte) bool {
		a := slog.Attr{Key: unescape(key)}
		switch {
		case value[0] == '"':
			a.Value = slog.StringValue(unescape(value))
		case value[0] == '{' && value[space(value, 1)] != '}':
			a.Value = slog.GroupValue(jsonAttrs(value)...)
		default:
			a.Value = slog.StringValue(string(value))
		}
		attrs = append(attrs, a)
		return true
	})
	return attrs
}

// unescape returns what a JSON string says.
func unescape(quoted []byte) string {
	for _, c := range quoted {
		if c == '\\' {
			var s string
			if err := json.Unmarshal(quoted, &s); err == nil {
				return s
			}
			break
		}
	}
	return string(unquoted(quoted))
}
