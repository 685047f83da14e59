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

// JSONOptions are the options of [JSON]. The zero value writes what
// [slog.JSONHandler] writes, but for the places where that is not RFC 8259 or
// not useful: see [JSON].
type JSONOptions struct {
	// Time is the format of all times. Default: [TimeRFC3339Nano].
	Time TimeFormat
	// Location is where times are shown for. Default: UTC.
	Location *time.Location
	// OwnLocation leaves each time in its own location, as slog does.
	// Location is then ignored. Default: false.
	OwnLocation bool
	// Duration is the format of durations. Default: [DurationNanos].
	Duration DurationFormat
	// Level is the format of levels. Default: INFO, WARN+2.
	Level LevelFormat
	// AddSource adds the source position of the log call. Default: false.
	AddSource bool
	// Caller is the format of source positions. Default: [CallerObject].
	Caller CallerFormat
	// Errors says how much of an error is written. Default: with chain and stack, see
	// [ErrorFormat].
	Errors ErrorFormat

	// TimeKey, LevelKey, MessageKey and SourceKey are the keys of the built-in
	// attributes. Default: time, level, msg and source. "-" leaves the
	// attribute out. They should differ from each other: this is not checked.
	TimeKey, LevelKey, MessageKey, SourceKey string

	// ReplaceAttr rewrites or removes attributes: see [slog.HandlerOptions] for
	// what it is called with and when. The built-in attributes come under the
	// keys above. What a chain of errors adds, and the objects encoding/json
	// writes, are not offered to it; the attributes of an [AttrAppender] are,
	// as those of a group. It may be called from several goroutines at once. If it
	// panics, the attribute's value is replaced by the panic's text. Default: nil,
	// all stay as they are.
	ReplaceAttr func(groups []string, a slog.Attr) slog.Attr
}

// JSON returns an encoder of JSON objects, one per line. A nil o means the
// defaults. There are no invalid options, so there is no error: a format
// that is none means the default, and reading it from text fails where that is done.
//
// The records are what [slog.JSONHandler] writes, except that
//
//   - every line is valid RFC 8259, whatever the caller hands in: NaN and the
//     infinities are strings, what a json.Marshaler returns is made valid
//     UTF-8, and times beyond the years 0 to 9999 do not break the line,
//   - times have nine decimals and are in UTC,
//   - errors can bring their chain and stack, see [ErrorFormat], and a []error
//     is a list of messages,
//   - groups that turn out empty are left out wherever they come from,
//   - the source position can be written in other ways, see [CallerFormat],
//   - values nested deeper than 1000 levels, and LogValuers that return
//     groups without end, become a text that says so. Cyclic values do in slog
//     too, but some exhaust the stack there, which ends the process.
//
// Values of the kinds slog has, slices of them and pointers to those
// (slog.Any("ids", &ids)), errors, [AttrAppender] and structs of plain fields
// cost no allocation here; the rest goes through encoding/json. Panics in the
// methods of values become a text, as in slog; only a method that recurses
// without end cannot be stopped.
func JSON(o *JSONOptions) Encoder {
	if o == nil {
		o = new(JSONOptions)
	}
	c := config{
		Style: values.Style{
			Form:     values.FormJSON,
			Duration: choice(o.Duration, values.DurationNanos, durationNames),
			Level:    choice(o.Level, values.LevelUpper, levelNames),
			Caller:   choice(o.Caller, values.CallerObject, callerNames),
			Errors:   choice(o.Errors, values.ErrorChain, errorNames),
			Replace:  o.ReplaceAttr,
		},
		source:     o.AddSource && o.SourceKey != omitted,
		timeKey:    key(o.TimeKey, slog.TimeKey),
		levelKey:   key(o.LevelKey, slog.LevelKey),
		messageKey: key(o.MessageKey, slog.MessageKey),
		sourceKey:  key(o.SourceKey, slog.SourceKey),
	}

	c.Time = o.Time.spec(values.TimeNano, c.location(o.Location, o.OwnLocation))
	e := newEncoder(c)
	e.codec = jsonCodec{e.root}
	return e
}

// appendJSON is Append for JSON without a ReplaceAttr.
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

func (e *encoder) appendTimeJSON(dst []byte, r *Record) []byte {
	start := len(dst)
	dst = e.Time.Append(dst, r.Time, &r.Cache.Times, values.OwnTime)
	if e.Time.Kind == values.TimeLayout {
		return jsontext.AppendEscaped(dst[:start], string(dst[start:]))
	}
	return dst
}

// appendPreJSON appends the attributes of the scope.
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

// appendAttrsJSON appends what follows the built-in attributes.
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
