package values

import (
	"encoding/json"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// Values renders single attributes as a [Walker] renders them among others, for
// encoders in other packages that arrange records in their own way. It is
// immutable and safe for concurrent use.
type Values struct {
	Style
	errors Style // the same, with the form of errors
}

// NewValues returns Values of that style, in JSON; times are in UTC. The form of errors
// is that of [Values.AppendError]. Within other values errors are their message.
//
// Unlike in JSON, what lies within others, in lists, maps and the fields of structs, is
// what it is by itself: errors, durations, times, levels, UUIDs, NaN. All else is what
// encoding/json makes of it, with its tags, and types that write themselves
// (json.Marshaler, encoding.TextMarshaler) do.
func NewValues(s Style) *Values {
	s.Form, s.Replace, s.typed = FormJSON, nil, true
	s.Time.Loc = time.UTC
	v := &Values{s, s}
	v.Style.Errors = ErrorText
	return v
}

// AppendMember appends key and value as a member of the JSON object that dst ends
// in, with the comma before it where one is due. value must be resolved and no
// group. c may be nil.
func (v *Values) AppendMember(dst []byte, c *Cache, key string, value slog.Value) []byte {
	switch value.Kind() {
	case slog.KindString:
		return jsontext.AppendString(jsontext.AppendKey(dst, key), value.String())
	case slog.KindInt64:
		return jsontext.AppendInt(jsontext.AppendKey(dst, key), value.Int64())
	case slog.KindUint64:
		return jsontext.AppendUint(jsontext.AppendKey(dst, key), value.Uint64())
	case slog.KindBool:
		return jsontext.AppendBool(jsontext.AppendKey(dst, key), value.Bool())
	case slog.KindFloat64:
		return v.leaf(nil).float(jsontext.AppendKey(dst, key), value.Float64(), 64)
	case slog.KindAny:
		x := value.Any()
		if isUUID(x) {
			dst = append(jsontext.AppendKey(dst, key), '"')
			return append(appendUUID(dst, x), '"')
		}
		w := Walker{Leaf: v.leaf(c), In: &outermost}
		return w.Any(dst, key, x)
	}
	return v.leaf(c).Scalar(jsontext.AppendKey(dst, key), value)
}

// AppendValue appends value as JSON, as [Values.AppendMember] does, without a key.
// Errors are their message, an [AttrAppender] without attributes is {}. value must be
// resolved.
func (v *Values) AppendValue(dst []byte, c *Cache, value slog.Value) []byte {
	switch value.Kind() {
	case slog.KindGroup:
		w := Walker{Leaf: v.leaf(c), In: &outermost}
		return w.members(dst, value.Group())
	case slog.KindAny:
		if err, ok := value.Any().(error); ok {
			return jsontext.AppendString(dst, message(err))
		}
	}
	start := len(dst)
	dst = v.AppendMember(append(dst, '{'), c, anyName, value)
	if len(dst) == start+1 {
		return append(dst, '}')
	}
	return append(dst[:start], dst[start+1+len(anyHead):]...)
}

// anyName is the key of a member that is cut out of its object again, with what
// stands there. It is not empty: the attributes of a group without a name would stand
// there themselves.
const (
	anyName = "v"
	anyHead = `"` + anyName + `":`
)

// Rendered is a value as [Values.AppendValue] has rendered it, for those who need it in
// several places: in place of the value it is what that would be.
type Rendered []byte

// Asks reports whether to render x means to call methods that should be called once for
// a record, Error or AppendAttrs: its own, or those of what lies in it, or may. It goes by
// the type of x.
func (v *Values) Asks(x any) bool {
	typ := uintptr((*[2]unsafe.Pointer)(unsafe.Pointer(&x))[0])
	known := &asking[(typ>>5^typ>>11)%uintptr(len(asking))]
	if k := known.Load(); k&^1 == typ {
		return k&1 != 0
	}
	asks := asksByType(x)
	if typ&1 == 0 {
		if asks {
			typ |= 1
		}
		known.Store(typ)
	}
	return asks
}

// asking remembers the answers of Asks as uuids does those of isUUID.
var asking [64]atomic.Uintptr

func asksByType(x any) bool {
	switch x.(type) {
	case nil, Rendered:
		return false
	case slog.LogValuer, error, AttrAppender:
		return true
	}
	t := reflect.TypeOf(x)
	tr := TraitsOf(t)
	return tr.objects != notObjects || tr.tree(t).asks
}

// AppendText appends value as it stands in a JSON record, a string without its
// quotes and escapes: what a label or a header of that value is. Errors are their
// message. value must be resolved and no group. The text is valid UTF-8.
func (v *Values) AppendText(dst []byte, c *Cache, value slog.Value) []byte {
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
	dst = v.AppendValue(dst, c, value)
	text := dst[start:]
	if len(text) > 1 && text[0] == '"' {
		var s string
		if json.Unmarshal(text, &s) == nil {
			return append(dst[:start], s...)
		}
	}
	return dst
}

func appendValid(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\ufffd")
	}
	return append(dst, s...)
}

func (v *Values) leaf(c *Cache) Leaf {
	return Leaf{&v.Style, c, FormJSON}
}

// AppendMembers appends attrs as members of the JSON object that dst ends in, from
// the first one on as long as their values are strings, numbers, booleans or UUIDs,
// and returns how many it has appended; the one behind them is for [Values.AppendMember]
// or for the caller. nested says that the object itself stands in a JSON string, so
// that everything is escaped once more: what is appended is what [EscapeTail] would
// make of the members.
func (v *Values) AppendMembers(dst []byte, attrs []slog.Attr, nested bool) ([]byte, int) {
	if nested {
		return v.appendNested(dst, attrs)
	}
	for i := range attrs {
		a := &attrs[i]
		switch a.Value.Kind() {
		case slog.KindString:
			dst = jsontext.AppendString(jsontext.AppendKey(dst, a.Key), a.Value.String())
		case slog.KindInt64:
			dst = jsontext.AppendInt(jsontext.AppendKey(dst, a.Key), a.Value.Int64())
		case slog.KindUint64:
			dst = jsontext.AppendUint(jsontext.AppendKey(dst, a.Key), a.Value.Uint64())
		case slog.KindBool:
			dst = jsontext.AppendBool(jsontext.AppendKey(dst, a.Key), a.Value.Bool())
		case slog.KindFloat64:
			f := a.Value.Float64()
			if f-f != 0 {
				return dst, i
			}
			dst = jsontext.AppendFloat(jsontext.AppendKey(dst, a.Key), f, 64)
		case slog.KindAny:
			x := a.Value.Any()
			if !isUUID(x) {
				return dst, i
			}
			dst = append(jsontext.AppendKey(dst, a.Key), '"')
			dst = append(appendUUID(dst, x), '"')
		default:
			return dst, i
		}
	}
	return dst, len(attrs)
}

func (v *Values) appendNested(dst []byte, attrs []slog.Attr) ([]byte, int) {
	for i := range attrs {
		a := &attrs[i]
		switch a.Value.Kind() {
		case slog.KindString:
			dst = jsontext.AppendStringNested(jsontext.AppendKeyNested(dst, a.Key), a.Value.String())
		case slog.KindInt64:
			dst = jsontext.AppendInt(jsontext.AppendKeyNested(dst, a.Key), a.Value.Int64())
		case slog.KindUint64:
			dst = jsontext.AppendUint(jsontext.AppendKeyNested(dst, a.Key), a.Value.Uint64())
		case slog.KindBool:
			dst = jsontext.AppendBool(jsontext.AppendKeyNested(dst, a.Key), a.Value.Bool())
		case slog.KindFloat64:
			f := a.Value.Float64()
			if f-f != 0 {
				return dst, i
			}
			dst = jsontext.AppendFloat(jsontext.AppendKeyNested(dst, a.Key), f, 64)
		case slog.KindAny:
			x := a.Value.Any()
			if !isUUID(x) {
				return dst, i
			}
			dst = append(jsontext.AppendKeyNested(dst, a.Key), '\\', '"')
			dst = append(appendUUID(dst, x), '\\', '"')
		default:
			return dst, i
		}
	}
	return dst, len(attrs)
}
