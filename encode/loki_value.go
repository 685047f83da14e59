package encode

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"time"
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
//
// Unlike in JSON, what lies within others, in lists, maps and the fields of structs, is
// what it is by itself: errors, durations, times, levels, UUIDs, NaN. All else is what
// encoding/json makes of it, with its tags, and types that write themselves
// (json.Marshaler, encoding.TextMarshaler) do.
func NewValues(o *JSONOptions) *Values {
	var own JSONOptions
	if o != nil {
		own = *o
	}
	own.ReplaceAttr, own.Errors = nil, ErrorText
	e := JSON(&own).(*encoder)
	e.typed = true
	return &Values{e}
}

// AppendString appends s as a JSON string, as [JSON] writes it.
func AppendString(dst []byte, s string) []byte { return appendString(dst, s) }

// AppendEscaped appends s as the inside of a JSON string, without the quotes.
func AppendEscaped(dst []byte, s string) []byte { return appendEscaped(dst, s) }

// AppendUint appends v in decimal.
func AppendUint(dst []byte, v uint64) []byte { return appendUint(dst, v) }

// AppendUnixNano appends ns, a time in Unix nanoseconds, in decimal. What is before
// 1970 becomes 0.
func AppendUnixNano(dst []byte, ns int64) []byte {
	if ns < 1e18 {
		return appendUint(dst, uint64(max(ns, 0)))
	}
	// From 2001 on there are 19 digits.
	n := len(dst)
	dst = spare(dst, 24)[:n+19]
	sec := uint64(ns) / 1e9 // ten digits
	rest := uint32(uint64(ns) - sec*1e9)
	high := uint32(sec / 100)
	b := dst[n : n+19]
	binary.LittleEndian.PutUint64(b, digits8(high))
	low := 2 * (sec - uint64(high)*100)
	b[8], b[9] = pairs[low], pairs[low+1]
	q := rest / 10
	binary.LittleEndian.PutUint64(b[10:], digits8(q))
	b[18] = byte('0' + rest - q*10)
	return dst
}

// AppendKey appends a key of a JSON object with the colon and, unless dst ends
// where the object begins, the comma before it. dst must not be empty.
func AppendKey(dst []byte, key string) []byte { return appendKeyJSON(dst, key) }

// LogfmtKey returns key, or a part of one, as [Logfmt] writes it.
func LogfmtKey(key string) string {
	for i := range len(key) {
		if c := key[i]; c >= utf8.RuneSelf || classes[c] != classPlain {
			return string(appendName(nil, key))
		}
	}
	if key == "" {
		return "_"
	}
	return key
}

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
		switch x.(type) {
		case []any, map[string]any, map[string]error, map[string]time.Duration, Rendered:
			return v.leaf(r).typed(appendKeyJSON(dst, key), x)
		}
		w := walker{leaf: v.leaf(r), scope: v.e.root}
		return w.any(dst, key, x)
	}
	return v.leaf(r).scalar(appendKeyJSON(dst, key), value)
}

// AppendValue appends value as JSON, as [Values.AppendMember] does, without a key.
// Errors are their message, an [AttrAppender] without attributes is {}. value must be
// resolved and no group.
func (v *Values) AppendValue(dst []byte, r *Record, value slog.Value) []byte {
	if value.Kind() == slog.KindAny {
		if err, ok := value.Any().(error); ok {
			return appendString(dst, message(err))
		}
	}
	start := len(dst)
	dst = v.AppendMember(append(dst, '{'), r, anyName, value)
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
	case error, AttrAppender:
		return true
	}
	t := reflect.TypeOf(x)
	tr := traitsOf(t)
	return tr.objects != notObjects || tr.tree(t).asks
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
	dst = v.AppendValue(dst, r, value)
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

func (v *Values) leaf(r *Record) leaf {
	l := leaf{e: v.e, form: formJSON}
	if r != nil {
		l.tc = &r.cache
	}
	return l
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
			dst = appendString(appendKeyJSON(dst, a.Key), a.Value.String())
		case slog.KindInt64:
			dst = appendInt(appendKeyJSON(dst, a.Key), a.Value.Int64())
		case slog.KindUint64:
			dst = appendUint(appendKeyJSON(dst, a.Key), a.Value.Uint64())
		case slog.KindBool:
			dst = appendBool(appendKeyJSON(dst, a.Key), a.Value.Bool())
		case slog.KindFloat64:
			f := a.Value.Float64()
			if f-f != 0 {
				return dst, i
			}
			dst = appendFloat(appendKeyJSON(dst, a.Key), f, 64)
		case slog.KindAny:
			x := a.Value.Any()
			if !isUUID(x) {
				return dst, i
			}
			dst = append(appendKeyJSON(dst, a.Key), '"')
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
			dst = appendStringNested(appendKeyNested(dst, a.Key), a.Value.String())
		case slog.KindInt64:
			dst = appendInt(appendKeyNested(dst, a.Key), a.Value.Int64())
		case slog.KindUint64:
			dst = appendUint(appendKeyNested(dst, a.Key), a.Value.Uint64())
		case slog.KindBool:
			dst = appendBool(appendKeyNested(dst, a.Key), a.Value.Bool())
		case slog.KindFloat64:
			f := a.Value.Float64()
			if f-f != 0 {
				return dst, i
			}
			dst = appendFloat(appendKeyNested(dst, a.Key), f, 64)
		case slog.KindAny:
			x := a.Value.Any()
			if !isUUID(x) {
				return dst, i
			}
			dst = append(appendKeyNested(dst, a.Key), '\\', '"')
			dst = append(appendUUID(dst, x), '\\', '"')
		default:
			return dst, i
		}
	}
	return dst, len(attrs)
}

// appendKeyNested is appendKeyJSON within a JSON string.
func appendKeyNested(dst []byte, key string) []byte {
	n, j := len(key), len(dst)
	if n == 0 || n > 16 || cap(dst)-j < 24 {
		return appendAnyKeyNested(dst, key)
	}
	sep := byte(',')
	if last := dst[j-1]; last == ',' || last == '{' {
		sep = last
		j--
	}
	// As copyShort, but written out: this is the most frequent of all steps.
	b := (*[24]byte)(dst[j : j+24])
	b[0], b[1], b[2] = sep, '\\', '"'
	var m uint64
	switch {
	case n >= 8:
		v, w := load64(key), load64(key[n-8:])
		binary.LittleEndian.PutUint64(b[3:], v)
		binary.LittleEndian.PutUint64(b[n-5:], w)
		m = odd(v) | odd(w)
	case n >= 4:
		v, w := uint32(load32(key)), uint32(load32(key[n-4:]))
		binary.LittleEndian.PutUint32(b[3:], v)
		binary.LittleEndian.PutUint32(b[n-1:], w)
		m = odd(uint64(v) | uint64(w)<<32)
	default:
		v, w, x := key[0], key[n>>1], key[n-1]
		b[3], b[3+n>>1], b[2+n] = v, w, x
		m = odd(uint64(v) | uint64(w)<<8 | uint64(x)<<16 | 0x20202020_20000000)
	}
	if m&highs != 0 {
		return appendAnyKeyNested(dst, key)
	}
	b[n+3], b[n+4], b[n+5] = '\\', '"', ':'
	return dst[:j+n+6]
}

// appendAnyKeyNested is appendKeyNested for all keys.
func appendAnyKeyNested(dst []byte, key string) []byte {
	start := len(dst)
	return EscapeTail(appendAnyKey(spare(dst, 64), key), start)
}

// appendStringNested is appendString within a JSON string.
func appendStringNested(dst []byte, s string) []byte {
	n, j := len(s), len(dst)
	if n <= short {
		dst = spare(dst, short+4)
		b := (*[short + 4]byte)(dst[j : j+short+4])
		if copyShort((*[short]byte)(b[2:2+short]), s) == 0 {
			b[0], b[1], b[n+2], b[n+3] = '\\', '"', '\\', '"'
			return dst[:j+n+4]
		}
	}
	return append(AppendEscapedNested(append(dst, '\\', '"'), s), '\\', '"')
}

// AppendEscapedNested appends s as the inside of a JSON string that stands in a
// JSON string.
func AppendEscapedNested(dst []byte, s string) []byte {
	start := len(dst)
	if len(s) >= 8 && spanASCII(s) == len(s) {
		return append(dst, s...)
	}
	return EscapeTail(appendEscaped(dst, s), start)
}

// EscapeTail escapes what stands in dst from start on, which must be valid UTF-8,
// as the inside of a JSON string.
func EscapeTail(dst []byte, start int) []byte {
	tail := dst[start:]
	if bytes.IndexByte(tail, '"') < 0 && bytes.IndexByte(tail, '\\') < 0 && spanned(tail) {
		return dst
	}
	// It is appended once more behind itself and then moved.
	end := len(dst)
	dst = appendEscaped(dst, unsafe.String(unsafe.SliceData(tail), len(tail)))
	return dst[:start+copy(dst[start:], dst[end:])]
}

// spanned reports whether nothing in b has to be escaped, quotes and backslashes
// apart.
func spanned(b []byte) bool {
	for _, c := range b {
		if c < 0x20 || c >= 0x80 {
			return utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool { return r < 0x20 || r == 0x2028 || r == 0x2029 })
		}
	}
	return true
}

// uuids says for the types met lately whether they are arrays of 16 bytes that call
// themselves UUIDs and have a text of their own; all such types agree on the form.
// An entry is the address of a type, which ends in zeros, and the answer; types are
// never freed.
var uuids [64]atomic.Uintptr

func isUUID(x any) bool {
	typ := uintptr((*[2]unsafe.Pointer)(unsafe.Pointer(&x))[0])
	known := &uuids[(typ>>5^typ>>11)%uintptr(len(uuids))]
	if k := known.Load(); k&^1 == typ {
		return k&1 != 0
	}
	is := uuidByType(x)
	if typ&1 == 0 {
		if is {
			typ |= 1
		}
		known.Store(typ)
	}
	return is
}

func uuidByType(x any) bool {
	t := reflect.TypeOf(x)
	return t != nil && uuidType(t)
}

func uuidType(t reflect.Type) bool {
	if t.Kind() != reflect.Array || t.Len() != 16 || t.Elem().Kind() != reflect.Uint8 {
		return false
	}
	name := strings.ToLower(t.Name())
	return (t.Implements(textType) || t.Implements(stringerType)) && (strings.Contains(name, "uuid") || strings.Contains(name, "guid"))
}

var stringerType = reflect.TypeFor[fmt.Stringer]()

// hexPairs are the two digits of each byte.
var hexPairs = func() (t [256]uint16) {
	const hex = "0123456789abcdef"
	for i := range t {
		t[i] = uint16(hex[i>>4]) | uint16(hex[i&15])<<8
	}
	return t
}()

// appendUUID appends an array of 16 bytes as RFC 9562 section 4 has it.
func appendUUID(dst []byte, x any) []byte {
	// An array of 16 bytes lies behind the second word of the interface. Reflection
	// would ask for each byte by itself, which takes longer than all the rest.
	u := (*[16]byte)((*[2]unsafe.Pointer)(unsafe.Pointer(&x))[1])
	n := len(dst)
	dst = spare(dst, 36)[:n+36]
	b := (*[36]byte)(dst[n:])
	put := func(at int, c byte) { binary.LittleEndian.PutUint16(b[at:], hexPairs[c]) }
	put(0, u[0])
	put(2, u[1])
	put(4, u[2])
	put(6, u[3])
	put(9, u[4])
	put(11, u[5])
	put(14, u[6])
	put(16, u[7])
	put(19, u[8])
	put(21, u[9])
	put(24, u[10])
	put(26, u[11])
	put(28, u[12])
	put(30, u[13])
	put(32, u[14])
	put(34, u[15])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return dst
}

// AppendEscapedBytes is [AppendEscaped] for bytes. They must not change meanwhile.
func AppendEscapedBytes(dst, b []byte) []byte {
	return appendEscaped(dst, unsafe.String(unsafe.SliceData(b), len(b))) // appendEscaped keeps nothing of it
}
