package encode

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/values"
)

// An encoder is the Encoder for all three formats. It is immutable.
type encoder struct {
	config
	codec batch.Codec
	root  *scope

	// These fields hold constant text of a JSON or logfmt record. newEncoder encodes it once.
	timeHead string             // {"time":", in logfmt time=
	timeTail string             // ",
	levels   [levelCount]string // result of levelPart for each of the usual levels
	msgHead  string             // "msg":"
}

// The levels whose text is encoded once: from 4 below slog.LevelDebug to 8 above slog.LevelError.
const (
	minLevel   = slog.LevelDebug - 4
	levelCount = int(slog.LevelError+8-minLevel) + 1
)

// newEncoder returns the encoder for c, without a codec.
func newEncoder(c config) *encoder {
	e := &encoder{config: c}
	e.root = &scope{e: e}
	switch c.Form {
	case values.FormJSON:
		e.timeHead = "{" + jsontext.Key(c.timeKey)
		if c.messageKey != omitted {
			e.msgHead = jsontext.Key(c.messageKey) + `"`
		}
		e.timeTail = ","
		if !c.Time.Numeric() {
			e.timeHead += `"`
			e.timeTail = `",`
		}
	case values.FormLogfmt:
		e.timeHead, e.msgHead = textKey(c.timeKey), textKey(c.messageKey)
	}
	for i := range e.levels {
		e.levels[i] = e.levelPart(minLevel + slog.Level(i))
	}
	// Only package loki uses Taken, the list of reserved keys. Records for loki never contain the
	// source position, so its key is not reserved.
	for _, key := range []string{c.timeKey, c.levelKey, c.messageKey} {
		if key != omitted {
			e.root.Taken = append(e.root.Taken, values.HashKey(jsontext.AppendName(nil, key)))
		}
	}
	e.root.finish()
	return e
}

// levelPart returns the level attribute and the constant text around it.
func (e *encoder) levelPart(l slog.Level) string {
	text := values.LevelText(l, e.Level)
	switch e.Form {
	case values.FormJSON:
		part := e.timeTail
		if e.levelKey != omitted {
			if e.Level != values.LevelNumber {
				text = `"` + text + `"`
			}
			part += jsontext.Key(e.levelKey) + text + ","
		}
		if !e.source {
			part += e.msgHead
		}
		return part
	case values.FormLogfmt:
		if e.Labels != nil && e.Labels.Level != nil {
			text = string(jsontext.AppendText(nil, e.Labels.Level(l)))
		}
		if e.levelKey != omitted {
			return textKey(e.levelKey) + text + " "
		}
	default:
		if e.levelKey != omitted {
			return consoleLevel(l, text, e.Color) + " "
		}
	}
	return ""
}

// levelString returns the result of levelPart, which is cached for the usual levels.
func (e *encoder) levelString(l slog.Level) string {
	if i := int(l - minLevel); uint(i) < uint(len(e.levels)) {
		return e.levels[i]
	}
	return e.levelPart(l)
}

// Scope returns the scope without attributes and groups.
func (e *encoder) Scope() Scope { return e.root }

// Codec returns the codec of the format.
func (e *encoder) Codec() batch.Codec { return e.codec }

// NeedsPC reports whether records have a source position.
func (e *encoder) NeedsPC() bool { return e.source }

// Validate returns an error for each option that names an unknown format.
func (e *encoder) Validate() error { return e.fault }

// Durations returns a copy of e with the given format of durations, for forebay.Durations. If
// Options.Duration is set, it returns e.
func (e *encoder) Durations(form string) Encoder {
	if e.ownDuration {
		return e
	}
	c := e.config
	c.Duration = values.DurationForm(form)
	return e.withConfig(c)
}

// WithLabels returns a copy of e that follows the rules of l, for package loki.
func (e *encoder) WithLabels(l *values.Labels) Encoder {
	c := e.config
	c.Labels = l
	return e.withConfig(c)
}

// withConfig returns a copy of e with another config.
func (e *encoder) withConfig(c config) Encoder {
	n := newEncoder(c)
	switch e.codec.(type) {
	case jsonCodec:
		n.codec = jsonCodec{n.root}
	case logfmtCodec:
		n.codec = logfmtCodec{n.root}
	default:
		n.codec = consoleCodec{n.root}
	}
	return n
}

// KnowsErrors marks an encoder that writes a values.KnownError exactly like the error in its field
// Err. Package loki checks whether an encoder has this method.
func (e *encoder) KnowsErrors(*values.KnownError) {}

// A scope is the Scope for all three formats. It is immutable.
type scope struct {
	e             *encoder
	values.Within        // the names given to WithGroup
	pre           []byte // encoded attributes of With, preceded by a separator
	opened        int    // in JSON: number of groups whose opening brace is in pre
	// trail contains, in console format, the stacks of errors in the attributes of With. They
	// follow the line.
	trail []byte

	// The method finish sets the fields below, the constant parts of a JSON record.

	// lazy is the text that opens the groups not opened in pre. It is written before the first
	// attribute in these groups.
	lazy    string
	tail    string // closes the groups that are opened in pre, and the record
	tailAll string // closes all groups, and the record
}

// finish computes lazy, tail and tailAll from the other fields.
func (s *scope) finish() {
	if s.e.Form != values.FormJSON {
		return
	}
	s.lazy = ""
	for _, name := range s.Groups[s.opened:] {
		s.lazy += jsontext.Key(name) + "{"
	}
	s.tail, s.tailAll = closeBraces(s.opened+1), closeBraces(len(s.Groups)+1)
}

// closers is the end of a record with 16 open objects. If fewer are open, a suffix is used.
const closers = "}}}}}}}}}}}}}}}}\n"

// closeBraces returns n closing braces and the end of the line.
func closeBraces(n int) string {
	if n < len(closers) {
		return closers[len(closers)-1-n:]
	}
	return strings.Repeat("}", n) + "\n"
}

// WithGroup implements [Scope]. In JSON, the first attribute in the group opens it, because an
// empty group is omitted. In the text formats, the group is a prefix of the keys.
func (s *scope) WithGroup(name string) Scope {
	if name == "" {
		return s
	}
	n := *s
	n.Groups = append(s.Groups[:len(s.Groups):len(s.Groups)], name)
	if s.e.Form != values.FormJSON {
		n.Prefix = s.Prefix + string(jsontext.AppendName(nil, name)) + "."
	}
	n.finish()
	return &n
}

// WithAttrs implements [Scope]. It encodes the attributes.
func (s *scope) WithAttrs(attrs []slog.Attr) Scope {
	if len(attrs) == 0 {
		return s
	}
	w := values.Walker{Leaf: values.Leaf{Style: &s.e.Style, Form: s.e.Form}, In: &s.Within, Base: -1}
	pre := make([]byte, 0, len(s.pre)+len(s.lazy)+2+48*len(attrs))
	pre = append(pre, s.pre...)
	if s.e.Form == values.FormJSON && len(pre) == 0 {
		pre = append(pre, ',')
	}
	if s.lazy != "" {
		pre = append(jsontext.Comma(pre), s.lazy...)
	}
	start := len(pre)
	pre = w.Attrs(pre, attrs)
	w.Free()
	if len(pre) == start {
		return s // attrs contains only empty groups and empty attributes
	}
	n := *s
	n.pre = pre[:len(pre):len(pre)]
	n.opened = len(s.Groups)
	if w.Taken != nil {
		n.Taken = slices.Clip(w.Taken)
	}
	n.trail = append(s.trail[:len(s.trail):len(s.trail)], w.Trail...)
	n.finish()
	return &n
}

// Append implements [Scope]. The error is always nil.
func (s *scope) Append(dst []byte, r *Record) ([]byte, batch.Meta, error) {
	m := batch.Meta{Time: values.UnixNano(r.Time), Level: r.Level}
	e := s.e
	if e.Form == values.FormJSON && e.Replace == nil {
		return s.appendJSON(dst, r), m, nil
	}
	w := values.Walker{Leaf: values.Leaf{Style: &e.Style, Cache: &r.Cache, Form: e.Form}, In: &s.Within, Base: len(dst)}
	switch {
	case e.Form == values.FormConsole:
		dst = e.headConsole(&w, dst, r)
	case e.Replace != nil:
		dst = e.appendBuiltins(&w, dst, r)
	default:
		dst = e.headLogfmt(&w, dst, r)
	}
	if e.Form == values.FormJSON {
		dst = s.appendAttrsJSON(&w, dst, r.Attrs)
	} else {
		dst = s.appendAttrsText(&w, dst, r.Attrs)
	}
	w.Free()
	return dst, m, nil
}

// appendBuiltins appends the built-in attributes after ReplaceAttr has changed them.
func (e *encoder) appendBuiltins(w *values.Walker, dst []byte, r *Record) []byte {
	if e.Form == values.FormJSON {
		dst = append(dst, '{')
	}
	in := w.In
	w.In, w.Builtin = &e.root.Within, true
	if !r.Time.IsZero() && e.timeKey != omitted {
		dst = w.AppendReplaced(dst, w.Replace(nil, slog.Time(e.timeKey, r.Time)), false)
	}
	if e.levelKey != omitted {
		dst = w.AppendReplaced(dst, w.Replace(nil, slog.Any(e.levelKey, r.Level)), false)
	}
	if e.source {
		src := new(slog.Source)
		if r.PC != 0 {
			*src = values.FrameOf(r.PC).Source
		}
		dst = w.AppendReplaced(dst, w.Replace(nil, slog.Any(e.sourceKey, src)), false)
	}
	if e.messageKey != omitted {
		dst = w.AppendReplaced(dst, w.Replace(nil, slog.String(e.messageKey, r.Message)), false)
	}
	w.Free()
	w.In, w.Builtin = in, false
	return dst
}
