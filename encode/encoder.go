package encode

import (
	"log/slog"
	"strings"
	"sync"

	"github.com/forebay-log/forebay/batch"
)

// encoder is the Encoder of all three forms. It is immutable.
type encoder struct {
	config
	codec batch.Codec
	root  *scope

	// What stands between the parts of a record, encoded once.
	timeHead string             // {"time":", in logfmt time=
	timeTail string             // ",
	levels   [levelCount]string // in JSON timeTail, the level and, without a source, msgHead; elsewhere the level
	msgHead  string             // "msg":"
}

// The levels whose text is encoded once: all that have a name and those near
// them.
const (
	minLevel   = slog.LevelDebug - 4
	levelCount = int(slog.LevelError+8-minLevel) + 1
)

func newEncoder(c config) *encoder {
	e := &encoder{config: c}
	e.root = &scope{e: e}
	switch c.form {
	case formJSON:
		e.timeHead = "{" + jsonKey(c.timeKey)
		if c.messageKey != omitted {
			e.msgHead = jsonKey(c.messageKey) + `"`
		}
		e.timeTail = ","
		if !c.time.numeric() {
			e.timeHead += `"`
			e.timeTail = `",`
		}
	case formLogfmt:
		e.timeHead, e.msgHead = textKey(c.timeKey), textKey(c.messageKey)
	}
	for i := range e.levels {
		e.levels[i] = e.levelPart(minLevel + slog.Level(i))
	}
	e.root.seal()
	return e
}

// levelPart returns the level attribute as it stands in a record, with what is
// always beside it.
func (e *encoder) levelPart(l slog.Level) string {
	text := levelText(l, e.level)
	switch e.form {
	case formJSON:
		part := e.timeTail
		if e.levelKey != omitted {
			if e.level != LevelNumber {
				text = `"` + text + `"`
			}
			part += jsonKey(e.levelKey) + text + ","
		}
		if !e.source {
			part += e.msgHead
		}
		return part
	case formLogfmt:
		if e.levelKey != omitted {
			return textKey(e.levelKey) + text + " "
		}
	default:
		if e.levelKey != omitted {
			return consoleLevel(l, text, e.color) + " "
		}
	}
	return ""
}

func (e *encoder) levelString(l slog.Level) string {
	if i := int(l - minLevel); uint(i) < uint(len(e.levels)) {
		return e.levels[i]
	}
	return e.levelPart(l)
}

func (e *encoder) Scope() Scope       { return e.root }
func (e *encoder) Codec() batch.Codec { return e.codec }
func (e *encoder) NeedsPC() bool      { return e.source }

// scope is the Scope of all three forms.
type scope struct {
	e      *encoder
	pre    []byte   // the attributes of With, encoded, with a leading separator
	groups []string // the names given to WithGroup
	opened int      // how many of them pre opens (JSON)
	prefix string   // the groups as a prefix of keys (logfmt, console)
	trail  []byte   // stacks of errors among the attributes of With, to follow the record (console)

	// For JSON, encoded once:
	lazy    string // opens the groups that pre does not, for the first attribute in them
	tail    string // closes what pre opens, and the record
	tailAll string // closes all groups, and the record
}

// seal computes what follows from the other fields.
func (s *scope) seal() {
	if s.e.form != formJSON {
		return
	}
	s.lazy = ""
	for _, name := range s.groups[s.opened:] {
		s.lazy += jsonKey(name) + "{"
	}
	s.tail, s.tailAll = closing(s.opened+1), closing(len(s.groups)+1)
}

const closers = "}}}}}}}}}}}}}}}}\n"

// closing returns n braces and the end of the line.
func closing(n int) string {
	if n < len(closers) {
		return closers[len(closers)-1-n:]
	}
	return strings.Repeat("}", n) + "\n"
}

func (s *scope) WithGroup(name string) Scope {
	if name == "" {
		return s
	}
	n := *s
	n.groups = append(s.groups[:len(s.groups):len(s.groups)], name)
	if s.e.form != formJSON {
		n.prefix = s.prefix + string(appendName(nil, name)) + "."
	}
	n.seal()
	return &n
}

func (s *scope) WithAttrs(attrs []slog.Attr) Scope {
	if len(attrs) == 0 {
		return s
	}
	w := walker{leaf: leaf{s.e, nil, s.e.form}, scope: s, base: -1}
	pre := make([]byte, 0, len(s.pre)+len(s.lazy)+2+48*len(attrs))
	pre = append(pre, s.pre...)
	if s.e.form == formJSON && len(pre) == 0 {
		pre = append(pre, ',')
	}
	if s.lazy != "" {
		pre = append(comma(pre), s.lazy...)
	}
	start := len(pre)
	pre = w.attrs(pre, attrs)
	w.free()
	if len(pre) == start {
		return s // nothing but empty groups and attributes
	}
	n := *s
	n.pre = pre[:len(pre):len(pre)]
	n.opened = len(s.groups)
	n.trail = append(s.trail[:len(s.trail):len(s.trail)], w.trail...)
	n.seal()
	return &n
}

func (s *scope) Append(dst []byte, r *Record) ([]byte, batch.Meta, error) {
	m := batch.Meta{Time: unixNano(r.Time), Level: r.Level}
	e := s.e
	if e.form == formJSON && e.replace == nil {
		return s.appendJSON(dst, r), m, nil
	}
	w := walker{leaf: leaf{e, &r.cache, e.form}, scope: s, base: len(dst)}
	switch {
	case e.form == formConsole:
		dst = w.headConsole(dst, r)
	case e.replace != nil:
		dst = w.builtins(dst, r)
	default:
		dst = w.headLogfmt(dst, r)
	}
	if e.form == formJSON {
		dst = s.appendAttrsJSON(&w, dst, r.Attrs)
	} else {
		dst = s.appendAttrsText(&w, dst, r.Attrs)
	}
	w.free()
	return dst, m, nil
}

// builtins appends the built-in attributes by way of ReplaceAttr.
func (w *walker) builtins(dst []byte, r *Record) []byte {
	e := w.e
	if e.form == formJSON {
		dst = append(dst, '{')
	}
	within := w.scope
	w.scope = e.root // the built-in attributes lie in no group
	if !r.Time.IsZero() && e.timeKey != omitted {
		dst = w.builtin(dst, slog.Time(e.timeKey, r.Time))
	}
	if e.levelKey != omitted {
		dst = w.builtin(dst, slog.Any(e.levelKey, r.Level))
	}
	if e.source {
		src := new(slog.Source)
		if r.PC != 0 {
			*src = frameOf(r.PC).source
		}
		dst = w.builtin(dst, slog.Any(e.sourceKey, src))
	}
	if e.messageKey != omitted {
		dst = w.builtin(dst, slog.String(e.messageKey, r.Message))
	}
	w.free()
	w.scope = within
	return dst
}

// namesPool holds the paths of open groups of records on their way.
var namesPool = sync.Pool{New: func() any { s := make([]string, 0, 16); return &s }}
