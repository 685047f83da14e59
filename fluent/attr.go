package fluent

import (
	"log/slog"

	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/values"
)

// attrs appends attributes as pairs and returns the number of pairs. As slog.Handler requires, an
// empty attribute and an empty group are omitted, and the attributes of a group without a key are
// added to the enclosing map.
func (s *valuer) attrs(dst []byte, attrs []slog.Attr) ([]byte, int) {
	n := 0
	for i := range attrs {
		a := &attrs[i]
		if s.mayChange(a) {
			changed := s.prepare(*a)
			a = &changed
		}
		var k int
		dst, k = s.attr(dst, a)
		n += k
	}
	return dst, n
}

// mayChange reports whether prepare may change a. Most records save its copies.
func (s *valuer) mayChange(a *slog.Attr) bool {
	return s.replace != nil || a.Value.Kind() == slog.KindLogValuer
}

// prepare resolves the LogValuer of the attribute a and applies ReplaceAttr to it. For a group or
// an AttrAppender, ReplaceAttr is not called here, but later for each of its attributes.
func (s *valuer) prepare(a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindLogValuer {
		a.Value = a.Value.Resolve()
	}
	if s.replace == nil || a.Value.Kind() == slog.KindGroup {
		return a
	}
	if a.Value.Kind() == slog.KindAny {
		if _, ok := a.Value.Any().(values.AttrAppender); ok {
			return a
		}
	}
	a = values.Replaced(s.replace, s.groups, a)
	a.Value = a.Value.Resolve()
	return a
}

// attr appends an attribute that prepare need not change. The result n is the number of pairs. It is
// usually 1, but 0 if the attribute is omitted, and more for an error with details. A value that
// cannot be encoded is replaced by a text with the reason.
func (s *valuer) attr(dst []byte, a *slog.Attr) (_ []byte, n int) {
	v := a.Value
	switch v.Kind() {
	case slog.KindGroup:
		return s.group(dst, a.Key, v.Group())
	case slog.KindAny:
		x := v.Any()
		if x == nil && a.Key == "" {
			return dst, 0
		}
		if o, ok := x.(values.AttrAppender); ok {
			attrs, mark, fault := s.scratch.Collect(o)
			if fault == "" { // fault is the text of a panic in AppendAttrs
				dst, n = s.group(dst, a.Key, attrs)
				s.scratch.Release(mark)
				return dst, n
			}
			v = slog.StringValue(fault)
		} else if err, ok := x.(error); ok {
			if s.errors != nil {
				return s.errorDetails(dst, a.Key, err)
			}
			v = slog.StringValue(values.Know(err).Text)
		}
	}
	at := len(dst)
	out, err := s.value(msgpack.AppendStr(dst, a.Key), v)
	if err != nil {
		out = msgpack.AppendStr(msgpack.AppendStr(out[:at], a.Key), values.Fault(s.addPath(err)))
	}
	return out, 1
}

// group appends a group as one pair and returns the number of pairs. The attributes of a group
// without a name are appended as pairs of the enclosing map.
func (s *valuer) group(dst []byte, name string, attrs []slog.Attr) ([]byte, int) {
	if len(attrs) == 0 {
		return dst, 0
	}
	// A LogValuer may return itself in a group, so the depth and the size are limited.
	if s.groupDepth >= values.MaxGroups || len(dst)-s.base > s.limit {
		return msgpack.AppendStr(msgpack.AppendStr(dst, name), values.TooDeep), 1
	}
	s.groupDepth++
	if name == "" {
		dst, n := s.attrs(dst, attrs)
		s.groupDepth--
		return dst, n
	}
	at := len(dst)
	dst = msgpack.AppendStr(dst, name)
	if s.replace != nil && !s.builtin {
		s.groups = append(s.groups, name)
	}
	head := len(dst)
	s.level++
	s.deep = s.deep || s.level > maxLevels
	dst, n := s.attrs(msgpack.AppendOpenMap(dst), attrs)
	s.level--
	s.groupDepth--
	if s.replace != nil && !s.builtin {
		s.groups = s.groups[:len(s.groups)-1]
	}
	if n == 0 {
		return dst[:at], 0 // all attributes were omitted, so the group is omitted
	}
	return msgpack.CloseMap(dst, head, n), 1
}

// errorDetails appends an error and its details (EncoderOptions.Errors) as pairs, and returns their
// number. Package values writes the details as JSON; errorDetails converts them to MessagePack.
func (s *valuer) errorDetails(dst []byte, key string, err error) ([]byte, int) {
	// js is an object. The header of its MessagePack form is removed, so that the pairs become
	// pairs of the enclosing map.
	at := len(dst)
	js := append(s.errors.AppendError([]byte{'{'}, nil, key, err), '}')
	out, _, fault := msgpack.AppendFromJSON(dst, js)
	if fault != nil {
		return msgpack.AppendStr(msgpack.AppendStr(dst[:at], key), values.Know(err).Text), 1
	}
	s.walk.Level = s.level
	s.noteLevels(out[at:], brackets(js))
	head, pairs, _ := msgpack.Next(out[at:])
	return append(out[:at], pairs...), head.Len
}
