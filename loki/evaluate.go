package loki

import (
	"log/slog"
	"slices"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/labelname"
	"github.com/forebay-log/forebay/internal/values"
)

// maxEvaluations limits how many groups, lists and maps an evaluator creates and retains for one
// record. Each further value is evaluated again wherever it is written. This bounds the memory for
// records with extreme nesting.
const maxEvaluations = 1 << 10

// An evaluator evaluates each value of a record once, although the value may be written to the
// line, to labels and to metadata. It resolves LogValuers, converts AttrAppenders to groups and
// errors to text, and encodes lists, maps and structs that contain such values. It skips attributes
// that are written only to the line. An evaluator is used by one goroutine, for one record or for
// the attributes of one scope.
type evaluator struct {
	e *encoder
	p *picked
	r *encode.Record
}

// The method attrs evaluates the attributes in the slice attrs. The parameter node belongs to these
// attributes in the tree of picks. The same attributes are visited as by encoder.walk. The slice is
// not modified; it is returned itself if nothing was evaluated. depth is the number of enclosing
// groups.
func (t *evaluator) attrs(node *pick, attrs []slog.Attr, depth int) []slog.Attr {
	var own []slog.Attr
	for i := range attrs {
		a := &attrs[i]
		switch a.Value.Kind() {
		case slog.KindAny:
			// Evaluating a value twice is harmless if no method of the user is called.
			if !t.e.values.CallsMethods(a.Value.Any()) {
				break
			}
			fallthrough
		case slog.KindGroup, slog.KindLogValuer:
			var c *pick
			if node != nil {
				c = node.children[a.Key]
			}
			// The attribute is written only to the line, so evaluating it here would save nothing.
			if c == nil && !t.e.metadataAll && a.Key != "" {
				break
			}
			if a.Key == "" {
				c = node // the attributes of a group without a name belong to the enclosing group
			}
			v, changed := t.value(c, a.Value, depth)
			if !changed {
				break
			}
			if own == nil {
				if depth == 0 {
					own = t.p.evaluated[:0]
				}
				// This is the first changed attribute. The attributes before it are copied, because
				// the slice belongs to the caller.
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
		t.p.evaluated = own
	}
	return own
}

// value returns the evaluated form of v, or v if v needs no evaluation. If v is a group, c is the
// pick of the group: the node for its attributes.
func (t *evaluator) value(c *pick, v slog.Value, depth int) (_ slog.Value, changed bool) {
	if v.Kind() == slog.KindLogValuer {
		// A LogValuer can return groups with further LogValuers without end.
		if t.p.evaluations >= maxEvaluations {
			return v, false
		}
		t.p.evaluations++
		v, changed = v.Resolve(), true
	}
	switch v.Kind() {
	case slog.KindGroup:
		if in := v.Group(); depth < values.MaxGroups && len(in) > 0 {
			// The method attrs returns its argument itself if nothing was evaluated.
			if out := t.attrs(c, in, depth+1); &out[0] != &in[0] {
				return slog.GroupValue(out...), true
			}
		}
	case slog.KindAny:
		switch x := v.Any().(type) {
		case nil:
		// The case AttrAppender comes before the case error, because a value that is both is
		// written as a group.
		case encode.AttrAppender:
			if depth >= values.MaxGroups || t.p.evaluations >= maxEvaluations {
				break
			}
			t.p.evaluations++
			scratch := &cacheOf(t.r).Scratch
			if attrs, mark, fault := scratch.Collect(x); fault == "" {
				out := t.attrs(c, attrs, depth+1)
				if len(out) > 0 && &out[0] == &attrs[0] {
					// The slice out is part of the scratch memory, which Release clears.
					out = slices.Clone(out)
				}
				scratch.Release(mark)
				return slog.GroupValue(out...), true
			}
		case error:
			return slog.AnyValue(t.textError(x)), true
		default:
			// If writing v, the result of a LogValuer, calls no methods, it is not evaluated
			// further.
			if !t.e.values.CallsMethods(x) {
				break
			}
			if t.e.kind.isFormatter() {
				if y, ok := t.textErrorsIn(x, 0); ok {
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

// textError returns an error with the text of err, so that Error is called only once. A Formatter
// may inspect or retain the error, so errors.Is and errors.As find err in the result. An error that
// encodes itself as JSON or text is returned unchanged if the Formatter does not belong to package
// encode.
func (t *evaluator) textError(err error) error {
	if t.e.kind.isFormatter() {
		// Another Formatter may look for the methods of the error, which a wrapper would hide.
		if values.WritesItself(err) && t.e.kind != encodeFormatter {
			return err
		}
		return values.Known(err)
	}
	p := t.p
	// If append moves the slice, pointers to its elements remain valid, because they refer to the
	// old array.
	p.errorTexts = append(p.errorTexts, values.Know(err))
	return &p.errorTexts[len(p.errorTexts)-1]
}

// textErrorsIn returns a copy of a list or map with the errors replaced by textError. It is used
// for Formatters, and supports []error, []any and maps from string to any or error. If x contains
// no error, ok is false.
func (t *evaluator) textErrorsIn(x any, depth int) (any, bool) {
	if depth > values.MaxGroups {
		return x, false
	}
	switch x := x.(type) {
	case error:
		return t.textError(x), true
	case []error:
		return t.textErrors(x), x != nil
	case *[]error:
		if x != nil {
			return t.textErrors(*x), *x != nil
		}
	}
	if t.p.evaluations >= maxEvaluations { // a list or map may contain itself
		return x, false
	}
	switch x := x.(type) {
	case []any:
		t.p.evaluations++
		var own []any
		for i, e := range x {
			if y, ok := t.textErrorsIn(e, depth+1); ok {
				if own == nil {
					own = slices.Clone(x)
				}
				own[i] = y
			}
		}
		return own, own != nil
	case map[string]any:
		return textErrorMap(t, x, depth)
	case map[string]error:
		return textErrorMap(t, x, depth)
	}
	return x, false
}

// textErrors returns a copy of x with each error replaced by the result of textError.
func (t *evaluator) textErrors(x []error) []error {
	own := make([]error, len(x))
	for i, err := range x {
		if err != nil {
			own[i] = t.textError(err)
		}
	}
	return own
}

// textErrorMap implements textErrorsIn for a map. The copy has values of type T.
func textErrorMap[T any](t *evaluator, m map[string]T, depth int) (any, bool) {
	t.p.evaluations++
	var own map[string]T
	for key, e := range m {
		if y, ok := t.textErrorsIn(e, depth+1); ok {
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

// walk adds the labels, metadata and tenant from attrs to p. The parameter node belongs to attrs in
// the tree of picks; it is nil if no pick applies. r is nil if attrs belong to a scope. depth is
// the number of enclosing groups.
func (e *encoder) walk(p *picked, r *encode.Record, node *pick, attrs []slog.Attr, depth int) {
	for i := range attrs {
		a := &attrs[i]
		var c *pick
		if node != nil {
			c = node.children[a.Key]
		}
		kind := a.Value.Kind()
		// No part of this attribute becomes a label, metadata or the tenant.
		if c == nil && !e.metadataAll && a.Key != "" {
			continue
		}
		v := a.Value
		if kind == slog.KindLogValuer {
			v = v.Resolve()
			kind = v.Kind()
		}
		if kind == slog.KindAny {
			if x := v.Any(); x == nil {
				continue
			} else if o, ok := x.(encode.AttrAppender); ok {
				scratch := &cacheOf(r).Scratch
				if attrs, mark, fault := scratch.Collect(o); fault == "" {
					e.walkGroup(p, r, node, c, a.Key, attrs, depth)
					scratch.Release(mark)
				}
				continue
			}
		}
		if kind == slog.KindGroup {
			e.walkGroup(p, r, node, c, a.Key, v.Group(), depth)
			continue
		}
		e.promote(p, r, c, a.Key, v)
	}
}

// walkGroup is like walk for the attributes of a group. The parameter node belongs to the enclosing
// group, and c is the pick of this group, or nil. The attributes of a group without a name belong
// to the enclosing group.
func (e *encoder) walkGroup(p *picked, r *encode.Record, node, c *pick, name string, attrs []slog.Attr, depth int) {
	// The limits stop groups that contain themselves.
	if p.expansions++; depth >= values.MaxGroups || p.expansions > values.MaxExpansions {
		return
	}
	if name == "" {
		e.walk(p, r, node, attrs, depth+1)
		return
	}
	before := len(p.path)
	if e.metadataAll {
		p.path = append(append(p.path, name...), '.')
	}
	if c != nil || e.metadataAll {
		e.walk(p, r, c, attrs, depth+1)
	}
	// All attributes of the record share the path, so each group removes its part.
	p.path = p.path[:before]
}

// promote converts the value of one attribute to text and adds it to p as a label, as metadata or
// as the tenant. c is the pick of the attribute, or nil.
func (e *encoder) promote(p *picked, r *encode.Record, c *pick, key string, v slog.Value) {
	start := len(p.buf)
	p.buf = e.values.AppendText(p.buf, cacheOf(r), v)
	text := p.buf[start:len(p.buf):len(p.buf)]
	if c != nil {
		// The tenant is sent in a header of the request, and becomes neither a label nor metadata.
		if c.tenant {
			p.tenant = text
			return
		}
		if c.slot >= 0 {
			p.labels[c.slot] = text
		}
		if c.meta != nil {
			p.setMeta(c.meta, text, c.attr)
			return
		}
		if c.drop {
			return
		}
	}
	if e.metadataAll {
		start := len(p.buf)
		p.buf = append(p.buf, p.path...)
		p.buf = append(p.buf, key...)
		from := p.buf[start:len(p.buf):len(p.buf)]
		start = len(p.buf)
		p.buf = simplify(labelname.Tail(append(p.buf, from...), start), start)
		p.setMeta(p.buf[start:len(p.buf):len(p.buf)], text, from)
	}
}
