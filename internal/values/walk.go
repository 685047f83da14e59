package values

import (
	"bytes"
	"hash/maphash"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// namesPool is the pool of slices for the names of open groups.
var namesPool = sync.Pool{New: func() any { s := make([]string, 0, 16); return &s }}

// attrsJSON is like Attrs, for JSON without ReplaceAttr. It inlines texts and numbers; see
// [rawValue].
func (w *Walker) attrsJSON(dst []byte, attrs []slog.Attr) []byte {
	for i := range attrs {
		a := &attrs[i]
		switch r := rawOf(&a.Value); r.typ {
		case rawText:
			dst = jsontext.AppendString(jsontext.AppendKey(dst, a.Key), r.text())
		case rawNumber:
			dst = jsontext.AppendKey(dst, a.Key)
			switch r.kind() {
			case slog.KindInt64:
				dst = jsontext.AppendInt(dst, int64(r.num))
			case slog.KindUint64:
				dst = jsontext.AppendUint(dst, r.num)
			case slog.KindBool:
				dst = jsontext.AppendBool(dst, r.num == 1)
			case slog.KindFloat64:
				dst = w.float(dst, math.Float64frombits(r.num), 64)
			case slog.KindDuration:
				dst = w.duration(dst, time.Duration(r.num))
			default:
				dst = w.Scalar(dst, a.Value)
			}
		default:
			dst = w.attrJSON(dst, a)
		}
	}
	return dst
}

// attrJSON implements attrsJSON for one attribute. It inlines values of slog.KindAny, times and
// groups, and calls attr for the others.
func (w *Walker) attrJSON(dst []byte, a *slog.Attr) []byte {
	if r := rawOf(&a.Value); r.typ != nil && rawText != rawNumber {
		// The cache of shapes is faster than the methods Kind and Any, which look up the methods of the type.
		if v := r.any(); shapeOf(v).kindAny {
			return w.Any(dst, a.Key, v)
		}
	}
	switch a.Value.Kind() {
	case slog.KindTime:
		return w.Time(jsontext.AppendKey(dst, a.Key), a.Value.Time(), attrTime)
	case slog.KindGroup:
		return w.group(dst, a.Key, a.Value.Group(), false)
	case slog.KindAny:
		if v := a.Value.Any(); v != nil || a.Key != "" {
			return w.Any(dst, a.Key, v)
		}
		return dst
	}
	return w.attr(dst, *a)
}

// keyText appends the separator, the names of the enclosing groups, the key and the suffix. It is
// used by the text formats, logfmt and console.
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

// rename returns a name for an attribute that is unique in the line. If the attribute is an error,
// the additional keys of the error, which are the name with a suffix, are also unique.
func (w *Walker) rename(dst []byte, key string, v slog.Value) string {
	var suffixes []string
	if v.Kind() == slog.KindAny {
		switch v.Any().(type) {
		case AttrAppender: // writes no key for itself
			return key
		case error:
			suffixes = w.Style.Errors.suffixes()
		}
	}
	c := w.cache()
	if w.Taken == nil {
		w.Taken = append(c.taken[:0], w.In.Taken...)
	}
	before := len(w.Taken)
	for !w.take(dst, key, "") || slices.ContainsFunc(suffixes, func(suffix string) bool { return !w.take(dst, key, suffix) }) {
		key, w.Taken = w.Style.Labels.Rename(key), w.Taken[:before]
	}
	if cap(w.Taken) <= maxTaken {
		c.taken = w.Taken
	}
	return key
}

// maxTaken is the maximum number of keys whose memory is reused.
const maxTaken = 512

// take adds a key to w.Taken and reports whether it is new. It uses the spare capacity of dst as
// scratch memory.
func (w *Walker) take(dst []byte, key, suffix string) bool {
	name := w.keyText(dst, key, suffix)[len(dst):]
	h := HashKey(bytes.Trim(name, " =")) // HashKey gets the key without separators
	if slices.Contains(w.Taken, h) {
		return false
	}
	w.Taken = append(w.Taken, h)
	return true
}

// HashKey returns the hash of a key of a line. Keys with equal hashes are treated as duplicates, so
// a key may be renamed unnecessarily, which does no harm.
func HashKey(key []byte) uint64 { return maphash.Bytes(keySeed, key) }

var keySeed = maphash.MakeSeed()

// Within describes the groups that enclose attributes.
type Within struct {
	Groups []string // group names, outermost first
	Prefix string   // the names as a prefix of keys (logfmt, console)
	Taken  []uint64 // hashes of the keys that the line already has, if Style.Labels is set
}

// outermost describes attributes in no group.
var outermost Within

// A Walker encodes the attributes of one record, or of one call of WithAttrs. Its creator allocates
// it on the stack.
type Walker struct {
	Leaf
	In         *Within
	Base       int // offset of the record in dst; -1 if dst already contains attributes
	depth      int // number of open groups within the record
	expansions int // number of groups returned by LogValuers and AttrAppenders, plus number of LogValuers within values
	nodes      int // number of composite values visited
	names      *[]string
	Trail      []byte // text that follows the line of the record (console)

	bare bool // the next call of the method key appends nothing

	Taken []uint64 // hashes of the keys of the line so far, if Style.Labels is set; in the memory of Cache

	// Builtin is set while built-in attributes are written. As in slog, ReplaceAttr then receives
	// no groups, even for attributes of a built-in attribute that is a group.
	Builtin bool
}

const (
	// MaxGroups limits the nesting of groups, because a LogValuer can return a group that contains
	// the LogValuer.
	MaxGroups = 100
	// MaxExpansions limits the number of groups that LogValuers and AttrAppenders return in one
	// record, because each returned group may contain further ones.
	MaxExpansions = 1 << 16
)

// The texts that replace a group beyond MaxGroups or MaxExpansions.
const (
	TooDeep = "!ERROR: groups nested too deeply"
	TooMany = "!ERROR: too many groups made by LogValuers"
)

// Free returns the memory of w to its pool.
func (w *Walker) Free() {
	if w.names != nil {
		w.release()
	}
}

func (w *Walker) release() {
	clear(*w.names)
	*w.names = (*w.names)[:0]
	if cap(*w.names) <= 4*MaxGroups {
		namesPool.Put(w.names)
	}
	w.names = nil
}

// path returns the names of the open groups: first those that enclose the attributes (see Within),
// then those within the record.
func (w *Walker) path() *[]string {
	if w.names == nil {
		w.names = namesPool.Get().(*[]string)
		*w.names = append(*w.names, w.In.Groups...)
	}
	return w.names
}

// Attrs appends attrs with their separators. It appends nothing if attrs contains only empty groups
// and empty attributes.
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
		dst = w.AppendReplaced(dst, attrs[i], false)
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
	return w.AppendReplaced(dst, a, made)
}

// AppendReplaced appends an attribute unchanged, without calling ReplaceAttr. made reports whether
// a LogValuer or an AttrAppender returned the attribute.
func (w *Walker) AppendReplaced(dst []byte, a slog.Attr, made bool) []byte {
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
			return dst // a zero Attr is not written
		}
		if w.Style.Labels != nil {
			a.Key = w.rename(dst, a.Key, a.Value)
		}
		return w.Any(dst, a.Key, v)
	}
	if w.Style.Labels != nil {
		a.Key = w.rename(dst, a.Key, a.Value)
	}
	dst = w.key(dst, a.Key)
	return w.Scalar(dst, a.Value)
}

// Replace returns the result of ReplaceAttr. If ReplaceAttr panics, the text of the panic is the
// value of the result.
func (w *Walker) Replace(path []string, a slog.Attr) slog.Attr {
	return Replaced(w.Style.Replace, path, a)
}

// group appends the attributes of a group, or nothing if it contains only empty groups and
// attributes. The attributes of a group without a name become members of the enclosing group. made
// reports whether a LogValuer or an AttrAppender returned the group.
func (w *Walker) group(dst []byte, name string, attrs []slog.Attr, made bool) []byte {
	if len(attrs) == 0 {
		return dst
	}
	if made {
		w.expansions++
		if w.expansions > MaxExpansions {
			return w.text(w.key(dst, name), TooMany)
		}
	}
	if w.depth >= MaxGroups {
		return w.text(w.key(dst, name), TooDeep)
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
	w.closeGroup()
	w.depth--
	if len(dst) == inside {
		return dst[:start]
	}
	if w.Form == FormJSON {
		dst = append(dst, '}')
	}
	return dst
}

// open begins a group. In JSON it appends the key and a brace. In the text formats it extends the
// prefix of keys.
func (w *Walker) open(dst []byte, name string) []byte {
	if w.Form == FormJSON {
		dst = append(w.key(dst, name), '{')
		if w.Style.Replace == nil {
			return dst // the names are not needed
		}
	}
	p := w.path()
	*p = append(*p, name)
	return dst
}

// closeGroup ends the group begun by open. It does not append the closing brace.
func (w *Walker) closeGroup() {
	if w.Form != FormJSON || w.Style.Replace != nil {
		p := w.path()
		*p = (*p)[:len(*p)-1]
	}
}

// key appends the separator, the key, and the text between key and value.
func (w *Walker) key(dst []byte, key string) []byte {
	if w.bare {
		w.bare = false
		return dst
	}
	if w.Form == FormJSON {
		return jsontext.AppendKey(dst, key)
	}
	return w.keyText(dst, key, "")
}

// suffixed is like key, for an additional member of the attribute: suffix is appended to the key.
func (w *Walker) suffixed(dst []byte, key, suffix string) []byte {
	if w.Form != FormJSON {
		return w.keyText(dst, key, suffix)
	}
	dst = append(jsontext.Comma(dst), '"')
	dst = jsontext.AppendEscaped(dst, key)
	dst = append(dst, suffix...)
	return append(dst, `":`...)
}
