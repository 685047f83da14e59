package loki

import (
	"log/slog"
	"slices"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/values"
)

// maxSettled limits the number of groups, lists and maps that a settler makes for one record and
// keeps until the record is written. Further values are evaluated wherever they are written. The
// limit bounds the memory of records with extreme nesting.
const maxSettled = 1 << 10

// A settler evaluates each value of a record once, although the value may be written to several
// places: the line, labels and metadata. It resolves LogValuers, converts AttrAppenders to groups
// and errors to text, and encodes lists, maps and structs that contain such values. It skips
// attributes that are written to the line only.
type settler struct {
	e *encoder
	p *picked
	r *encode.Record
}

// settle returns attrs, or a copy in p if a value was evaluated.
func (s *scope) settle(p *picked, r *encode.Record, attrs []slog.Attr) []slog.Attr {
	t := settler{s.e, p, r}
	return t.attrs(s.node, attrs, 0)
}

// attrs settles the attributes at node of the pick tree. It visits the same attributes as walk.
func (t *settler) attrs(node *pick, attrs []slog.Attr, depth int) []slog.Attr {
	var own []slog.Attr
	for i := range attrs {
		a := &attrs[i]
		switch a.Value.Kind() {
		case slog.KindAny:
			if !t.e.values.Asks(a.Value.Any()) {
				break
			}
			fallthrough
		case slog.KindGroup, slog.KindLogValuer:
			var c *pick
			if node != nil {
				c = node.children[a.Key]
			}
			if c == nil && !t.e.metadataAll && a.Key != "" {
				break
			}
			if a.Key == "" {
				c = node // inline group, as in walkGroup
			}
			v, changed := t.value(c, a.Value, depth)
			if !changed {
				break
			}
			if own == nil {
				if depth == 0 {
					own = t.p.once[:0]
				}
				own = append(slices.Grow(own, len(attrs)), attrs[:i]...)
			}
			own = append(own, slog.Attr{Key: a.Key, Value: v})
			continue
		}
		if own != nil {
			own = append(own, *a)
		}
	}
	if own == nil {
		return attrs
	}
	if depth == 0 {
		t.p.once = own
	}
	return own
}

// value returns v, or its evaluated form.
func (t *settler) value(c *pick, v slog.Value, depth int) (_ slog.Value, changed bool) {
	if v.Kind() == slog.KindLogValuer {
		if t.p.settled >= maxSettled {
			return v, false
		}
		t.p.settled++
		v, changed = v.Resolve(), true
	}
	switch v.Kind() {
	case slog.KindGroup:
		if in := v.Group(); depth < maxDepth && len(in) > 0 {
			if out := t.attrs(c, in, depth+1); &out[0] != &in[0] {
				return slog.GroupValue(out...), true
			}
		}
	case slog.KindAny:
		switch x := v.Any().(type) {
		case nil:
		case encode.AttrAppender: // before error, because a value may be both
			if depth >= maxDepth || t.p.settled >= maxSettled {
				break
			}
			t.p.settled++
			if list, ok := collect(x); ok {
				out := t.attrs(c, *list, depth+1)
				if len(out) > 0 && &out[0] == &(*list)[0] {
					out = slices.Clone(out)
				}
				putAttrs(list)
				return slog.GroupValue(out...), true
			}
		case error:
			return slog.AnyValue(t.known(x)), true
		default:
			if !t.e.values.Asks(x) { // result of a LogValuer
				break
			}
			if t.e.foreign {
				if y, ok := t.knownIn(x, 0); ok {
					return slog.AnyValue(y), true
				}
				break
			}
			start := len(t.p.buf)
			t.p.buf = t.e.values.AppendValue(t.p.buf, cacheOf(t.r), v)
			return slog.AnyValue(values.Rendered(t.p.buf[start:len(t.p.buf):len(t.p.buf)])), true
		}
	}
	return v, changed
}

// known returns err with its text. A foreign formatter may inspect the errors that err wraps, or
// keep it; it gets errors with their own encoding unchanged.
func (t *settler) known(err error) error {
	if t.e.foreign {
		if values.WritesItself(err) && !t.e.ours {
			return err
		}
		return values.Known(err)
	}
	p := t.p
	p.known = append(p.known, values.Know(err)) // append may move the slice; pointers to old elements stay valid
	return &p.known[len(p.known)-1]
}

// knownIn returns a copy of a list or map of a common type in which the errors have been
// converted to text, for foreign formatters.
func (t *settler) knownIn(x any, depth int) (any, bool) {
	if depth > maxDepth {
		return x, false
	}
	switch x := x.(type) {
	case error:
		return t.known(x), true
	case []error:
		return t.knownErrors(x), x != nil
	case *[]error:
		if x != nil {
			return t.knownErrors(*x), *x != nil
		}
	}
	if t.p.settled >= maxSettled { // it may contain itself
		return x, false
	}
	switch x := x.(type) {
	case []any:
		t.p.settled++
		var own []any
		for i, e := range x {
			if y, ok := t.knownIn(e, depth+1); ok {
				if own == nil {
					own = slices.Clone(x)
				}
				own[i] = y
			}
		}
		return own, own != nil
	case map[string]any:
		return knownMap(t, x, depth)
	case map[string]error:
		return knownMap(t, x, depth)
	}
	return x, false
}

func (t *settler) knownErrors(x []error) []error {
	own := make([]error, len(x))
	for i, err := range x {
		if err != nil {
			own[i] = t.known(err)
		}
	}
	return own
}

func knownMap[T any](t *settler, m map[string]T, depth int) (any, bool) {
	t.p.settled++
	var own map[string]T
	for key, e := range m {
		if y, ok := t.knownIn(e, depth+1); ok {
			if own == nil {
				own = make(map[string]T, len(m))
				for k, v := range m {
					own[k] = v
				}
			}
			own[key], _ = y.(T)
		}
	}
	return own, own != nil
}
