package encode

import (
	"time"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/values"
)

// Logfmt returns an encoder of key=value lines, as [slog.TextHandler] writes
// them. A nil o means the defaults.
//
// Whatever the caller hands in, a record is one line of valid UTF-8 that can be
// taken apart again. Groups are prefixes with a dot. In keys, '_' stands for
// spaces, '=', '"', control characters, invalid bytes and U+FFFD. A value that is empty or
// holds one of these is in double quotes and escaped as in JSON. There every
// character that is not to be shown, such as the controls of writing direction,
// is escaped too. Slices, maps and structs are written as JSON in such a
// string. A value with a MarshalText or String method is the result of that.
func Logfmt(o *Options) Encoder {
	e := newEncoder(o.config(values.Style{
		Form:     values.FormLogfmt,
		Time:     values.TimeSpec{Kind: values.TimeNano, Loc: time.UTC},
		Duration: values.DurationText,
		Caller:   values.CallerFull,
	}))
	e.codec = logfmtCodec{e.root}
	return e
}

// headLogfmt appends the built-in attributes as they are without a
// ReplaceAttr.
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

// textKey returns the key and the '='.
func textKey(key string) string { return string(append(jsontext.AppendName(nil, key), '=')) }
