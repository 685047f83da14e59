package encode

import (
	"encoding/binary"
	"log/slog"
	"time"
)

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
	// Level is the format of levels. Default: [LevelUpper].
	Level LevelFormat
	// AddSource adds the source position of the log call. Default: false.
	AddSource bool
	// Caller is the format of source positions. Default: [CallerObject].
	Caller CallerFormat
	// Errors says how much of an error is written. Default: [ErrorChain].
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
// defaults. There are no invalid options, so there is no error: formats that
// can be wrong, such as a layout of times, fail where they are made.
//
// The records are what [slog.JSONHandler] writes, except that
//
//   - every line is valid RFC 8259, whatever the caller hands in: NaN and the
//     infinities are strings, what a json.Marshaler returns is made valid
//     UTF-8, and times beyond the years 0 to 9999 do not break the line,
//   - times have nine decimals and are in UTC,
//   - errors can bring their chain and stack, see [ErrorChain], and a []error
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
		form:       formJSON,
		source:     o.AddSource && o.SourceKey != omitted,
		duration:   or(o.Duration, DurationNanos, durationNames[:]),
		level:      or(o.Level, LevelUpper, levelNames[:]),
		caller:     or(o.Caller, CallerObject, callerNames[:]),
		errors:     or(o.Errors, ErrorChain, errorNames[:]),
		replace:    o.ReplaceAttr,
		timeKey:    key(o.TimeKey, slog.TimeKey),
		levelKey:   key(o.LevelKey, slog.LevelKey),
		messageKey: key(o.MessageKey, slog.MessageKey),
		sourceKey:  key(o.SourceKey, slog.SourceKey),
	}
	c.time = timeSpec{o.Time.or(TimeRFC3339Nano), c.location(o.Location, o.OwnLocation)}
	e := newEncoder(c)
	e.codec = jsonCodec{e.root}
	return e
}

// jsonKey returns the key, quoted, with the colon.
func jsonKey(key string) string {
	return string(append(appendString(nil, key), ':'))
}

// appendString appends s as a JSON string.
func appendString(dst []byte, s string) []byte {
	n, j := len(s), len(dst)
	if n > short || cap(dst)-j < short+2 {
		return appendAnyString(dst, s)
	}
	// As copyShort, but written out: this is the most frequent of all values.
	b := (*[short + 2]byte)(dst[j : j+short+2])
	b[0] = '"'
	var m uint64
	switch {
	case n > 16:
		w0, w1, w2, w3 := load64(s), load64(s[8:]), load64(s[n-16:]), load64(s[n-8:])
		binary.LittleEndian.PutUint64(b[1:], w0)
		binary.LittleEndian.PutUint64(b[9:], w1)
		binary.LittleEndian.PutUint64(b[n-15:], w2)
		binary.LittleEndian.PutUint64(b[n-7:], w3)
		m = odd(w0) | odd(w1) | odd(w2) | odd(w3)
	case n >= 8:
		v, w := load64(s), load64(s[n-8:])
		binary.LittleEndian.PutUint64(b[1:], v)
		binary.LittleEndian.PutUint64(b[n-7:], w)
		m = odd(v) | odd(w)
	case n >= 4:
		v, w := uint32(load32(s)), uint32(load32(s[n-4:]))
		binary.LittleEndian.PutUint32(b[1:], v)
		binary.LittleEndian.PutUint32(b[n-3:], w)
		m = odd(uint64(v) | uint64(w)<<32)
	case n > 0:
		v, w, x := s[0], s[n>>1], s[n-1]
		b[1], b[1+n>>1], b[n] = v, w, x
		m = odd(uint64(v) | uint64(w)<<8 | uint64(x)<<16 | 0x20202020_20000000)
	}
	if m&highs != 0 {
		return appendAnyString(dst, s)
	}
	b[n+1] = '"'
	return dst[:j+n+2]
}

// appendAnyString is appendString for strings that are long or have to be
// escaped.
func appendAnyString(dst []byte, s string) []byte {
	dst = append(spare(dst, len(s)+64), '"')
	dst = appendEscaped(dst, s)
	return append(dst, '"')
}

// comma appends a comma unless there is one or the object or array has just
// begun. No value ends in one of these.
func comma(dst []byte) []byte {
	if last := dst[len(dst)-1]; last == ',' || last|0x20 == '{' { // 0x20 makes '[' a '{'
		return dst
	}
	return append(dst, ',')
}

// appendKeyJSON appends the key, what separates it from the member before, and
// the colon.
func appendKeyJSON(dst []byte, key string) []byte {
	n, j := len(key), len(dst)
	if n == 0 || n > 16 || cap(dst)-j < 24 {
		return appendAnyKey(dst, key)
	}
	sep := byte(',')
	if last := dst[j-1]; last == ',' || last|0x20 == '{' { // as in comma: written once more
		sep = last
		j--
	}
	// As copyShort, but written out: this is the most frequent of all steps.
	b := (*[24]byte)(dst[j : j+24])
	b[0], b[1] = sep, '"'
	var m uint64
	switch {
	case n >= 8:
		v, w := load64(key), load64(key[n-8:])
		binary.LittleEndian.PutUint64(b[2:], v)
		binary.LittleEndian.PutUint64(b[n-6:], w)
		m = odd(v) | odd(w)
	case n >= 4:
		v, w := uint32(load32(key)), uint32(load32(key[n-4:]))
		binary.LittleEndian.PutUint32(b[2:], v)
		binary.LittleEndian.PutUint32(b[n-2:], w)
		m = odd(uint64(v) | uint64(w)<<32)
	default:
		v, w, x := key[0], key[n>>1], key[n-1]
		b[2], b[2+n>>1], b[1+n] = v, w, x
		m = odd(uint64(v) | uint64(w)<<8 | uint64(x)<<16 | 0x20202020_20000000)
	}
	if m&highs != 0 {
		return appendAnyKey(dst, key)
	}
	b[n+2], b[n+3] = '"', ':'
	return dst[:j+n+4]
}

// appendAnyKey is appendKeyJSON for keys that are long or have to be escaped.
func appendAnyKey(dst []byte, key string) []byte {
	dst = append(comma(dst), '"')
	dst = appendEscaped(spare(dst, 64), key)
	return append(dst, '"', ':')
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
		if e.time.kind == timeNano {
			dst = e.time.appendRFC3339(dst, r.Time, &r.cache.times, ownTime)
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
		dst = appendEscaped(dst, r.Message)
		dst = append(dst, '"')
	} else if last := len(dst) - 1; dst[last] == ',' {
		dst = dst[:last]
	}
	if len(r.Attrs) == 0 {
		return append(s.appendPreJSON(dst), s.tail...)
	}
	w := walker{leaf: leaf{e, &r.cache, formJSON}, scope: s}
	return s.appendAttrsJSON(&w, dst, r.Attrs)
}

func (e *encoder) appendTimeJSON(dst []byte, r *Record) []byte {
	start := len(dst)
	dst = e.time.append(dst, r.Time, &r.cache.times, ownTime)
	if e.time.kind == timeLayout {
		return appendEscaped(dst[:start], string(dst[start:]))
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
func (s *scope) appendAttrsJSON(w *walker, dst []byte, attrs []slog.Attr) []byte {
	dst = s.appendPreJSON(dst)
	start := len(dst)
	if s.lazy != "" {
		dst = append(comma(dst), s.lazy...)
	}
	inside := len(dst)
	dst = w.attrs(dst, attrs)
	if len(dst) == inside {
		return append(dst[:start], s.tail...)
	}
	return append(dst, s.tailAll...)
}

// attrsJSON is attrs for JSON without a ReplaceAttr. The common kinds are
// handled here, without further calls, the rest by attr.
func (w *walker) attrsJSON(dst []byte, attrs []slog.Attr) []byte {
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
			dst = w.float(appendKeyJSON(dst, a.Key), a.Value.Float64(), 64)
		case slog.KindDuration:
			dst = w.duration(appendKeyJSON(dst, a.Key), a.Value.Duration())
		case slog.KindTime:
			dst = w.time(appendKeyJSON(dst, a.Key), a.Value.Time(), attrTime)
		case slog.KindGroup:
			dst = w.group(dst, a.Key, a.Value.Group(), false)
		case slog.KindAny:
			if v := a.Value.Any(); v != nil || a.Key != "" {
				dst = w.any(dst, a.Key, v)
			}
		default:
			dst = w.attr(dst, *a)
		}
	}
	return dst
}
