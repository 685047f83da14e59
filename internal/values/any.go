package values

import (
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"reflect"
	"time"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// AttrAppender is the interface of the same name in package encode.
type AttrAppender interface {
	AppendAttrs(dst []slog.Attr) []slog.Attr
}

// Any appends an attribute whose value is none of slog's own kinds.
func (w *Walker) Any(dst []byte, key string, v any) []byte {
	switch v := v.(type) {
	case nil:
		return w.null(w.key(dst, key))
	case *slog.Source:
		return w.source(dst, key, v)
	case slog.Level:
		return w.levelOf(w.key(dst, key), v)
	case []any, map[string]any, map[string]error, map[string]time.Duration, Rendered:
		return w.typed(w.key(dst, key), v)
	case []string:
		return list(w.Leaf, w.key(dst, key), v, Leaf.text)
	case *[]string:
		return list(w.Leaf, w.key(dst, key), at(v), Leaf.text)
	case []int:
		return integers(w.Leaf, w.key(dst, key), v)
	case *[]int:
		return integers(w.Leaf, w.key(dst, key), at(v))
	case []int64:
		return integers(w.Leaf, w.key(dst, key), v)
	case *[]int64:
		return integers(w.Leaf, w.key(dst, key), at(v))
	case []int32:
		return integers(w.Leaf, w.key(dst, key), v)
	case *[]int32:
		return integers(w.Leaf, w.key(dst, key), at(v))
	case []uint:
		return naturals(w.Leaf, w.key(dst, key), v)
	case *[]uint:
		return naturals(w.Leaf, w.key(dst, key), at(v))
	case []uint64:
		return naturals(w.Leaf, w.key(dst, key), v)
	case *[]uint64:
		return naturals(w.Leaf, w.key(dst, key), at(v))
	case []uint32:
		return naturals(w.Leaf, w.key(dst, key), v)
	case *[]uint32:
		return naturals(w.Leaf, w.key(dst, key), at(v))
	case []float64:
		return list(w.Leaf, w.key(dst, key), v, float64Of)
	case *[]float64:
		return list(w.Leaf, w.key(dst, key), at(v), float64Of)
	case []float32:
		return list(w.Leaf, w.key(dst, key), v, float32Of)
	case *[]float32:
		return list(w.Leaf, w.key(dst, key), at(v), float32Of)
	case []bool:
		return list(w.Leaf, w.key(dst, key), v, boolOf)
	case *[]bool:
		return list(w.Leaf, w.key(dst, key), at(v), boolOf)
	case []time.Duration:
		return list(w.Leaf, w.key(dst, key), v, Leaf.duration)
	case *[]time.Duration:
		return list(w.Leaf, w.key(dst, key), at(v), Leaf.duration)
	case []time.Time:
		return list(w.Leaf, w.key(dst, key), v, timeOf)
	case *[]time.Time:
		return list(w.Leaf, w.key(dst, key), at(v), timeOf)
	case []error:
		return list(w.Leaf, w.key(dst, key), v, errorOf)
	case *[]error:
		return list(w.Leaf, w.key(dst, key), at(v), errorOf)
	case []byte:
		return w.bytes(w.key(dst, key), v)
	case *[]byte:
		if v == nil {
			return w.null(w.key(dst, key))
		}
		return w.bytes(w.key(dst, key), *v)
	case *string:
		return pointed(w.Leaf, w.key(dst, key), v, Leaf.text)
	case *int:
		return pointed(w.Leaf, w.key(dst, key), v, integer)
	case *int64:
		return pointed(w.Leaf, w.key(dst, key), v, integer)
	case *int32:
		return pointed(w.Leaf, w.key(dst, key), v, integer)
	case *uint:
		return pointed(w.Leaf, w.key(dst, key), v, natural)
	case *uint64:
		return pointed(w.Leaf, w.key(dst, key), v, natural)
	case *uint32:
		return pointed(w.Leaf, w.key(dst, key), v, natural)
	case *float64:
		return pointed(w.Leaf, w.key(dst, key), v, float64Of)
	case *bool:
		return pointed(w.Leaf, w.key(dst, key), v, boolOf)
	case *time.Duration:
		return pointed(w.Leaf, w.key(dst, key), v, Leaf.duration)
	case *time.Time:
		return pointed(w.Leaf, w.key(dst, key), v, timeOf)
	case json.RawMessage:
		return w.raw(w.key(dst, key), v)
	case *json.RawMessage:
		if v == nil {
			return w.null(w.key(dst, key))
		}
		return w.raw(w.key(dst, key), *v)
	case *KnownError:
		return w.known(dst, key, v)
	case *knownWrap:
		return w.known(dst, key, &v.KnownError)
	case *knownJoin:
		return w.known(dst, key, &v.KnownError)
	}
	if reflect.TypeOf(v) == plainError {
		return w.text(w.key(dst, key), message(v.(error)))
	}
	if o, ok := v.(AttrAppender); ok {
		return w.object(dst, key, o)
	}
	if err, ok := v.(error); ok {
		return w.error(dst, key, err)
	}
	return w.other(w.key(dst, key), v)
}

// The functions below append list elements and pointer targets.
func integer[I int | int32 | int64](_ Leaf, dst []byte, v I) []byte {
	return jsontext.AppendInt(dst, int64(v))
}

func natural[U uint | uint32 | uint64](_ Leaf, dst []byte, v U) []byte {
	return jsontext.AppendUint(dst, uint64(v))
}

func float64Of(l Leaf, dst []byte, v float64) []byte { return l.float(dst, v, 64) }

func float32Of(l Leaf, dst []byte, v float32) []byte { return l.float(dst, float64(v), 32) }

func boolOf(_ Leaf, dst []byte, v bool) []byte { return jsontext.AppendBool(dst, v) }

func timeOf(l Leaf, dst []byte, v time.Time) []byte { return l.Time(dst, v, attrTime) }

func errorOf(l Leaf, dst []byte, v error) []byte {
	if v == nil {
		return l.null(dst)
	}
	return l.text(dst, message(v))
}

func pointed[T any](l Leaf, dst []byte, v *T, elem func(Leaf, []byte, T) []byte) []byte {
	if v == nil {
		return l.null(dst)
	}
	return elem(l, dst, *v)
}

// at returns the slice that v points to, or nil if v is nil.
func at[T any](v *[]T) []T {
	if v == nil {
		return nil
	}
	return *v
}

// integers and naturals are versions of list for the most common element types. They avoid
// a call through a function value for each element.
func integers[I int | int32 | int64](l Leaf, dst []byte, v []I) []byte {
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

func naturals[U uint | uint32 | uint64](l Leaf, dst []byte, v []U) []byte {
	if v == nil {
		return l.null(dst)
	}
	dst = append(dst, '[')
	for i, e := range v {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsontext.AppendUint(dst, uint64(e))
	}
	return append(dst, ']')
}

// list appends the elements as a JSON array. Forms without arrays write the same array as a
// string.
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

// bytes appends b in base64, as encoding/json does, or as text.
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
