package encode

import (
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"
)

// Values renders single attributes as [JSON] renders them among others, for
// encoders in other packages that arrange records in their own way. It is
// immutable and safe for concurrent use.
type Values struct{ e *encoder }

// NewValues returns Values that follow o; nil means the defaults of [JSON].
// ReplaceAttr and the built-in keys are not used. Errors are rendered by
// [Values.AppendError] and, where they lie within other values, as their message.
func NewValues(o *JSONOptions) *Values {
	var own JSONOptions
	if o != nil {
		own = *o
	}
	own.ReplaceAttr, own.Errors = nil, ErrorText
	return &Values{JSON(&own).(*encoder)}
}

// AppendString appends s as a JSON string, as [JSON] writes it.
func AppendString(dst []byte, s string) []byte { return appendString(dst, s) }

// AppendEscaped appends s as the inside of a JSON string, without the quotes.
func AppendEscaped(dst []byte, s string) []byte { return appendEscaped(dst, s) }

// AppendUint appends v in decimal.
func AppendUint(dst []byte, v uint64) []byte { return appendUint(dst, v) }

// AppendKey appends a key of a JSON object with the colon and, unless dst ends
// where the object begins, the comma before it. dst must not be empty.
func AppendKey(dst []byte, key string) []byte { return appendKeyJSON(dst, key) }

// AppendMember appends key and value as a member of the JSON object that dst ends
// in, with the comma before it where one is due. value must be resolved and no
// group. r lends its cache of formatted seconds; it may be nil.
func (v *Values) AppendMember(dst []byte, r *Record, key string, value slog.Value) []byte {
	switch value.Kind() {
	case slog.KindString:
		return appendString(appendKeyJSON(dst, key), value.String())
	case slog.KindInt64:
		return appendInt(appendKeyJSON(dst, key), value.Int64())
	case slog.KindUint64:
		return appendUint(appendKeyJSON(dst, key), value.Uint64())
	case slog.KindBool:
		return appendBool(appendKeyJSON(dst, key), value.Bool())
	case slog.KindFloat64:
		return v.leaf(nil).float(appendKeyJSON(dst, key), value.Float64(), 64)
	case slog.KindAny:
		x := value.Any()
		if isUUID(x) {
			dst = append(appendKeyJSON(dst, key), '"')
			return append(appendUUID(dst, x), '"')
		}
		w := walker{leaf: v.leaf(r), scope: v.e.root}
		return w.any(dst, key, x)
	}
	return v.leaf(r).scalar(appendKeyJSON(dst, key), value)
}

// AppendText appends value as it stands in a JSON record, a string without its
// quotes and escapes: what a label or a header of that value is. Errors are their
// message. value must be resolved and no group. The text is valid UTF-8.
func (v *Values) AppendText(dst []byte, r *Record, value slog.Value) []byte {
	switch value.Kind() {
	case slog.KindString:
		return appendValid(dst, value.String())
	case slog.KindAny:
		x := value.Any()
		if isUUID(x) {
			return appendUUID(dst, x)
		}
		if err, ok := x.(error); ok {
			return appendValid(dst, message(err))
		}
	}
	start := len(dst)
	dst = append(dst, '{')
	inside := len(dst)
	dst = v.AppendMember(dst, r, "", value)
	const head = `"":`
	text := dst[min(inside+len(head), len(dst)):]
	if len(text) > 1 && text[0] == '"' {
		var s string
		if json.Unmarshal(text, &s) == nil {
			return append(dst[:start], s...)
		}
	}
	return dst[:start+copy(dst[start:], text)]
}

func appendValid(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\ufffd")
	}
	return append(dst, s...)
}

func (v *Values) leaf(r *Record) leaf {
	l := leaf{e: v.e, form: formJSON}
	if r != nil {
		l.tc = &r.cache
	}
	return l
}

// uuidTypes says which types are arrays of 16 bytes that call themselves UUIDs
// and have a text of their own; all such types agree on the form.
var uuidTypes sync.Map // reflect.Type → bool

func isUUID(x any) bool {
	t := reflect.TypeOf(x)
	if t == nil || t.Kind() != reflect.Array || t.Len() != 16 || t.Elem().Kind() != reflect.Uint8 {
		return false
	}
	if known, ok := uuidTypes.Load(t); ok {
		return known.(bool)
	}
	name := strings.ToLower(t.Name())
	_, text := x.(encoding.TextMarshaler)
	_, str := x.(fmt.Stringer)
	is := (text || str) && (strings.Contains(name, "uuid") || strings.Contains(name, "guid"))
	uuidTypes.Store(t, is)
	return is
}

// appendUUID appends an array of 16 bytes as RFC 9562 section 4 has it.
func appendUUID(dst []byte, x any) []byte {
	const hex = "0123456789abcdef"
	// An array of 16 bytes lies behind the second word of the interface. Reflection
	// would ask for each byte by itself, which takes longer than all the rest.
	u := (*[16]byte)((*[2]unsafe.Pointer)(unsafe.Pointer(&x))[1])
	for i, b := range u {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, hex[b>>4], hex[b&15])
	}
	return dst
}

// AppendEscapedBytes is [AppendEscaped] for bytes. They must not change meanwhile.
func AppendEscapedBytes(dst, b []byte) []byte {
	return appendEscaped(dst, unsafe.String(unsafe.SliceData(b), len(b))) // appendEscaped keeps nothing of it
}
