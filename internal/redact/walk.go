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
	// maxGroups, maxMade, maxDepth and maxNodes bound what is looked at. They are those
	// of the encoders, which write no more.
	maxGroups = 100     // groups within each other
	maxMade   = 1 << 16 // groups that LogValuers and AttrAppenders of one record make
	maxDepth  = 1000    // values within each other
	maxNodes  = 1 << 20 // values of one record

	// maxTexts is how many texts may stand quoted within each other.
	maxTexts = 8

	// maxKept is the number of attributes above which memory goes to the garbage
	// collector.
	maxKept = 256
)

// The texts in place of what is not looked at. They are known to be clean.
const (
	tooDeep  = "!ERROR: nested too deep to be redacted"
	tooMany  = "!ERROR: too many groups made by LogValuers"
	withheld = "!ERROR: withheld, because its redaction did not end"
)

// A Place is what the groups that WithGroup opened mean to the rules. It is immutable.
// A nil Place is outside of all groups.
type Place struct {
	names []string
	nodes []*node // the rules' paths have come so far
	all   bool    // a rule names one of the groups: everything in it is taken out
}

// Group returns the place within a group, and the name under which it is shown.
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

// With returns attrs as they are to be encoded for all records under a logger. attrs is
// not changed. A panic within the rules withholds all of them.
func (r *Rules) With(in *Place, attrs []slog.Attr) (out []slog.Attr) {
	defer func() {
		if recover() != nil {
			out = Withheld()
		}
	}()
	w := Walker{rules: r, left: maxNodes}
	return w.attrs(w.enter(in), slices.Clone(attrs), true)
}

// Withheld returns the attributes in place of those that could not be redacted.
func Withheld() []slog.Attr { return []slog.Attr{slog.String("redaction", withheld)} }

// A span is a part of Walker.nodes: the paths that have come so far.
type span struct{ from, to int }

// A Walker applies rules to one record at a time and has the memory for it. It is not
// safe for concurrent use. The zero value is useful.
type Walker struct {
	rules  *Rules
	all    bool        // everything is taken out, see Place
	nodes  []*node     // a stack of spans
	names  []string    // of the open groups, for functions
	key    string      // of the attribute whose value is looked at
	spare  []slog.Attr // backs groups that differ from the caller's
	folded []byte

	within int // values that what is looked at lies in: where they stay as they are, LogValuers in them do, too
	muted  int // those of them whose attributes functions are not shown

	depth int // of groups
	made  int // groups that methods have made
	left  int // values that may still be looked at
	over  bool
}

// Record redacts the message and, in place, the attributes of a record, and returns
// them. What the attributes hold of w is valid until the next [Walker.Reset].
func (w *Walker) Record(r *Rules, in *Place, message string, attrs []slog.Attr) (string, []slog.Attr) {
	w.rules, w.left = r, maxNodes
	at := w.enter(nil)
	if len(r.funcs) > 0 {
		message = w.offerMessage(message)
	}
	message, _ = w.text(message, at, 0)
	if in != nil {
		at = w.enter(in)
	}
	return message, w.attrs(at, attrs, true)
}

// Reset forgets the record.
func (w *Walker) Reset() {
	w.rules, w.all, w.key = nil, false, ""
	w.nodes = w.nodes[:0]
	w.depth, w.made, w.within, w.muted = 0, 0, 0, 0
	if cap(w.spare) > maxKept {
		w.spare = nil
	}
	clear(w.spare)
	w.spare = w.spare[:0]
	clear(w.names)
	w.names = w.names[:0]
}

// enter begins at a place.
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

// step goes on to a name, each of whose parts between dots counts, and reports whether
// a rule ends there. It pushes onto w.nodes what the caller pops.
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

// push pushes what follows n by the part in w.folded, and reports whether a path ends.
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

// element goes on to the elements of a list: a path may have a * for them, or nothing.
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

// unique returns the nodes from start on as a span, each of them once: the same ones may be
// reached in many ways, and more with each level.
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

// attrs redacts attributes that lie at a place. If they are the walker's own they are
// changed where they are, else a copy is, if anything in them changes.
func (w *Walker) attrs(at span, attrs []slog.Attr, own bool) []slog.Attr {
	out := attrs
	n := 0 // of out
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

// attr redacts one attribute. It reports whether the attribute stays, and whether it
// has changed.
func (w *Walker) attr(at span, a *slog.Attr) (keep, changed bool) {
	if a.Value.Kind() == slog.KindLogValuer {
		a.Value, changed = a.Value.Resolve(), w.within == 0
		if w.made++; w.made > maxMade {
			a.Value, changed = slog.StringValue(tooMany), true
		}
	}
	mark := len(w.nodes)
	if a.Key == "" && a.Value.Kind() == slog.KindGroup { // no group
		keep, ch := w.group(at, a)
		return keep, changed || ch
	}
	next, hit := w.step(at, a.Key)
	if hit || w.all {
		a.Value, changed = slog.StringValue(w.rules.text), true
	}
	if w.offers() && a.Value.Kind() != slog.KindGroup {
		b := w.offer(*a)
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

// inside redacts the value of an attribute, which lies at that place.
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

// group redacts the attributes of a, which is a group at that place.
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
	named := w.offers() && a.Key != ""
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

// offers reports whether there are functions to show attributes to.
func (w *Walker) offers() bool { return len(w.rules.funcs) > 0 && w.muted == 0 }

// same reports whether two values are one: no method of theirs is called for it.
func same(a, b *slog.Value) bool {
	type words [unsafe.Sizeof(*a) / unsafe.Sizeof(uintptr(0))]uintptr
	return *(*words)(unsafe.Pointer(a)) == *(*words)(unsafe.Pointer(b))
}

// offer shows an attribute to the functions. A panic becomes the value.
func (w *Walker) offer(a slog.Attr) slog.Attr {
	for _, fn := range w.rules.funcs {
		if a = w.call(fn, w.names[:len(w.names):len(w.names)], a); a.Equal(slog.Attr{}) {
			break
		}
	}
	return a
}

func (w *Walker) call(fn Func, groups []string, a slog.Attr) (out slog.Attr) {
	defer func() {
		if p := recover(); p != nil {
			out = slog.String(a.Key, values.PanicText(p))
		}
	}()
	if len(groups) == 0 {
		groups = nil
	}
	out = fn(groups, a)
	if out.Value.Kind() == slog.KindLogValuer {
		out.Value = out.Value.Resolve()
	}
	return out
}

// offerMessage shows the message to the functions. What they return is the message, an
// empty attribute an empty one.
func (w *Walker) offerMessage(message string) string {
	a := w.offer(slog.String(slog.MessageKey, message))
	if a.Value.Kind() == slog.KindAny && a.Value.Any() == nil {
		return ""
	}
	return a.Value.String()
}

// number redacts a number by its text, as patterns may be meant for those of cards or
// accounts.
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

// any redacts a value of none of slog's own kinds. A group is returned as []slog.Attr.
func (w *Walker) any(x any, at span) (out any, changed bool) {
	over := w.over
	w.over = false
	v := reflect.ValueOf(x)
	if out, changed = w.value(v, w.rules.plan(v.Type()), at, 0); w.over {
		out, changed = tooDeep, true
	}
	w.over = over
	return out, changed
}

// String redacts a text that stands outside of all records.
func (r *Rules) String(s string) string {
	w := Walker{rules: r, left: maxNodes}
	s, _ = w.text(s, w.enter(nil), 0)
	return s
}
