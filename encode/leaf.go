package encode

import (
	"fmt"
	"log/slog"
	"time"
)

// A leaf encodes single values. It is small and passed by value, so that it can
// go through function values without an allocation.
type leaf struct {
	e    *encoder
	tc   *recordCache // of the record; nil: none
	form form         // that of e, but inside an array always formJSON
}

// times returns where formatted times are kept, or nil.
func (l leaf) times() *timeCache {
	if l.tc == nil {
		return nil
	}
	return &l.tc.times
}

// quote appends text, which stands at the end of dst from start on, again as a
// string value, for the forms that have no other.
func (l leaf) quote(dst []byte, start int) []byte {
	if l.form == formJSON {
		return dst
	}
	made, _ := scratch.Get(len(dst) - start)
	copy(made, dst[start:])
	dst = l.textOf(dst[:start], made)
	scratch.Put(made)
	return dst
}

// text appends a string value.
func (l leaf) text(dst []byte, s string) []byte {
	if l.form == formJSON {
		return appendString(dst, s)
	}
	return appendText(dst, s)
}

// scalar appends a value that is neither a group nor an any.
func (l leaf) scalar(dst []byte, v slog.Value) []byte {
	switch v.Kind() {
	case slog.KindString:
		return l.text(dst, v.String())
	case slog.KindInt64:
		return appendInt(dst, v.Int64())
	case slog.KindUint64:
		return appendUint(dst, v.Uint64())
	case slog.KindFloat64:
		return l.float(dst, v.Float64(), 64)
	case slog.KindBool:
		return appendBool(dst, v.Bool())
	case slog.KindDuration:
		return l.duration(dst, v.Duration())
	case slog.KindTime:
		return l.time(dst, v.Time(), attrTime)
	default:
		return l.text(dst, fmt.Sprintf("!ERROR: unknown kind %v", v.Kind()))
	}
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, "true"...)
	}
	return append(dst, "false"...)
}

// float appends f. There is no JSON number for NaN and the infinities; they
// become strings.
func (l leaf) float(dst []byte, f float64, size int) []byte {
	if f-f != 0 {
		s := "NaN"
		if f > 0 {
			s = "+Inf"
		} else if f < 0 {
			s = "-Inf"
		}
		return l.text(dst, s)
	}
	return appendFloat(dst, f, size)
}

func (l leaf) duration(dst []byte, d time.Duration) []byte {
	switch l.e.duration {
	case DurationText:
		if l.form != formJSON {
			return append(dst, d.String()...)
		}
		dst = append(dst, '"')
		dst = append(dst, d.String()...)
		return append(dst, '"')
	case DurationSeconds:
		return appendSeconds(dst, d)
	default:
		return appendInt(dst, int64(d))
	}
}

func (l leaf) time(dst []byte, t time.Time, slot int) []byte {
	spec := &l.e.time
	switch {
	case spec.kind == timeLayout:
		// A layout, or the name of a zone, may hold anything.
		start := len(dst)
		dst = spec.append(dst, t, l.times(), slot)
		return l.text(dst[:start], string(dst[start:]))
	case l.form == formJSON && !spec.numeric():
		dst = append(dst, '"')
		dst = spec.append(dst, t, l.times(), slot)
		return append(dst, '"')
	default:
		return spec.append(dst, t, l.times(), slot)
	}
}

// null appends what stands for no value.
func (l leaf) null(dst []byte) []byte {
	if l.form == formJSON {
		return append(dst, "null"...)
	}
	return append(dst, "<nil>"...)
}

func (l leaf) level(dst []byte, v slog.Level) []byte {
	if l.e.level == LevelNumber {
		return appendInt(dst, int64(v))
	}
	return l.text(dst, levelText(v, l.e.level))
}

func appendSeconds(dst []byte, d time.Duration) []byte {
	v := uint64(d)
	if d < 0 {
		dst = append(dst, '-')
		v = -v
	}
	sec := v / 1e9
	dst = appendUint(dst, sec)
	ns := uint32(v - sec*1e9)
	if ns == 0 {
		return dst
	}
	dst = appendNanos(append(dst, '.'), ns)
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	return dst
}
