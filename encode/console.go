package encode

import (
	"log/slog"
	"os"
	"time"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/values"
)

// Console returns an encoder of human-readable lines:
//
//	13:44:10.123 WARN  disk almost full  path=/var/lib free=1.5GB
//
// If o is nil, the defaults apply. Keys and values are written as in logfmt. The stack of an
// error follows on separate, indented lines, so that no line of a stack looks like a record. A
// record cannot move the cursor, end a line, or change colors or the writing direction: such
// characters are written as \u escapes, and invalid bytes as U+FFFD.
//
// The systemd journal stores time and level separately: set TimeKey and LevelKey to "-" to omit
// them.
func Console(o *Options) Encoder {
	c := o.config(values.Style{
		Form:     values.FormConsole,
		Time:     values.TimeSpec{Kind: values.TimeClock, Loc: time.Local},
		Duration: values.DurationText,
		Caller:   values.CallerShort,
	})
	if c.Caller == values.CallerObject {
		c.Caller = values.CallerFull
	}
	// Console writes no keys of built-in attributes. appendBuiltin recognizes these attributes by
	// their usual keys, so other keys in the options are replaced.
	if c.timeKey != omitted {
		c.timeKey = slog.TimeKey
	}
	if c.levelKey != omitted {
		c.levelKey = slog.LevelKey
	}
	c.messageKey, c.sourceKey = slog.MessageKey, slog.SourceKey
	e := newEncoder(c)
	e.codec = consoleCodec{e.root}
	return e
}

// ColorTerminal reports whether f is a terminal that supports colors: a character device, with
// the environment variable NO_COLOR unset (https://no-color.org) and TERM not "dumb".
func ColorTerminal(f *os.File) bool {
	if f == nil || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// consoleLevel returns the text of level l, padded to five characters and colored if color is set.
func consoleLevel(l slog.Level, text string, color bool) string {
	for len(text) < 5 {
		text += " "
	}
	if !color {
		return text
	}
	switch {
	case l >= slog.LevelError:
		return values.ColorRed + text + values.ColorOff
	case l >= slog.LevelWarn:
		return values.ColorAmber + text + values.ColorOff
	case l >= slog.LevelInfo:
		return values.ColorGreen + text + values.ColorOff
	}
	return values.ColorBlue + text + values.ColorOff
}

// headConsole appends the time, the level, the source and the message.
func (e *encoder) headConsole(w *values.Walker, dst []byte, r *Record) []byte {
	if e.Replace != nil {
		return e.replacedConsole(w, dst, r)
	}
	if !r.Time.IsZero() && e.timeKey != omitted {
		dst = e.appendColor(dst, values.ColorFaint)
		dst = w.Time(dst, r.Time, values.OwnTime)
		dst = append(e.appendColor(dst, values.ColorOff), ' ')
	}
	dst = append(dst, e.levelString(r.Level)...)
	if e.source && r.PC != 0 {
		if f := values.FrameOf(r.PC); !f.Empty() {
			dst = e.appendColor(dst, values.ColorFaint)
			dst = jsontext.AppendText(dst, f.Text(e.Caller))
			dst = append(e.appendColor(dst, values.ColorOff), ' ')
		}
	}
	return jsontext.AppendShown(dst, r.Message, false)
}

// replacedConsole is like headConsole, and calls ReplaceAttr for each attribute.
func (e *encoder) replacedConsole(w *values.Walker, dst []byte, r *Record) []byte {
	in := w.In
	w.In, w.Builtin = &e.root.Within, true
	if !r.Time.IsZero() && e.timeKey != omitted {
		dst = e.appendBuiltin(w, dst, r, slog.Time(e.timeKey, r.Time))
	}
	if e.levelKey != omitted {
		dst = e.appendBuiltin(w, dst, r, slog.Any(e.levelKey, r.Level))
	}
	if e.source {
		src := new(slog.Source)
		if r.PC != 0 {
			*src = values.FrameOf(r.PC).Source
		}
		dst = e.appendBuiltin(w, dst, r, slog.Any(e.sourceKey, src))
	}
	dst = e.appendBuiltin(w, dst, r, slog.String(e.messageKey, r.Message))
	w.Free()
	w.In, w.Builtin = in, false
	return dst
}

// appendBuiltin appends the built-in attribute a after ReplaceAttr has changed it. It appends only
// the value and a space, because the position on the line identifies the attribute.
func (e *encoder) appendBuiltin(w *values.Walker, dst []byte, r *Record, a slog.Attr) []byte {
	builtinKey := a.Key
	a = w.Replace(nil, a)
	a.Value = a.Value.Resolve()
	kind := a.Value.Kind()
	if kind == slog.KindGroup {
		return append(w.AppendReplaced(dst, a, true), ' ')
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
		return append(dst, consoleLevel(level, values.LevelText(level, e.Level), e.Color)+" "...)
	case builtinKey == slog.LevelKey && kind == slog.KindString:
		text := string(jsontext.AppendShown(nil, a.Value.String(), false))
		return append(dst, consoleLevel(r.Level, text, e.Color)+" "...)
	case builtinKey == slog.MessageKey && kind == slog.KindString:
		return jsontext.AppendShown(dst, a.Value.String(), false)
	}
	dst = e.appendColor(dst, values.ColorFaint)
	switch {
	case kind != slog.KindAny:
		dst = w.Scalar(dst, a.Value)
	default:
		if src, ok := v.(*slog.Source); ok {
			dst = jsontext.AppendText(dst, values.NewFrame(*src).Text(e.Caller))
		} else {
			dst = w.Any(dst, a.Key, v)
		}
	}
	dst = e.appendColor(dst, values.ColorOff)
	if builtinKey == slog.MessageKey {
		return dst
	}
	return append(dst, ' ')
}

// appendColor appends the escape sequence seq if colors are enabled.
func (e *encoder) appendColor(dst []byte, seq string) []byte {
	if e.Color {
		return append(dst, seq...)
	}
	return dst
}
