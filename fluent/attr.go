package fluent

import (
	"log/slog"

	"github.com/forebay-log/forebay/internal/msgpack"
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

// offer resolves a and has it replaced. Groups are not: their attributes are.
func (s *valuer) offer(a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindLogValuer {
		a.Value = a.Value.Resolve()
	}
	if s.replace != nil && a.Value.Kind() != slog.KindGroup {
		a = s.replaced(a)
	}
	return a
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
	if a.Value.Kind() != slog.KindGroup {
		if a.Key == "" && a.Value.Kind() == slog.KindAny && a.Value.Any() == nil {
			return dst, 0, nil
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
	if s.replace != nil {
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
