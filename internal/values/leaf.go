package values

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// A Leaf encodes single values. It is small and passed by value, so passing it to function values
// does not allocate.
type Leaf struct {
	Style *Style
	Cache *Cache // cache of the record; may be nil
	Form  form   // the form of the encoder; inside an array it is FormJSON
}

// times returns the cache of formatted times, or nil.
func (l Leaf) times() *Times {
	if l.Cache == nil {
		return nil
	}
	return &l.Cache.Times
}

// quote replaces dst[start:] with the same text as a string value. It is for values that a text
// format can only write as a string.
func (l Leaf) quote(dst []byte, start int) []byte {
	if l.Form == FormJSON {
		return dst
	}
	return l.replace(dst, start, start)
}

// replace replaces dst[start:] with the text dst[from:], written as a string value.
func (l Leaf) replace(dst []byte, start, from int) []byte {
	end := len(dst)
	dst = l.text(dst, unsafeString(dst[from:]))
	return append(dst[:start], dst[end:]...)
}

// text appends a string value.
func (l Leaf) text(dst []byte, s string) []byte {
	if l.Form == FormJSON {
		return jsontext.AppendString(dst, s)
	}
	return jsontext.AppendText(dst, s)
}

// Scalar appends a value that is neither a group nor of slog.KindAny.
func (l Leaf) Scalar(dst []byte, v slog.Value) []byte {
	switch v.Kind() {
	case slog.KindString:
		return l.text(dst, v.String())
	case slog.KindInt64:
		return jsontext.AppendInt(dst, v.Int64())
	case slog.KindUint64:
		return jsontext.AppendUint(dst, v.Uint64())
	case slog.KindFloat64:
		return l.float(dst, v.Float64(), 64)
	case slog.KindBool:
		return jsontext.AppendBool(dst, v.Bool())
	case slog.KindDuration:
		return l.duration(dst, v.Duration())
	case slog.KindTime:
		return l.Time(dst, v.Time(), attrTime)
	default:
		return l.text(dst, fmt.Sprintf("!ERROR: unknown kind %v", v.Kind()))
	}
}

// float appends f. NaN and the infinities are strings, because JSON has no numbers for them.
func (l Leaf) float(dst []byte, f float64, size int) []byte {
	if f-f != 0 {
		s := "NaN"
		if f > 0 {
			s = "+Inf"
		} else if f < 0 {
			s = "-Inf"
		}
		return l.text(dst, s)
	}
	return jsontext.AppendFloat(dst, f, size)
}

func (l Leaf) duration(dst []byte, d time.Duration) []byte {
	switch l.Style.Duration {
	case DurationText:
		if l.Form != FormJSON {
			return append(dst, d.String()...)
		}
		dst = append(dst, '"')
		dst = append(dst, d.String()...)
		return append(dst, '"')
	case DurationSeconds:
		return jsontext.AppendSeconds(dst, d)
	default:
		return jsontext.AppendInt(dst, int64(d))
	}
}

func (l Leaf) Time(dst []byte, t time.Time, slot int) []byte {
	spec := &l.Style.Time
	switch {
	case spec.Kind == TimeLayout:
		// A layout or a zone name may contain characters that need escaping.
		start := len(dst)
		dst = spec.Append(dst, t, l.times(), slot)
		return l.text(dst[:start], string(dst[start:]))
	case l.Form == FormJSON && !spec.Numeric():
		dst = append(dst, '"')
		dst = spec.Append(dst, t, l.times(), slot)
		return append(dst, '"')
	default:
		return spec.Append(dst, t, l.times(), slot)
	}
}

// null appends null, or <nil> in the text formats.
func (l Leaf) null(dst []byte) []byte {
	if l.Form == FormJSON {
		return append(dst, "null"...)
	}
	return append(dst, "<nil>"...)
}

func (l Leaf) levelOf(dst []byte, v slog.Level) []byte {
	if l.Style.Level == LevelNumber {
		return jsontext.AppendInt(dst, int64(v))
	}
	return l.text(dst, LevelText(v, l.Style.Level))
}
