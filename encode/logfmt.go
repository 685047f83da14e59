package encode

import (
	"log/slog"
	"time"
)

// LogfmtOptions are the options of [Logfmt]. Where nothing else is said, they
// mean what they mean in [JSONOptions].
type LogfmtOptions struct {
	Time        TimeFormat     // default: TimeRFC3339Nano
	Location    *time.Location // default: UTC
	OwnLocation bool           // default: false
	Duration    DurationFormat // default: DurationText
	Level       LevelFormat    // default: LevelUpper
	AddSource   bool           // default: false
	Caller      CallerFormat   // default: CallerFull; CallerObject is written as a group
	Errors      ErrorFormat    // default: ErrorChain

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
		form:       formLogfmt,
		source:     o.AddSource && o.SourceKey != omitted,
		duration:   or(o.Duration, DurationText, durationNames[:]),
		level:      or(o.Level, LevelUpper, levelNames[:]),
		caller:     or(o.Caller, CallerFull, callerNames[:]),
		errors:     or(o.Errors, ErrorChain, errorNames[:]),
		replace:    o.ReplaceAttr,
		timeKey:    key(o.TimeKey, slog.TimeKey),
		levelKey:   key(o.LevelKey, slog.LevelKey),
		messageKey: key(o.MessageKey, slog.MessageKey),
		sourceKey:  key(o.SourceKey, slog.SourceKey),
	}
	c.time = timeSpec{o.Time.or(TimeRFC3339Nano), c.location(o.Location, o.OwnLocation)}
	e := newEncoder(c)
	e.codec = logfmtCodec{e.root}
	return e
}

// headLogfmt appends the built-in attributes as they are without a
// ReplaceAttr.
func (w *walker) headLogfmt(dst []byte, r *Record) []byte {
	e := w.e
	if !r.Time.IsZero() && e.timeKey != omitted {
		dst = append(dst, e.timeHead...)
		dst = append(w.time(dst, r.Time, ownTime), ' ')
	}
	dst = append(dst, e.levelString(r.Level)...)
	if e.source && r.PC != 0 {
		dst = w.sourceText(dst, frameOf(r.PC))
	}
	if e.messageKey != omitted {
		return appendText(append(dst, e.msgHead...), r.Message)
	}
	if n := len(dst) - 1; n >= w.base && dst[n] == ' ' {
		dst = dst[:n]
	}
	return dst
}

func (w *walker) sourceText(dst []byte, f *frame) []byte {
	if f.empty() {
		return dst
	}
	name := string(appendName(nil, w.e.sourceKey))
	if w.e.caller != CallerObject {
		return append(appendText(append(dst, name+"="...), f.text(w.e.caller)), ' ')
	}
	dst = append(appendText(append(dst, name+".function="...), f.source.Function), ' ')
	dst = append(appendText(append(dst, name+".file="...), f.source.File), ' ')
	return append(appendInt(append(dst, name+".line="...), int64(f.source.Line)), ' ')
}

// textKey returns the key and the '='.
func textKey(key string) string { return string(append(appendName(nil, key), '=')) }
