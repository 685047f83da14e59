package encode

import (
	"time"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/values"
)

// Logfmt returns an encoder of key=value lines in the format of [slog.TextHandler]. If o is
// nil, the defaults apply.
//
// For any input, a record is one line of valid UTF-8 that can be parsed unambiguously.
//
//   - The keys in a group begin with the name of the group and a dot.
//   - In keys, spaces, '=', '"', control characters, invalid bytes and U+FFFD are replaced by '_'.
//   - A value is in double quotes and escaped as in JSON if it is empty, or contains one of these
//     characters or a character that is not printable, such as a bidirectional control character.
//   - Durations are integer nanoseconds as in every other output, see Options.Duration.
//     slog.TextHandler writes 1.5s.
//   - Slices, maps and structs are written as JSON in double quotes.
//   - A value with a method MarshalText or String is written as the result of that method.
func Logfmt(o *Options) Encoder {
	e := newEncoder(o.config(values.Style{
		Form:     values.FormLogfmt,
		Time:     values.TimeSpec{Kind: values.TimeNano, Loc: time.UTC},
		Duration: values.DurationNanos,
		Caller:   values.CallerFull,
	}))
	e.codec = logfmtCodec{e.root}
	return e
}

// headLogfmt appends the built-in attributes if there is no ReplaceAttr.
func (e *encoder) headLogfmt(w *values.Walker, dst []byte, r *Record) []byte {
	if !r.Time.IsZero() && e.timeKey != omitted {
		dst = append(dst, e.timeHead...)
		dst = append(w.Time(dst, r.Time, values.OwnTime), ' ')
	}
	dst = append(dst, e.levelString(r.Level)...)
	if e.source && r.PC != 0 {
		dst = e.sourceText(dst, values.FrameOf(r.PC))
	}
	if e.messageKey != omitted {
		return jsontext.AppendText(append(dst, e.msgHead...), r.Message)
	}
	if n := len(dst) - 1; n >= w.Base && dst[n] == ' ' {
		dst = dst[:n]
	}
	return dst
}

// sourceText appends the source position f and a space.
func (e *encoder) sourceText(dst []byte, f *values.Frame) []byte {
	if f.Empty() {
		return dst
	}
	name := string(jsontext.AppendName(nil, e.sourceKey))
	if e.Caller != values.CallerObject {
		return append(jsontext.AppendText(append(dst, name+"="...), f.Text(e.Caller)), ' ')
	}
	dst = append(jsontext.AppendText(append(dst, name+".function="...), f.Source.Function), ' ')
	dst = append(jsontext.AppendText(append(dst, name+".file="...), f.Source.File), ' ')
	return append(jsontext.AppendInt(append(dst, name+".line="...), int64(f.Source.Line)), ' ')
}

// textKey returns the key in the form that logfmt uses, with an equals sign.
func textKey(key string) string { return string(append(jsontext.AppendName(nil, key), '=')) }
