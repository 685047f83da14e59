package encode

import (
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"reflect"
	"time"
)

// An AttrAppender is a value that logs as a group of attributes.
//
// It does what a [slog.LogValuer] that returns a group does, without the
// allocations: dst has room to spare and is used again. AppendAttrs appends to
// dst and returns the result, and keeps neither. To log such a value without an
// allocation, hand in a pointer: slog.Any("user", &user). Slices of
// AttrAppenders, and pointers to them, are written as arrays in JSON. A value
// that is a LogValuer as well is asked as that.
type AttrAppender interface {
	AppendAttrs(dst []slog.Attr) []slog.Attr
}

// any appends an attribute whose value is none of slog's own kinds.
func (w *walker) any(dst []byte, key string, v any) []byte {
	switch v := v.(type) {
	case nil:
		return w.null(w.key(dst, key))
	case *slog.Source:
		return w.source(dst, key, v)
	case slog.Level:
		return w.level(w.key(dst, key), v)
	case []string:
		return list(w.leaf, w.key(dst, key), v, leaf.text)
	case *[]string:
		return list(w.leaf, w.key(dst, key), at(v), leaf.text)
	case []int:
		return integers(w.leaf, w.key(dst, key), v)
	case *[]int:
		return integers(w.leaf, w.key(dst, key), at(v))
	case []int64:
		return integers(w.leaf, w.key(dst, key), v)
	case *[]int64:
		return integers(w.leaf, w.key(dst, key), at(v))
	case []int32:
		return integers(w.leaf, w.key(dst, key), v)
	case *[]int32:
		return integers(w.leaf, w.key(dst, key), at(v))
	case []uint:
		return naturals(w.leaf, w.key(dst, key), v)
	case *[]uint:
		return naturals(w.leaf, w.key(dst, key), at(v))
	case []uint64:
		return naturals(w.leaf, w.key(dst, key), v)
	case *[]uint64:
		return naturals(w.leaf, w.key(dst, key), at(v))
	case []uint32:
		return naturals(w.leaf, w.key(dst, key), v)
	case *[]uint32:
		return naturals(w.leaf, w.key(dst, key), at(v))
	case []float64:
		return list(w.leaf, w.key(dst, key), v, float64Of)
	case *[]float64:
		return list(w.leaf, w.key(dst, key), at(v), float64Of)
	case []float32:
		return list(w.leaf, w.key(dst, key), v, float32Of)
	case *[]float32:
		return list(w.leaf, w.key(dst, key), at(v), float32Of)
	case []bool:
		return list(w.leaf, w.key(dst, key), v, boolOf)
	case *[]bool:
		return list(w.leaf, w.key(dst, key), at(v), boolOf)
	case []time.Duration:
		return list(w.leaf, w.key(dst, key), v, leaf.duration)
	case *[]time.Duration:
		return list(w.leaf, w.key(dst, key), at(v), leaf.duration)
	case []time.Time:
		return list(w.leaf, w.key(dst, key), v, timeOf)
	case *[]time.Time:
		return list(w.leaf, w.key(dst, key), at(v), timeOf)
	case []error:
		return list(w.leaf, w.key(dst, key), v, errorOf)
	case *[]error:
		return list(w.leaf, w.key(dst, key), at(v), errorOf)
	case []byte:
		return w.bytes(w.key(dst, key), v)
	case *[]byte:
		if v == nil {
			return w.null(w.key(dst, key))
		}
		return w.bytes(w.key(dst, key), *v)
	case *string:
		return pointed(w.leaf, w.key(dst, key), v, leaf.text)
	case *int:
		return pointed(w.leaf, w.key(dst, key), v, integer)
	case *int64:
		return pointed(w.leaf, w.key(dst, key), v, integer)
	case *int32:
		return pointed(w.leaf, w.key(dst, key), v, integer)
	case *uint:
		return pointed(w.leaf, w.key(dst, key), v, natural)
	case *uint64:
		return pointed(w.leaf, w.key(dst, key), v, natural)
	case *uint32:
		return pointed(w.leaf, w.key(dst, key), v, natural)
	case *float64:
		return pointed(w.leaf, w.key(dst, key), v, float64Of)
	case *bool:
		return pointed(w.leaf, w.key(dst, key), v, boolOf)
	case *time.Duration:
		return pointed(w.leaf, w.key(dst, key), v, leaf.duration)
	case *time.Time:
		return pointed(w.leaf, w.key(dst, key), v, timeOf)
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
		if _, own := v.(json.Marshaler); !own || w.e.form != formJSON {
			return w.error(dst, key, err)
		}
	}
	return w.other(w.key(dst, key), v)
}

// The elements of lists and what pointers point to.
func integer[I int | int32 | int64](_ leaf, dst []byte, v I) []byte {
	return appendInt(dst, int64(v))
}
func natural[U uint | uint32 | uint64](_ leaf, dst []byte, v U) []byte {
	return appendUint(dst, uint64(v))
}
func float64Of(l leaf, dst []byte, v float64) []byte { return l.float(dst, v, 64) }
func float32Of(l leaf, dst []byte, v float32) []byte { return l.float(dst, float64(v), 32) }
func boolOf(_ leaf, dst []byte, v bool) []byte       { return appendBool(dst, v) }
func timeOf(l leaf, dst []byte, v time.Time) []byte  { return l.time(dst, v, attrTime) }
func errorOf(l leaf, dst []byte, v error) []byte {
	if v == nil {
		return l.null(dst)
	}
	return l.text(dst, message(v))
}

func pointed[T any](l leaf, dst []byte, v *T, elem func(leaf, []byte, T) []byte) []byte {
	if v == nil {
		return l.null(dst)
	}
	return elem(l, dst, *v)
}

// at returns the slice that v points to, which is nil if v is.
func at[T any](v *[]T) []T {
	if v == nil {
		return nil
	}
	return *v
}

// integers and naturals are list for the most common elements, without a call
// through a function value for each.
func integers[I int | int32 | int64](l leaf, dst []byte, v []I) []byte {
	if v == nil {
		return l.null(dst)
	}
	dst = append(dst, '[')
	for i, e := range v {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendInt(dst, int64(e))
	}
	return append(dst, ']')
}

func naturals[U uint | uint32 | uint64](l leaf, dst []byte, v []U) []byte {
	if v == nil {
		return l.null(dst)
	}
	dst = append(dst, '[')
	for i, e := range v {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendUint(dst, uint64(e))
	}
	return append(dst, ']')
}

// list appends the elements as a JSON array. The forms that have no arrays
// write the same as a string.
func list[T any](l leaf, dst []byte, v []T, elem func(leaf, []byte, T) []byte) []byte {
	if v == nil {
		return l.null(dst)
	}
	start := len(dst)
	in := l
	in.form = formJSON
	dst = append(dst, '[')
	for i := range v {
		dst = elem(in, comma(dst), v[i])
	}
	return l.quote(append(dst, ']'), start)
}

// bytes appends b in base64, as encoding/json does, or as text.
func (l leaf) bytes(dst, b []byte) []byte {
	if l.form != formJSON {
		return l.text(dst, string(b))
	}
	if b == nil {
		return l.null(dst)
	}
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}
