package encode

import (
	"log/slog"
)

// A walker encodes the attributes of one record, or of one With. It carries what
// has to be known on the way and lives on the stack of its maker.
type walker struct {
	leaf
	scope *scope
	base  int // where the record begins in dst; -1: something stands before it
	depth int // of open groups within the record
	spent int // groups that LogValuers and AttrAppenders have made
	names *[]string
	trail []byte // what follows the record's line (console)
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

// free gives back what the walker has borrowed.
func (w *walker) free() {
	if w.names != nil {
		w.release()
	}
}

func (w *walker) release() {
	clear(*w.names)
	*w.names = (*w.names)[:0]
	if cap(*w.names) <= 4*maxGroups {
		namesPool.Put(w.names)
	}
	w.names = nil
}

// path returns the names of the open groups, those of the scope first.
func (w *walker) path() *[]string {
	if w.names == nil {
		w.names = namesPool.Get().(*[]string)
		*w.names = append(*w.names, w.scope.groups...)
	}
	return w.names
}

// attrs appends attrs and what separates them. It appends nothing if there is
// nothing to show.
func (w *walker) attrs(dst []byte, attrs []slog.Attr) []byte {
	switch {
	case w.e.replace != nil:
		for i := range attrs {
			dst = w.attr(dst, attrs[i])
		}
		return dst
	case w.form == formJSON:
		return w.attrsJSON(dst, attrs)
	}
	for i := range attrs {
		dst = w.shown(dst, attrs[i], false)
	}
	return dst
}

// attr appends one attribute of any kind.
func (w *walker) attr(dst []byte, a slog.Attr) []byte {
	kind := a.Value.Kind()
	made := kind == slog.KindLogValuer
	if made {
		a.Value = a.Value.Resolve()
		kind = a.Value.Kind()
	}
	if w.e.replace != nil && kind != slog.KindGroup {
		a = w.replace(*w.path(), a)
	}
	return w.shown(dst, a, made)
}

// builtin is attr for a built-in attribute, which lies in no group.
func (w *walker) builtin(dst []byte, a slog.Attr) []byte {
	return w.shown(dst, w.replace(nil, a), false)
}

// shown appends an attribute after ReplaceAttr, if there is one.
func (w *walker) shown(dst []byte, a slog.Attr, made bool) []byte {
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
		return w.any(dst, a.Key, v)
	}
	dst = w.key(dst, a.Key)
	return w.scalar(dst, a.Value)
}

// replace calls ReplaceAttr.
func (w *walker) replace(path []string, a slog.Attr) (out slog.Attr) {
	defer func() {
		if p := recover(); p != nil {
			out = slog.String(a.Key, panicText(p))
		}
	}()
	return w.e.replace(path, a)
}

// group appends the attributes of a group, and nothing if there are none to
// show. A group without a name is no group. made says that a LogValuer or
// AttrAppender has made it.
func (w *walker) group(dst []byte, name string, attrs []slog.Attr, made bool) []byte {
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
		dst = w.attrs(dst, attrs)
		w.depth--
		return dst
	}
	start := len(dst)
	dst = w.open(dst, name)
	inside := len(dst)
	dst = w.attrs(dst, attrs)
	w.shut()
	w.depth--
	if len(dst) == inside {
		return dst[:start]
	}
	if w.form == formJSON {
		dst = append(dst, '}')
	}
	return dst
}

// open begins a group: in JSON in the text, elsewhere in the keys to come.
func (w *walker) open(dst []byte, name string) []byte {
	if w.form == formJSON {
		dst = append(w.key(dst, name), '{')
		if w.e.replace == nil {
			return dst // nobody asks for the path
		}
	}
	p := w.path()
	*p = append(*p, name)
	return dst
}

// shut ends what open began, but for the text.
func (w *walker) shut() {
	if w.form != formJSON || w.e.replace != nil {
		p := w.path()
		*p = (*p)[:len(*p)-1]
	}
}

// key appends the separator, the key and what stands between it and its value.
func (w *walker) key(dst []byte, key string) []byte {
	if w.form == formJSON {
		return appendKeyJSON(dst, key)
	}
	return w.keyText(dst, key, "")
}

// suffixed is key for what stands beside the attribute of that key.
func (w *walker) suffixed(dst []byte, key, suffix string) []byte {
	if w.form != formJSON {
		return w.keyText(dst, key, suffix)
	}
	dst = append(comma(dst), '"')
	dst = appendEscaped(dst, key)
	dst = append(dst, suffix...)
	return append(dst, `":`...)
}
