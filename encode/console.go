package encode

import (
	"log/slog"
	"os"
	"time"
)

// ConsoleOptions are the options of [Console]. Where nothing else is said, they
// mean what they mean in [JSONOptions].
type ConsoleOptions struct {
	Time        TimeFormat     // default: TimeClock
	Location    *time.Location // default: local time
	OwnLocation bool           // default: false
	Duration    DurationFormat // default: DurationText
	Level       LevelFormat    // default: LevelUpper
	AddSource   bool           // default: false
	Caller      CallerFormat   // default: CallerShort; CallerObject is written as CallerFull
	Errors      ErrorFormat    // default: ErrorChain

	// OmitTime and OmitLevel leave these out, as for the journal of systemd,
	// which has its own. Default: false.
	OmitTime, OmitLevel bool

	// Color allows escape sequences for colours. It should be set only for a
	// terminal: see [ColorTerminal]. Default: false.
	Color bool

	// ReplaceAttr is called as [slog.HandlerOptions] says. The time, level,
	// source and message keep their places, whatever their keys become. Default:
	// nil.
	ReplaceAttr func(groups []string, a slog.Attr) slog.Attr
}

// Console returns an encoder of lines for people:
//
//	13:44:10.123 WARN  disk almost full  path=/var/lib free=1.5GB
//
// A nil o means the defaults. Keys and values are written as in logfmt; stacks
// of errors follow on lines of their own, which are indented, so that no line
// of a stack looks like a record. What the caller hands in cannot move the
// cursor, end a line, change colours or the direction of writing: such
// characters are shown as \u escapes, invalid bytes as U+FFFD.
func Console(o *ConsoleOptions) Encoder {
	if o == nil {
		o = new(ConsoleOptions)
	}
	c := config{
		form:       formConsole,
		color:      o.Color,
		source:     o.AddSource,
		duration:   or(o.Duration, DurationText, durationNames[:]),
		level:      or(o.Level, LevelUpper, levelNames[:]),
		caller:     or(o.Caller, CallerShort, callerNames[:]),
		errors:     or(o.Errors, ErrorChain, errorNames[:]),
		replace:    o.ReplaceAttr,
		timeKey:    slog.TimeKey,
		levelKey:   slog.LevelKey,
		messageKey: slog.MessageKey,
		sourceKey:  slog.SourceKey,
	}
	if c.caller == CallerObject {
		c.caller = CallerFull
	}
	if o.OmitTime {
		c.timeKey = omitted
	}
	if o.OmitLevel {
		c.levelKey = omitted
	}
	c.time = timeSpec{o.Time.or(TimeClock), c.location(o.Location, o.OwnLocation)}
	e := newEncoder(c)
	e.codec = consoleCodec{e.root}
	return e
}

// ColorTerminal reports whether f is a terminal that may be sent colours: a
// character device, while neither NO_COLOR is set (https://no-color.org) nor
// TERM is dumb.
func ColorTerminal(f *os.File) bool {
	if f == nil || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

const (
	colorOff   = "\x1b[0m"
	colorFaint = "\x1b[2m"
	colorRed   = "\x1b[31m"
	colorGreen = "\x1b[32m"
	colorAmber = "\x1b[33m"
	colorBlue  = "\x1b[34m"
)

// consoleLevel returns the level padded to five characters.
func consoleLevel(l slog.Level, text string, color bool) string {
	for len(text) < 5 {
		text += " "
	}
	if !color {
		return text
	}
	switch {
	case l >= slog.LevelError:
		return colorRed + text + colorOff
	case l >= slog.LevelWarn:
		return colorAmber + text + colorOff
	case l >= slog.LevelInfo:
		return colorGreen + text + colorOff
	}
	return colorBlue + text + colorOff
}

// headConsole appends time, level, source and message.
func (w *walker) headConsole(dst []byte, r *Record) []byte {
	e := w.e
	if e.replace != nil {
		return w.replacedConsole(dst, r)
	}
	if !r.Time.IsZero() && e.timeKey != omitted {
		dst = w.faint(dst, colorFaint)
		dst = w.time(dst, r.Time, ownTime)
		dst = append(w.faint(dst, colorOff), ' ')
	}
	dst = append(dst, e.levelString(r.Level)...)
	if e.source && r.PC != 0 {
		if f := frameOf(r.PC); !f.empty() {
			dst = w.faint(dst, colorFaint)
			dst = appendText(dst, f.text(e.caller))
			dst = append(w.faint(dst, colorOff), ' ')
		}
	}
	return appendShown(dst, r.Message, false)
}

// replacedConsole is headConsole by way of ReplaceAttr.
func (w *walker) replacedConsole(dst []byte, r *Record) []byte {
	e, within := w.e, w.scope
	w.scope = e.root // the built-in attributes lie in no group
	if !r.Time.IsZero() && e.timeKey != omitted {
		dst = w.placed(dst, r, slog.Time(e.timeKey, r.Time))
	}
	if e.levelKey != omitted {
		dst = w.placed(dst, r, slog.Any(e.levelKey, r.Level))
	}
	if e.source {
		src := new(slog.Source)
		if r.PC != 0 {
			*src = frameOf(r.PC).source
		}
		dst = w.placed(dst, r, slog.Any(e.sourceKey, src))
	}
	dst = w.placed(dst, r, slog.String(e.messageKey, r.Message))
	w.free()
	w.scope = within
	return dst
}

// placed appends a built-in attribute by way of ReplaceAttr: its value alone, as
// its place says what it is, and what separates it from the next.
func (w *walker) placed(dst []byte, r *Record, a slog.Attr) []byte {
	place := a.Key
	a = w.replace(nil, a)
	a.Value = a.Value.Resolve()
	kind := a.Value.Kind()
	if kind == slog.KindGroup {
		return append(w.shown(dst, a, true), ' ')
	}
	var v any
	if kind == slog.KindAny {
		if v = a.Value.Any(); v == nil {
			return dst
		}
		if src, ok := v.(*slog.Source); ok && (src == nil || *src == slog.Source{}) {
			return dst
		}
	}
	level, isLevel := v.(slog.Level)
	switch {
	case isLevel:
		return append(dst, consoleLevel(level, levelText(level, w.e.level), w.e.color)+" "...)
	case place == slog.LevelKey && kind == slog.KindString:
		text := string(appendShown(nil, a.Value.String(), false))
		return append(dst, consoleLevel(r.Level, text, w.e.color)+" "...)
	case place == slog.MessageKey && kind == slog.KindString:
		return appendShown(dst, a.Value.String(), false)
	}
	dst = w.faint(dst, colorFaint)
	switch {
	case kind != slog.KindAny:
		dst = w.scalar(dst, a.Value)
	default:
		if src, ok := v.(*slog.Source); ok {
			dst = appendText(dst, newFrame(*src).text(w.e.caller))
		} else {
			dst = w.any(dst, a.Key, v)
		}
	}
	dst = w.faint(dst, colorOff)
	if place == slog.MessageKey {
		return dst
	}
	return append(dst, ' ')
}

// faint appends an escape sequence if colours are allowed.
func (w *walker) faint(dst []byte, seq string) []byte {
	if w.e.color {
		return append(dst, seq...)
	}
	return dst
}

// appendTrail appends a stack as lines to follow a record.
func appendTrail(dst []byte, key string, calls []string) []byte {
	dst = append(dst, "\n    "...)
	dst = append(appendName(dst, key), " stack:"...)
	for _, c := range calls {
		dst = append(dst, "\n        "...)
		dst = appendShown(dst, c, false)
	}
	return dst
}
