package encode

import (
	"log/slog"
	"time"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/values"
)

// appendSourceJSON appends the source attribute and a comma.
func (e *encoder) appendSourceJSON(dst []byte, pc uintptr) []byte {
	if pc == 0 {
		return dst
	}
	f := values.FrameOf(pc)
	if f.Empty() {
		return dst
	}
	dst = append(jsontext.AppendKey(dst, e.sourceKey), f.Object...)
	if e.Caller != values.CallerObject {
		dst = jsontext.AppendString(dst[:len(dst)-len(f.Object)], f.Text(e.Caller))
	}
	return append(dst, ',')
}

// JSON returns an encoder of JSON objects, one per line. If o is nil, the defaults apply.
//
// The output is the output of [slog.JSONHandler], with these differences:
//
//   - Every line is valid RFC 8259 for any input: NaN and the infinities are strings, the
//     result of a json.Marshaler is converted to valid UTF-8, and a time outside the years 0
//     to 9999 is a string such as "12000-01-02T03:04:05Z".
//   - Times have nine decimals and are in UTC.
//   - An error is written as its message, even if it has a method MarshalJSON. Its chain and its
//     stack can be added, see Options.Errors.
//   - Values within structs, maps and lists have the same format as attributes: LogValue and
//     AppendAttrs are called, errors are written as their message, and the formats of
//     [Options] apply. A value that cannot be encoded does not affect the others.
//   - Groups without attributes are always omitted.
//   - The source position has additional formats, see Options.Caller.
//   - Values nested deeper than 1000 levels, and LogValuers that return groups without end,
//     are replaced by an error text. slog does the same for most cyclic values. In slog, the
//     remaining cyclic values exhaust the stack, which terminates the process.
//
// Encoding the following values does not allocate: values of slog's kinds, slices of them and
// pointers to such slices (slog.Any("ids", &ids)), errors, [AttrAppender], structs of plain fields,
// []any and map[string]any. Fields have the names and options that encoding/json gives them. A
// method with a pointer receiver is called for values that have an address: the target of a pointer
// and the elements of a slice. If a method of a value panics, the text of the panic replaces the
// value, as in slog. Infinite recursion in a method cannot be stopped.
func JSON(o *Options) Encoder {
	e := newEncoder(o.config(values.Style{
		Form:     values.FormJSON,
		Time:     values.TimeSpec{Kind: values.TimeNano, Loc: time.UTC},
		Duration: values.DurationNanos,
		Caller:   values.CallerObject,
	}))
	e.codec = jsonCodec{e.root}
	return e
}

// appendJSON implements Append for JSON without ReplaceAttr.
func (s *scope) appendJSON(dst []byte, r *Record) []byte {
	e := s.e
	rest := e.levelString(r.Level)
	if r.Time.IsZero() || e.timeKey == omitted {
		dst = append(dst, '{')
		rest = rest[len(e.timeTail):]
	} else {
		dst = append(dst, e.timeHead...)
		if e.Time.Kind == values.TimeNano {
			dst = e.Time.AppendRFC3339(dst, r.Time, &r.Cache.Times, values.OwnTime)
		} else {
			dst = e.appendTimeJSON(dst, r)
		}
	}
	dst = append(dst, rest...)
	if e.source {
		dst = e.appendSourceJSON(dst, r.PC)
		dst = append(dst, e.msgHead...)
	}
	if e.messageKey != omitted {
		dst = jsontext.AppendEscaped(dst, r.Message)
		dst = append(dst, '"')
	} else if last := len(dst) - 1; dst[last] == ',' {
		dst = dst[:last]
	}
	if len(r.Attrs) == 0 {
		return append(s.appendPreJSON(dst), s.tail...)
	}
	w := values.Walker{Leaf: values.Leaf{Style: &e.Style, Cache: &r.Cache, Form: values.FormJSON}, In: &s.Within}
	return s.appendAttrsJSON(&w, dst, r.Attrs)
}

// appendTimeJSON appends the time of r in a format other than rfc3339nano. It escapes the result of
// a layout, which may contain any character.
func (e *encoder) appendTimeJSON(dst []byte, r *Record) []byte {
	start := len(dst)
	dst = e.Time.Append(dst, r.Time, &r.Cache.Times, values.OwnTime)
	if e.Time.Kind == values.TimeLayout {
		return jsontext.AppendEscaped(dst[:start], string(dst[start:]))
	}
	return dst
}

// appendPreJSON appends the encoded attributes of the scope.
func (s *scope) appendPreJSON(dst []byte) []byte {
	pre := s.pre
	if len(pre) == 0 {
		return dst
	}
	if dst[len(dst)-1] == '{' {
		pre = pre[1:]
	}
	return append(dst, pre...)
}

// appendAttrsJSON appends everything that follows the built-in attributes: the attributes of the
// scope, attrs, and the end of the record.
func (s *scope) appendAttrsJSON(w *values.Walker, dst []byte, attrs []slog.Attr) []byte {
	dst = s.appendPreJSON(dst)
	start := len(dst)
	if s.lazy != "" {
		dst = append(jsontext.Comma(dst), s.lazy...)
	}
	inside := len(dst)
	dst = w.Attrs(dst, attrs)
	if len(dst) == inside {
		return append(dst[:start], s.tail...)
	}
	return append(dst, s.tailAll...)
}
