package redact

import (
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/values"
)

const (
	// maxTexts limits the nesting of quoted JSON in texts.
	maxTexts = 8

	// maxKept is the maximum number of attributes whose memory is reused; larger slices are left to
	// the garbage collector.
	maxKept = 256
)

// Replacements for data that is not examined.
const (
	tooDeep  = "!ERROR: nested too deeply to be redacted"
	withheld = "!ERROR: withheld, because its redaction did not end"
)

// A Place is the state of the rules inside groups opened by WithGroup. It is immutable. A nil Place
// means no groups.
type Place struct {
	names []string
	nodes []*node // nodes that the names of the groups have reached in the trees of the rules
	all   bool    // a rule matches one of the groups, so all attributes inside are redacted
}

// Group returns the Place inside the named group, and the redacted name of the group.
func (r *Rules) Group(in *Place, name string) (*Place, string) {
	w := Walker{rules: r}
	at := w.enter(in)
	next, hit := w.step(at, name)
	shown, _ := w.match(name)
	p := &Place{all: hit, nodes: slices.Clone(w.nodes[next.from:next.to])}
	if in != nil {
		p.all, p.names = p.all || in.all, in.names
	}
	p.names = append(p.names[:len(p.names):len(p.names)], shown)
	return p, shown
}

// With returns a redacted copy of attrs, which a logger adds to all its records. If redaction
// panics, With returns the result of Withheld instead.
func (r *Rules) With(in *Place, attrs []slog.Attr) (out []slog.Attr) {
	defer func() {
		if recover() != nil {
			out = Withheld()
		}
	}()
	w := Walker{rules: r}
	return w.attrs(w.enter(in), slices.Clone(attrs), true)
}

// Withheld returns the replacement for attributes that cannot be redacted.
func Withheld() []slog.Attr { return []slog.Attr{slog.String("redaction", withheld)} }

// A span is a range of Walker.nodes: the nodes that the names so far have reached in the trees of
// the rules.
type span struct{ from, to int }

// A Walker applies rules to one record at a time and reuses its memory. It is not safe for
// concurrent use. The zero value is ready for use.
type Walker struct {
	rules   *Rules
	all     bool        // everything is redacted, see Place
	nodes   []*node     // a stack of spans
	names   []string    // names of the open groups, for functions
	key     string      // key of the current attribute
	spare   []slog.Attr // memory for groups that differ from the original
	folded  []byte
	scratch values.AttrScratch

	within int // number of enclosing values; within a value, a LogValuer is replaced only if the rules change its result

	depth      int // current depth of groups
	expansions int // number of groups that methods returned
	nodesSeen  int // number of composite values examined so far
	filter     *filter
}

// Record redacts the message and, in place, the attributes of a record, and returns them. The
// result may use memory of w, which is valid until the next [Walker.Reset].
func (w *Walker) Record(r *Rules, in *Place, message string, attrs []slog.Attr) (string, []slog.Attr) {
	w.rules, w.nodesSeen = r, 0
	at := w.enter(nil)
	if len(r.funcs) > 0 {
		message = w.replaceMessage(message)
	}
	message, _ = w.text(message, at, 0)
	if in != nil {
		at = w.enter(in)
	}
	return message, w.attrs(at, attrs, true)
}

// Reset clears the state of the record.
func (w *Walker) Reset() {
	w.rules, w.all, w.key = nil, false, ""
	w.nodes = w.nodes[:0]
	w.depth, w.expansions, w.within, w.nodesSeen = 0, 0, 0, 0
	if cap(w.spare) > maxKept {
		w.spare = nil
	}
	clear(w.spare)
	w.spare = w.spare[:0]
	clear(w.names)
	w.names = w.names[:0]
}

// enter begins a record at the given Place, and returns the nodes of that Place.
func (w *Walker) enter(in *Place) span {
	w.nodes, w.names, w.all = w.nodes[:0], w.names[:0], false
	if in == nil {
		if w.rules.paths != nil {
			w.nodes = append(w.nodes, w.rules.paths)
		}
	} else {
		w.nodes = append(w.nodes, in.nodes...)
		w.names = append(w.names, in.names...)
		w.all = in.all
	}
	return span{0, len(w.nodes)}
}

// step returns the nodes that name reaches in the trees of the rules, starting from the nodes in
// the span at. Each part of name between dots counts as a name. hit reports whether a rule matches
// name. step pushes nodes onto w.nodes; the caller removes them.
func (w *Walker) step(at span, name string) (next span, hit bool) {
	r := w.rules
	if !r.matchesNames() {
		return span{}, false
	}
	for {
		part, rest, more := strings.Cut(name, ".")
		w.folded = fold(w.folded[:0], part)
		hit = hit || r.matches(w.folded)
		if r.hasPaths() {
			start := len(w.nodes)
			for i := at.from; i < at.to; i++ {
				hit = w.push(w.nodes[i]) || hit
			}
			if r.anywhere != nil {
				hit = w.push(r.anywhere) || hit
			}
			at = span{start, len(w.nodes)}
		}
		if !more || hit {
			return at, hit
		}
		name = rest
	}
}

// push pushes the children of n for the name in w.folded. It reports whether a path ends at one of
// these children.
func (w *Walker) push(n *node) (hit bool) {
	if c := n.next[string(w.folded)]; c != nil {
		w.nodes = append(w.nodes, c)
		hit = c.end
	}
	if n.star != nil {
		w.nodes = append(w.nodes, n.star)
		hit = hit || n.star.end
	}
	return hit
}

// element returns the nodes that a list element reaches from the nodes in the span at. A path may
// contain a * for the elements of a list, or continue without it.
func (w *Walker) element(at span) (next span, hit bool) {
	start := len(w.nodes)
	for i := at.from; i < at.to; i++ {
		n := w.nodes[i]
		w.nodes = append(w.nodes, n)
		if n.star != nil {
			w.nodes = append(w.nodes, n.star)
			hit = hit || n.star.end
		}
	}
	return w.unique(start), hit
}

// unique removes duplicates from the nodes from index start on, and returns their span. Several
// paths can reach the same node, so without unique the number of nodes would grow with each level.
func (w *Walker) unique(start int) span {
	to := start
	for _, n := range w.nodes[start:] {
		if !slices.Contains(w.nodes[start:to], n) {
			w.nodes[to] = n
			to++
		}
	}
	w.nodes = w.nodes[:to]
	return span{start, to}
}

// attrs redacts attributes. If own is true, the slice is memory of the walker and is changed in
// place. Otherwise the slice is copied before an attribute is changed.
func (w *Walker) attrs(at span, attrs []slog.Attr, own bool) []slog.Attr {
	out := attrs
	n := 0 // number of attributes in out
	for i := range attrs {
		a := attrs[i]
		keep, changed := w.attr(at, &a)
		if (changed || !keep) && !own {
			own = true
			start := len(w.spare)
			w.spare = append(w.spare, attrs...)
			out = w.spare[start:len(w.spare):len(w.spare)]
		}
		if keep {
			if own {
				out[n] = a
			}
			n++
		}
	}
	return out[:n]
}

// attr redacts one attribute. keep is false if the attribute is removed.
func (w *Walker) attr(at span, a *slog.Attr) (keep, changed bool) {
	if a.Value.Kind() == slog.KindLogValuer {
		a.Value, changed = a.Value.Resolve(), w.within == 0
		if w.expansions++; w.expansions > values.MaxExpansions {
			a.Value, changed = slog.StringValue(values.TooMany), true
		}
	}
	mark := len(w.nodes)
	if a.Key == "" && a.Value.Kind() == slog.KindGroup { // a group without a name: its attributes belong to the enclosing group
		keep, ch := w.group(at, a)
		return keep, changed || ch
	}
	next, hit := w.step(at, a.Key)
	if hit || w.all {
		a.Value, changed = slog.StringValue(w.rules.text), true
	}
	if w.hasFuncs() && a.Value.Kind() != slog.KindGroup {
		b := w.replaceAttr(*a)
		if b.Equal(slog.Attr{}) {
			w.nodes = w.nodes[:mark]
			return false, true
		}
		if b.Key != a.Key {
			w.nodes = w.nodes[:mark]
			if next, hit = w.step(at, b.Key); hit || w.all {
				b.Value = slog.StringValue(w.rules.text)
			}
		}
		changed = changed || b.Key != a.Key || !same(&a.Value, &b.Value)
		*a = b
	}
	keep, ch := w.redactValue(next, a)
	changed = changed || ch
	if s, ch := w.match(a.Key); ch {
		a.Key, changed = s, true
	}
	w.nodes = w.nodes[:mark]
	return keep, changed
}

// redactValue redacts the value of an attribute. at is the span of nodes for its key.
func (w *Walker) redactValue(at span, a *slog.Attr) (keep, changed bool) {
	text := ""
	switch a.Value.Kind() {
	case slog.KindString:
		text, changed = w.text(a.Value.String(), at, 0)
	case slog.KindInt64, slog.KindUint64, slog.KindFloat64:
		text, changed = w.number(a.Value)
	case slog.KindGroup:
		return w.group(at, a)
	case slog.KindAny:
		x := a.Value.Any()
		if x == nil {
			return true, false
		}
		w.key = a.Key
		y, changed := w.redactAny(x, at)
		if changed {
			a.Value = slog.AnyValue(y)
		}
		return true, changed
	}
	if changed {
		a.Value = slog.StringValue(text)
	}
	return true, changed
}

// group redacts the attributes of the group a.
func (w *Walker) group(at span, a *slog.Attr) (keep, changed bool) {
	in := a.Value.Group()
	if len(in) == 0 {
		return true, false
	}
	if w.depth >= values.MaxGroups {
		a.Value = slog.StringValue(tooDeep)
		return true, true
	}
	w.depth++
	named := w.hasFuncs() && a.Key != ""
	if named {
		w.names = append(w.names, a.Key)
	}
	out := w.attrs(at, in, false)
	if named {
		w.names = w.names[:len(w.names)-1]
	}
	w.depth--
	if len(out) == len(in) && &out[0] == &in[0] {
		return true, false
	}
	a.Value = slog.GroupValue(out...)
	return len(out) > 0, true
}

// hasFuncs reports whether there are functions that receive attributes.
func (w *Walker) hasFuncs() bool { return len(w.rules.funcs) > 0 }

// same reports whether two values are identical in memory. It calls no methods of the values.
func same(a, b *slog.Value) bool {
	type words [unsafe.Sizeof(*a) / unsafe.Sizeof(uintptr(0))]uintptr
	return *(*words)(unsafe.Pointer(a)) == *(*words)(unsafe.Pointer(b))
}

// replaceAttr calls the functions of Config.Funcs for an attribute. If a function panics, the text
// of the panic becomes the value.
func (w *Walker) replaceAttr(a slog.Attr) slog.Attr {
	for _, fn := range w.rules.funcs {
		var groups []string
		if n := len(w.names); n > 0 {
			groups = w.names[:n:n]
		}
		a = values.Replaced(fn, groups, a)
		if a.Value = a.Value.Resolve(); a.Equal(slog.Attr{}) {
			break
		}
	}
	return a
}

// replaceMessage calls the functions of Config.Funcs for the message and returns the result. If a
// function returns an empty attribute, the message becomes empty.
func (w *Walker) replaceMessage(message string) string {
	a := w.replaceAttr(slog.String(slog.MessageKey, message))
	if a.Value.Kind() == slog.KindAny && a.Value.Any() == nil {
		return ""
	}
	return a.Value.String()
}

// number redacts a number. The patterns are matched against its text, because they may describe
// card or account numbers.
func (w *Walker) number(v slog.Value) (string, bool) {
	if len(w.rules.patterns) == 0 {
		return "", false
	}
	var buf [32]byte
	b := buf[:0]
	switch v.Kind() {
	case slog.KindInt64:
		b = strconv.AppendInt(b, v.Int64(), 10)
	case slog.KindUint64:
		b = strconv.AppendUint(b, v.Uint64(), 10)
	default:
		f := v.Float64()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return "", false
		}
		b = jsontext.AppendFloat(b, f, 64)
	}
	for _, re := range w.rules.patterns {
		if re.Match(b) {
			return w.match(string(b))
		}
	}
	return "", false
}

// redactAny redacts the value of an attribute, of a type that slog does not know. If the result is
// a group, it is returned as []slog.Attr.
func (w *Walker) redactAny(x any, at span) (out any, changed bool) {
	s := values.ShapeOf(reflect.TypeOf(x))
	if !w.rules.mayMatch(s) {
		return nil, false
	}
	o, isAppender := x.(values.AttrAppender)
	if isAppender {
		if out, changed = w.appender(o, at); changed || !w.rules.values() {
			return out, changed
		}
	}
	err, isError := x.(error)
	if isError {
		if err, ch := w.err(err, at); ch {
			return err, true
		}
	}
	if !isAppender && !isError {
		return w.value(x, at)
	}
	// Encoders of other packages may call the methods of x.
	if out, changed = w.methods(x, s.Methods, at); changed && isError {
		return w.cleaned(err, at), true
	}
	return out, changed
}

// String redacts a text that does not belong to a record.
func (r *Rules) String(s string) string {
	w := Walker{rules: r}
	s, _ = w.text(s, w.enter(nil), 0)
	return s
}
