package values

import (
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// Values encodes single attributes like a [Walker], for encoders of other packages with a different
// record layout. It is immutable and safe for concurrent use.
type Values struct {
	Style
	errors Style // Style with the error form, for AppendError
}

// NewValues returns Values that write JSON in style s, with times in UTC. The error form is
// used by [Values.AppendError]. Errors nested in other values are written as their message.
//
// Unlike in encoding/json, values nested in lists, maps and struct fields are written like
// top-level ones: errors, durations, times, levels, NaN. Everything else is written
// as by encoding/json, including field tags and the methods of json.Marshaler and
// encoding.TextMarshaler.
func NewValues(s Style) *Values {
	s.Form, s.Replace = FormJSON, nil
	s.Time.Loc = time.UTC
	v := &Values{s, s}
	v.Style.Errors = ErrorText
	return v
}

// AppendMember appends key and value as a member of the JSON object at the end of dst, preceded by
// a comma if needed. value must be resolved (see slog.Value.Resolve) and must not be a group. c may
// be nil.
func (v *Values) AppendMember(dst []byte, c *Cache, key string, value slog.Value) []byte {
	w := Walker{Leaf: v.leaf(c), In: &outermost}
	return w.AppendReplaced(dst, slog.Attr{Key: key, Value: value}, false)
}

// AppendValue appends value as JSON, like [Values.AppendMember] without a key. Errors are written
// as their message, and an [AttrAppender] without attributes is written as {}. value must be
// resolved.
func (v *Values) AppendValue(dst []byte, c *Cache, value slog.Value) []byte {
	w := Walker{Leaf: v.leaf(c), In: &outermost, bare: true}
	switch value.Kind() {
	case slog.KindGroup:
		return w.composite(dst, nil, value.Group())
	case slog.KindAny:
		if err, ok := value.Any().(error); ok {
			return jsontext.AppendString(dst, message(err))
		}
		const named = "v" // must not be empty, because the attributes of a group without a name are written without braces
		if out := w.Any(dst, named, value.Any()); len(out) > len(dst) {
			return out
		}
		return append(dst, "{}"...)
	}
	return w.Scalar(dst, value)
}

// Rendered is the result of [Values.AppendValue], for callers that need it in several places. An
// encoder writes it unchanged.
type Rendered []byte

// CallsMethods reports whether encoding x may call methods that should be called only once per
// record: Error or AppendAttrs of x or of a nested value. The result depends only on the type of x.
func (v *Values) CallsMethods(x any) bool {
	return x != nil && shapeOf(x).CallsMethods
}

// AppendText appends value as text for labels and headers. The text is as in a JSON record, but
// strings have no quotes and escapes, and errors are written as their message. value must be
// resolved and must not be a group. The text is valid UTF-8.
func (v *Values) AppendText(dst []byte, c *Cache, value slog.Value) []byte {
	switch value.Kind() {
	case slog.KindString:
		return appendValid(dst, value.String())
	case slog.KindAny:
		x := value.Any()
		if u := uuidOf(x); u != nil {
			return appendUUID(dst, u)
		}
		if err, ok := x.(error); ok {
			return appendValid(dst, message(err))
		}
	}
	start := len(dst)
	dst = v.AppendValue(dst, c, value)
	text := dst[start:]
	if text[0] == '"' {
		return jsontext.AppendUnescaped(dst[:start], text[1:len(text)-1]) // the result is not longer than text, so they may overlap
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

// AppendMembers appends attrs as members of the JSON object at the end of dst. It stops at the
// first value that is not a string, number, boolean or UUID, and returns the number of appended
// attributes. The caller appends that value, for example with [Values.AppendMember]. If nested is
// set, the object is inside a JSON string, so the members are escaped again, as [EscapeTail] does.
func (v *Values) AppendMembers(dst []byte, attrs []slog.Attr, nested bool) ([]byte, int) {
	for i := range attrs {
		a := &attrs[i]
		start := len(dst)
		if nested {
			dst = jsontext.AppendKeyNested(dst, a.Key)
		} else {
			dst = jsontext.AppendKey(dst, a.Key)
		}
		switch a.Value.Kind() {
		case slog.KindString:
			if nested {
				dst = jsontext.AppendStringNested(dst, a.Value.String())
			} else {
				dst = jsontext.AppendString(dst, a.Value.String())
			}
			continue
		case slog.KindInt64:
			dst = jsontext.AppendInt(dst, a.Value.Int64())
			continue
		case slog.KindUint64:
			dst = jsontext.AppendUint(dst, a.Value.Uint64())
			continue
		case slog.KindBool:
			dst = jsontext.AppendBool(dst, a.Value.Bool())
			continue
		case slog.KindFloat64:
			if f := a.Value.Float64(); f-f == 0 {
				dst = jsontext.AppendFloat(dst, f, 64)
				continue
			}
		case slog.KindAny:
			if u := uuidOf(a.Value.Any()); u != nil {
				quote := `"`
				if nested {
					quote = `\"`
				}
				dst = append(appendUUID(append(dst, quote...), u), quote...)
				continue
			}
		}
		return dst[:start], i
	}
	return dst, len(attrs)
}
