package encode

import (
	"log/slog"
	"time"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/values"
)

// LogfmtOptions are the options of [Logfmt]. Where nothing else is said, they
// mean what they mean in [JSONOptions].
type LogfmtOptions struct {
	Time        TimeFormat     // default: TimeRFC3339Nano
	Location    *time.Location // default: UTC
	OwnLocation bool           // default: false
	Duration    DurationFormat // default: DurationText
	Level       LevelFormat    // default: INFO, WARN+2
	AddSource   bool           // default: false
	Caller      CallerFormat   // default: CallerFull; CallerObject is written as a group
	Errors      ErrorFormat    // default: with chain and stack

	// The keys of the built-in attributes, and "-" to leave one out. Default:
	// time, level, msg and source.
	TimeKey, LevelKey, MessageKey, SourceKey string

	ReplaceAttr func(groups []string, a slog.Attr) slog.Attr // default: nil
}

// Logfmt returns an encoder of key=value lines, as [slog.TextHandler] writes
// them. A nil o means the defaults.
//
// Whatever the caller hands in, a record is one line of valid UTF-8 that can be
// taken apart again. Groups are prefixes with a dot. In keys, '_' stands for
// spaces, '=', '"', control characters and invalid bytes. Values that hold any of these, or
// are empty, are in double quotes and escaped as in JSON, and there every
// character that is not to be shown, such as the controls of writing direction,
// is escaped too. Slices, maps and structs are written as JSON in such a
// string, values with a MarshalText or String method as what that returns.
func Logfmt(o *LogfmtOptions) Encoder {
	if o == nil {
		o = new(LogfmtOptions)
	}
	c := config{
		Style: values.Style{
			Form:     values.FormLogfmt,
			Duration: choice(o.Duration, values.DurationText, durationNames),
			Level:    choice(o.Level, values.LevelUpper, levelNames),
			Caller:   choice(o.Caller, values.CallerFull, callerNames),
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
