package fluent

import (
	"log/slog"

	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/values"
)

// attrs appends attributes as pairs and returns their number. As in slog, an
// attribute without key and value is none, an empty group neither, and a group
// without a key lays its attributes among the others.
func (s *valuer) attrs(dst []byte, attrs []slog.Attr) ([]byte, int, error) {
	n := 0
	for i := range attrs {
		var k int
		var err error
		if dst, k, err = s.shown(dst, s.offer(attrs[i])); err != nil {
			return dst, n, err
		}
		n += k
	}
	return dst, n, nil
}

// offer resolves a and has it replaced. Groups and AttrAppenders are not: their attributes
// are.
func (s *valuer) offer(a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindLogValuer {
		a.Value = a.Value.Resolve()
	}
	if s.replace == nil || a.Value.Kind() == slog.KindGroup {
		return a
	}
	if _, ok := appenderOf(a.Value); ok {
		return a
	}
	return s.replaced(a)
}

// replaced calls ReplaceAttr.
func (s *valuer) replaced(a slog.Attr) (out slog.Attr) {
	defer func() {
		if p := recover(); p != nil {
			out = slog.String(a.Key, panicText(p))
		}
	}()
	if out = s.replace(s.groups, a); out.Value.Kind() == slog.KindLogValuer {
		out.Value = out.Value.Resolve()
	}
	return out
}

// shown appends an attribute that was offered.
func (s *valuer) shown(dst []byte, a slog.Attr) (_ []byte, n int, err error) {
	if o, ok := appenderOf(a.Value); ok {
		attrs, mark, fault := s.scratch.Collect(o)
		defer s.scratch.Release(mark)
		if a.Value = slog.GroupValue(attrs...); fault != "" {
			a.Value = slog.StringValue(fault)
		}
	}
	if a.Value.Kind() != slog.KindGroup {
		if a.Key == "" && a.Value.Kind() == slog.KindAny && a.Value.Any() == nil {
			return dst, 0, nil
		}
		if err, ok := errorOf(a.Value); ok && s.errors != nil {
			dst, n = s.chained(dst, a.Key, err)
			return dst, n, nil
		}
		dst = msgpack.AppendStr(dst, a.Key)
		if dst, err = s.attr(dst, a.Value); err != nil {
			s.in(a.Key)
		}
		return dst, 1, err
	}
	g := a.Value.Group()
	if len(g) == 0 {
		return dst, 0, nil
	}
	if a.Key == "" {
		if err := s.enter(dst, place{}); err != nil {
			return dst, 0, err
		}
		if dst, n, err = s.attrs(dst, g); err == nil {
			s.leave()
		}
		return dst, n, err
	}
	at := len(dst)
	dst = msgpack.AppendStr(dst, a.Key)
	if s.replace != nil && !s.builtin {
		s.groups = append(s.groups, a.Key)
		defer func() { s.groups = s.groups[:len(s.groups)-1] }()
	}
	if dst, n, err = s.group(dst, g); err != nil {
		s.in(a.Key)
		return dst, 1, err
	}
	if n == 0 {
		return dst[:at], 0, nil // none of them is to be shown
	}
	return dst, 1, nil
}

// appenderOf returns the AttrAppender that v is, also one that is an error.
func appenderOf(v slog.Value) (values.AttrAppender, bool) {
	if v.Kind() != slog.KindAny {
		return nil, false
	}
	o, ok := v.Any().(values.AttrAppender)
	return o, ok
}

// errorOf returns the error that v is.
func errorOf(v slog.Value) (error, bool) {
	if v.Kind() != slog.KindAny {
		return nil, false
	}
	err, ok := v.Any().(error)
	return err, ok
}

// chained appends an error, and what stands beside it, as pairs.
func (s *valuer) chained(dst []byte, key string, err error) ([]byte, int) {
	at := len(dst)
	js := append(s.errors.AppendError([]byte{'{'}, nil, key, err), '}')
	out, _, fault := msgpack.AppendFromJSON(dst, js)
	if fault != nil {
		return msgpack.AppendStr(msgpack.AppendStr(dst[:at], key), values.Know(err).Text), 1
	}
	s.passed(out[at:], brackets(js))
	head, pairs, _ := msgpack.Next(out[at:])
	return append(out[:at], pairs...), head.Len
}

// group appends attributes as a map, and returns their number.
func (s *valuer) group(dst []byte, attrs []slog.Attr) (_ []byte, n int, err error) {
	if err := s.enter(dst, place{}); err != nil {
		return dst, 0, err
	}
	at := len(dst)
	if dst, n, err = s.attrs(msgpack.AppendOpenMap(dst), attrs); err != nil {
		return dst, n, err
	}
	s.leave()
	return msgpack.CloseMap(dst, at, n), n, nil
}
