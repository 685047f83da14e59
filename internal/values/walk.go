package values

import (
	"log/slog"
	"sync"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// namesPool holds the paths of open groups of records on their way.
var namesPool = sync.Pool{New: func() any { s := make([]string, 0, 16); return &s }}

// attrsJSON is attrs for JSON without a ReplaceAttr. The common kinds are
// handled here, without further calls, the rest by attr.
func (w *Walker) attrsJSON(dst []byte, attrs []slog.Attr) []byte {
	for i := range attrs {
		a := &attrs[i]
		switch a.Value.Kind() {
		case slog.KindString:
			dst = jsontext.AppendString(jsontext.AppendKey(dst, a.Key), a.Value.String())
		case slog.KindInt64:
			dst = jsontext.AppendInt(jsontext.AppendKey(dst, a.Key), a.Value.Int64())
		case slog.KindUint64:
			dst = jsontext.AppendUint(jsontext.AppendKey(dst, a.Key), a.Value.Uint64())
		case slog.KindBool:
			dst = jsontext.AppendBool(jsontext.AppendKey(dst, a.Key), a.Value.Bool())
		case slog.KindFloat64:
			dst = w.float(jsontext.AppendKey(dst, a.Key), a.Value.Float64(), 64)
		case slog.KindDuration:
			dst = w.duration(jsontext.AppendKey(dst, a.Key), a.Value.Duration())
		case slog.KindTime:
			dst = w.Time(jsontext.AppendKey(dst, a.Key), a.Value.Time(), attrTime)
		case slog.KindGroup:
			dst = w.group(dst, a.Key, a.Value.Group(), false)
		case slog.KindAny:
			if v := a.Value.Any(); v != nil || a.Key != "" {
				dst = w.Any(dst, a.Key, v)
			}
		default:
			dst = w.attr(dst, *a)
		}
	}
	return dst
}

// keyText appends what separates the attribute from the one before, the groups
// it lies in, and its key.
func (w *Walker) keyText(dst []byte, key, suffix string) []byte {
	if len(dst) != w.Base {
		dst = append(dst, ' ')
	}
	if w.Style.Color {
		dst = append(dst, ColorFaint...)
	}
	dst = append(dst, w.In.Prefix...)
	if w.names != nil {
		for _, name := range (*w.names)[len(w.In.Groups):] {
			dst = append(jsontext.AppendName(dst, name), '.')
		}
	}
	dst = jsontext.AppendName(dst, key)
	dst = append(append(dst, suffix...), '=')
	if w.Style.Color {
		dst = append(dst, ColorOff...)
	}
	return dst
}

// Within is what attributes lie in.
type Within struct {
	Groups []string // the names of groups, outermost first
	Prefix string   // the same as a prefix of keys (logfmt, console)
}

// outermost is where values lie that are in no group.
var outermost Within

// A Walker encodes the attributes of one record, or of one With. It carries what
// has to be known on the way and lives on the stack of its maker.
type Walker struct {
	Leaf
	In    *Within
	Base  int // where the record begins in dst; -1: something stands before it
	depth int // of open groups within the record
	spent int // groups that LogValuers and AttrAppenders have made, and LogValuers within values
	level int // of values that a tree has entered
	nodes int // how many it has entered
	names *[]string
	Trail []byte // what follows the record's line (console)

	// Builtin is set while the built-in attributes are written. As in slog, ReplaceAttr
	// gets no groups for them, nor for what lies in those that are groups.
	Builtin bool
}

const (
	// maxGroups is how deep groups may lie within each other. A LogValuer can
	// return a group with itself inside.
	maxGroups = 100
	// maxExpansions is how many groups the LogValuers and AttrAppenders of one
	// record may return, as such a group may contain the like twice.
	maxExpansions = 1 << 16
)

const (
	tooDeep = "!ERROR: groups nested too deep"
	tooMany = "!ERROR: too many groups made by LogValuers"
)

// Free gives back what the walker has borrowed.
func (w *Walker) Free() {
	if w.names != nil {
		w.release()
	}
}

func (w *Walker) release() {
	clear(*w.names)
	*w.names = (*w.names)[:0]
	if cap(*w.names) <= 4*maxGroups {
		namesPool.Put(w.names)
	}
	w.names = nil
}

// path returns the names of the open groups, those of the scope first.
func (w *Walker) path() *[]string {
	if w.names == nil {
		w.names = namesPool.Get().(*[]string)
		*w.names = append(*w.names, w.In.Groups...)
	}
	return w.names
}

// Attrs appends attrs and what separates them. It appends nothing if there is
// nothing to show.
func (w *Walker) Attrs(dst []byte, attrs []slog.Attr) []byte {
	switch {
	case w.Style.Replace != nil:
		for i := range attrs {
			dst = w.attr(dst, attrs[i])
		}
		return dst
	case w.Form == FormJSON:
		return w.attrsJSON(dst, attrs)
	}
	for i := range attrs {
		dst = w.Shown(dst, attrs[i], false)
	}
	return dst
}

// attr appends one attribute of any kind.
func (w *Walker) attr(dst []byte, a slog.Attr) []byte {
	kind := a.Value.Kind()
	made := kind == slog.KindLogValuer
	if made {
		a.Value = a.Value.Resolve()
		kind = a.Value.Kind()
	}
	if w.Style.Replace != nil && kind != slog.KindGroup {
		var groups []string
		if !w.Builtin {
			groups = *w.path()
		}
		a = w.Replace(groups, a)
	}
	return w.Shown(dst, a, made)
}

// Shown appends an attribute after ReplaceAttr, if there is one.
func (w *Walker) Shown(dst []byte, a slog.Attr, made bool) []byte {
	kind := a.Value.Kind()
	if kind == slog.KindLogValuer {
		a.Value, made = a.Value.Resolve(), true
		kind = a.Value.Kind()
	}
	switch kind {
	case slog.KindGroup:
		return w.group(dst, a.Key, a.Value.Group(), made)
	case slog.KindAny:
		v := a.Value.Any()
		if v == nil && a.Key == "" {
			return dst // the zero Attr
		}
		return w.Any(dst, a.Key, v)
	}
	dst = w.key(dst, a.Key)
	return w.Scalar(dst, a.Value)
}

// Replace calls ReplaceAttr.
func (w *Walker) Replace(path []string, a slog.Attr) (out slog.Attr) {
	defer func() {
		if p := recover(); p != nil {
			out = slog.String(a.Key, PanicText(p))
		}
	}()
	return w.Style.Replace(path, a)
}

// group appends the attributes of a group, and nothing if there are none to
// show. A group without a name is no group. made says that a LogValuer or
// AttrAppender has made it.
func (w *Walker) group(dst []byte, name string, attrs []slog.Attr, made bool) []byte {
	if len(attrs) == 0 {
		return dst
	}
	if made {
		w.spent++
		if w.spent > maxExpansions {
			return w.text(w.key(dst, name), tooMany)
		}
	}
	if w.depth >= maxGroups {
		return w.text(w.key(dst, name), tooDeep)
	}
	w.depth++
	if name == "" {
		dst = w.Attrs(dst, attrs)
		w.depth--
		return dst
	}
	start := len(dst)
	dst = w.open(dst, name)
	inside := len(dst)
	dst = w.Attrs(dst, attrs)
	w.shut()
	w.depth--
	if len(dst) == inside {
		return dst[:start]
	}
	if w.Form == FormJSON {
		dst = append(dst, '}')
	}
	return dst
}

// open begins a group: in JSON in the text, elsewhere in the keys to come.
func (w *Walker) open(dst []byte, name string) []byte {
	if w.Form == FormJSON {
		dst = append(w.key(dst, name), '{')
		if w.Style.Replace == nil {
			return dst // nobody asks for the path
		}
	}
	p := w.path()
	*p = append(*p, name)
	return dst
}

// shut ends what open began, but for the text.
func (w *Walker) shut() {
	if w.Form != FormJSON || w.Style.Replace != nil {
		p := w.path()
		*p = (*p)[:len(*p)-1]
	}
}

// key appends the separator, the key and what stands between it and its value.
func (w *Walker) key(dst []byte, key string) []byte {
	if w.Form == FormJSON {
		return jsontext.AppendKey(dst, key)
	}
	return w.keyText(dst, key, "")
}

// suffixed is key for what stands beside the attribute of that key.
func (w *Walker) suffixed(dst []byte, key, suffix string) []byte {
	if w.Form != FormJSON {
		return w.keyText(dst, key, suffix)
	}
	dst = append(jsontext.Comma(dst), '"')
	dst = jsontext.AppendEscaped(dst, key)
	dst = append(dst, suffix...)
	return append(dst, `":`...)
}
