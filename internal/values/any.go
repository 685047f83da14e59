package values

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// AttrAppender has the methods of encode.AttrAppender. Package encode imports this package, so it
// cannot be used here.
type AttrAppender interface {
	AppendAttrs(dst []slog.Attr) []slog.Attr
}

// Any appends an attribute whose value has the kind slog.KindAny.
func (w *Walker) Any(dst []byte, key string, v any) []byte {
	if l := w.Style.Labels; l != nil {
		switch v.(type) {
		case AttrAppender, error:
		default:
			dst = w.key(dst, key)
			start := len(dst)
			return w.replace(l.Values.AppendText(dst, w.cache(), slog.AnyValue(v)), start, start)
		}
	}
	switch v := v.(type) {
	case nil:
		return w.null(w.key(dst, key))
	case *slog.Source:
		return w.source(dst, key, v)
	case slog.Level:
		return w.levelOf(w.key(dst, key), v)
	case []string:
		return list(w.Leaf, w.key(dst, key), v, Leaf.text)
	case *[]string:
		return list(w.Leaf, w.key(dst, key), deref(v), Leaf.text)
	case []int:
		return w.ints(w.key(dst, key), v)
	case *[]int:
		return w.ints(w.key(dst, key), deref(v))
	case []time.Time:
		return list(w.Leaf, w.key(dst, key), v, timeOf)
	case *[]time.Time:
		return list(w.Leaf, w.key(dst, key), deref(v), timeOf)
	case []byte:
		return w.bytes(w.key(dst, key), v)
	case json.RawMessage:
		if json.Valid(v) && utf8.Valid(v) && !bytes.ContainsAny(v, "\r\n") { // the JSON is written unchanged, including its spaces
			dst = w.key(dst, key)
			return w.quote(append(dst, v...), len(dst))
		}
	case Object:
		return w.composite(w.key(dst, key), v, nil)
	case *KnownError, *knownWrap, *knownJoin:
		return w.known(dst, key, v.(error))
	}
	switch s := shapeOf(v); {
	case s.errors.plain:
		return w.text(w.key(dst, key), message(v.(error)))
	case s.Methods&HasAppendAttrs != 0:
		return w.object(dst, key, v.(AttrAppender))
	case s.Methods&HasError != 0:
		return w.error(dst, key, v.(error))
	case w.Form != FormJSON && s.Methods&(HasMarshalText|HasString) != 0:
		return w.described(w.key(dst, key), v)
	}
	return w.composite(w.key(dst, key), v, nil)
}

func timeOf(l Leaf, dst []byte, v time.Time) []byte { return l.Time(dst, v, attrTime) }

// deref returns the slice that v points to, or nil if v is nil.
func deref[T any](v *[]T) []T {
	if v == nil {
		return nil
	}
	return *v
}

// ints is like list, for []int, the most common type. It avoids a function value, which would be
// called for each element.
func (l Leaf) ints(dst []byte, v []int) []byte {
	if v == nil {
		return l.null(dst)
	}
	dst = append(dst, '[')
	for i, e := range v {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsontext.AppendInt(dst, int64(e))
	}
	return append(dst, ']')
}

// list appends the elements as a JSON array. In formats without arrays, the array is in a string.
func list[T any](l Leaf, dst []byte, v []T, elem func(Leaf, []byte, T) []byte) []byte {
	if v == nil {
		return l.null(dst)
	}
	start := len(dst)
	in := l
	in.Form = FormJSON
	dst = append(dst, '[')
	for i := range v {
		dst = elem(in, jsontext.Comma(dst), v[i])
	}
	return l.quote(append(dst, ']'), start)
}

// bytes appends b. In JSON it appends base64, like encoding/json; in the text formats it appends
// text.
func (l Leaf) bytes(dst, b []byte) []byte {
	if l.Form != FormJSON {
		return l.text(dst, string(b))
	}
	if b == nil {
		return l.null(dst)
	}
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}
