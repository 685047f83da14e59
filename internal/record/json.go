package record

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strconv"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// space returns the index of the first byte at or after b[i] that is not JSON white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// skip returns the index after the valid JSON value that begins at b[i].
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

// Attrs returns the members of a valid object as attributes, in order. Objects become groups, lists
// their JSON text, and numbers keep their digits. The attributes share no memory with obj.
func Attrs(obj []byte) []slog.Attr {
	return attrsAt(bytes.Clone(obj), space(obj, 0)) // one copy contains all names and texts
}

// attrsAt implements Attrs for the object at b[at:]. The attributes share the memory of b, which
// must not change afterwards.
func attrsAt(b []byte, at int) []slog.Attr {
	attrs := make([]slog.Attr, 0, 8)
	Members(b, at, func(m Member) bool {
		value := b[m.Value:m.End:m.End]
		a := slog.Attr{Key: asString(AppendString(nil, b[m.Key:m.KeyEnd]))}
		switch {
		case value[0] == '"':
			a.Value = slog.StringValue(asString(AppendString(nil, value)))
		case value[0] == '{' && value[space(value, 1)] != '}':
			a.Value = slog.GroupValue(attrsAt(b, m.Value)...)
		case value[0] == 't' || value[0] == 'f':
			a.Value = slog.BoolValue(value[0] == 't')
		case value[0] == '-' || isDigit(value[0]):
			a.Value = number(asString(value))
		default:
			a.Value = slog.AnyValue(json.RawMessage(value))
		}
		attrs = append(attrs, a)
		return true
	})
	return attrs
}

// number returns the value of the JSON number s. Its Kind is numeric only if the encoders write the
// same digits.
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
