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
	// These constants limit the values that are examined. The encoders have the same limits
	// and write no more.
	maxGroups     = 100     // depth of groups
	maxExpansions = 1 << 16 // groups made by LogValuers and AttrAppenders of one record
	maxDepth      = 1000    // depth of values

	// maxTexts limits the nesting of quoted texts.
	maxTexts = 8

	// maxKept limits the attributes kept for reuse; larger slices are left to the garbage
	// collector.
	maxKept = 256
)

// Replacements for data that is not examined. They are known to contain no secrets.
const (
	tooDeep  = "!ERROR: nested too deeply to be redacted"
	tooMany  = "!ERROR: too many groups made by LogValuers"
	withheld = "!ERROR: withheld, because its redaction did not end"
)

// A Place describes the groups opened by WithGroup with respect to the rules. It is
// immutable. A nil Place is outside all groups.
type Place struct {
	names []string
	nodes []*node // nodes reached by the rules' paths
	all   bool    // a rule matches one of the groups: all its contents are redacted
}

// Group returns the place inside a group and the name under which the group is shown.
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

// With returns attrs, redacted for all records of a logger. attrs is not modified. If the
// rules panic, all attributes are withheld.
func (r *Rules) With(in *Place, attrs []slog.Attr) (out []slog.Attr) {
	defer func() {
		if recover() != nil {
			out = Withheld()
		}
	}()
	w := Walker{rules: r}
	return w.attrs(w.enter(in), slices.Clone(attrs), true)
}

// Withheld returns the replacement for attributes that could not be redacted.
func Withheld() []slog.Attr { return []slog.Attr{slog.String("redaction", withheld)} }

// A span is a range of Walker.nodes: the nodes reached by the paths.
type span struct{ from, to int }

// A Walker applies rules to one record at a time and owns the memory for it. It is not safe
// for concurrent use. The zero value is ready to use.
type Walker struct {
	rules   *Rules
	all     bool        // everything is redacted; see Place
	nodes   []*node     // a stack of spans
	names   []string    // of the open groups, for functions
	key     string      // of the current attribute
	spare   []slog.Attr // backing memory of groups that differ from the caller's
	folded  []byte
	scratch values.AttrScratch

	within int // enclosing values; if they are unchanged, so are LogValuers in them

	depth      int // of groups
	expansions int // groups made by methods
	nodesSeen  int // composite values
	filter     *filter
}

// Record redacts the message and, in place, the attributes of a record, and returns them.
// Memory of w that the attributes reference is valid until the next [Walker.Reset].
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

// enter starts at a place.
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

// step advances by a name, each dot-separated part in turn, and reports whether a rule ends
// there. The caller pops the nodes that step pushes onto w.nodes.
func (w *Walker) step(at span, name string) (next span, hit bool) {
	r := w.rules
	if !r.named() {
		return span{}, false
	}
	for {
		part, rest, more := strings.Cut(name, ".")
		w.folded = fold(w.folded[:0], part)
		hit = hit || r.hits(w.folded)
		if r.tree() {
			start := len(w.nodes)
			for i := at.from; i < at.to; i++ {
				hit = w.push(w.nodes[i]) || hit
			}
			if r.floats != nil {
				hit = w.push(r.floats) || hit
			}
			at = span{start, len(w.nodes)}
		}
		if !more || hit {
			return at, hit
		}
		name = rest
	}
}

// push pushes the successors of n for the part in w.folded and reports whether a path ends
// at one.
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

// element advances to the elements of a list: a path may have a * for them or omit them.
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

// unique removes duplicates from the nodes at start and above and returns their span. A
// node can be reached by many routes, and by more at each level.
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

// attrs redacts the attributes at a place. Attributes owned by the walker are changed in
// place; otherwise a copy is made if anything changes.
func (w *Walker) attrs(at span, attrs []slog.Attr, own bool) []slog.Attr {
	out := attrs
	n := 0 // length of out
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

// attr redacts one attribute. It reports whether to keep the attribute and whether it
// changed.
func (w *Walker) attr(at span, a *slog.Attr) (keep, changed bool) {
	if a.Value.Kind() == slog.KindLogValuer {
		a.Value, changed = a.Value.Resolve(), w.within == 0
		if w.expansions++; w.expansions > maxExpansions {
			a.Value, changed = slog.StringValue(tooMany), true
		}
	}
	mark := len(w.nodes)
	if a.Key == "" && a.Value.Kind() == slog.KindGroup { // an inlined group
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
	keep, ch := w.inside(next, a)
	changed = changed || ch
	if s, ch := w.match(a.Key); ch {
		a.Key, changed = s, true
	}
	w.nodes = w.nodes[:mark]
	return keep, changed
}

// inside redacts the value of an attribute at a place.
func (w *Walker) inside(at span, a *slog.Attr) (keep, changed bool) {
	if a.Value.Kind() != slog.KindAny {
		return w.scalar(at, a)
	}
	x := a.Value.Any()
	if x == nil {
		return true, false
	}
	w.key = a.Key
	y, changed := w.any(x, at)
	if changed {
		a.Value = slog.AnyValue(y)
	}
	return true, changed
}

// scalar redacts a value of one of slog's own kinds.
func (w *Walker) scalar(at span, a *slog.Attr) (keep, changed bool) {
	switch a.Value.Kind() {
	case slog.KindString:
		s, ch := w.text(a.Value.String(), at, 0)
		if ch {
			a.Value = slog.StringValue(s)
		}
		return true, ch
	case slog.KindInt64, slog.KindUint64, slog.KindFloat64:
		s, ch := w.number(a.Value)
		if ch {
			a.Value = slog.StringValue(s)
		}
		return true, ch
	case slog.KindGroup:
		return w.group(at, a)
	}
	return true, false
}

// group redacts the attributes of the group a.
func (w *Walker) group(at span, a *slog.Attr) (keep, changed bool) {
	in := a.Value.Group()
	if len(in) == 0 {
		return true, false
	}
	if w.depth >= maxGroups {
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

// hasFuncs reports whether there are functions, to which attributes are passed.
func (w *Walker) hasFuncs() bool { return len(w.rules.funcs) > 0 }

// same reports whether two values are identical. It calls none of their methods.
func same(a, b *slog.Value) bool {
	type words [unsafe.Sizeof(*a) / unsafe.Sizeof(uintptr(0))]uintptr
	return *(*words)(unsafe.Pointer(a)) == *(*words)(unsafe.Pointer(b))
}

// replaceAttr passes an attribute to the functions. A panic becomes the value.
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

// replaceMessage passes the message to the functions and returns the result. An empty
// attribute yields an empty message.
func (w *Walker) replaceMessage(message string) string {
	a := w.replaceAttr(slog.String(slog.MessageKey, message))
	if a.Value.Kind() == slog.KindAny && a.Value.Any() == nil {
		return ""
	}
	return a.Value.String()
}

// number redacts a number by its text: patterns may match card or account numbers.
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

// any redacts an attribute whose value is none of slog's kinds. A group is returned as
// []slog.Attr.
func (w *Walker) any(x any, at span) (out any, changed bool) {
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
	// Encoders of other packages may call other methods.
	if out, changed = w.methods(x, s.Methods, at); changed && isError {
		return w.cleaned(err, at), true
	}
	return out, changed
}

// String redacts a text outside any record.
func (r *Rules) String(s string) string {
	w := Walker{rules: r}
	s, _ = w.text(s, w.enter(nil), 0)
	return s
}
