package fluent

import (
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"

	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/values"
)

// method appends a value through a method of its own. What a method does (panic,
// fail) ends in a text in its place, not in the loss of the record.
func (s *valuer) method(dst []byte, v reflect.Value, p *plan) ([]byte, error) {
	if p.byAddr && !v.CanAddr() || !v.CanInterface() || p.method == stringText && s.level == 0 && isRecord(v.Kind()) {
		// A record that can describe itself is still a record.
		return s.value(dst, v, p.without)
	}
	var recv any
	if v.CanAddr() {
		recv = v.Addr().Interface()
	} else {
		switch k := v.Kind(); {
		case (p.method == marshalText || p.method == marshalJSON) && (k == reflect.Map || k == reflect.Slice):
			// As in encoding/json the method decides, also about nil.
		case (k == reflect.Map || k == reflect.Slice || k == reflect.Func || k == reflect.Chan) && v.IsNil():
			return msgpack.AppendNil(dst), nil
		}
		recv = v.Interface()
	}
	if p.method == logValue {
		if err := s.enter(dst, place{}); err != nil { // LogValue may return the like for ever
			return dst, err
		}
		s.level--
		dst, err := s.attr(dst, slog.AnyValue(recv).Resolve())
		s.level++
		s.leave()
		return dst, err
	}
	if p.method == appendAttrs {
		return s.appender(dst, recv.(values.AttrAppender))
	}
	at := len(dst)
	out, err := s.call(dst, recv, p.method)
	if err != nil {
		return s.cannot(dst[:at], err), nil
	}
	return out, nil
}

func isRecord(k reflect.Kind) bool { return k == reflect.Struct || k == reflect.Map }

// call calls the method of recv and appends what it says.
func (s *valuer) call(dst []byte, recv any, m method) (out []byte, err error) {
	at := len(dst)
	defer func() {
		if p := recover(); p != nil {
			out, err = msgpack.AppendStr(dst[:at], panicText(p)), nil
		}
	}()
	switch m {
	case marshalMsg:
		out, err := appendMarshaled(dst, recv.(marshaler))
		if err == nil {
			s.passed(out[at:], len(out)-at)
		}
		return out, err
	case marshalJSON:
		js, err := recv.(json.Marshaler).MarshalJSON()
		if err != nil {
			return dst, err
		}
		return s.rawJSON(dst, js), nil
	case marshalText:
		text, err := recv.(encoding.TextMarshaler).MarshalText()
		if err != nil {
			return dst, err
		}
		return msgpack.AppendStrBytes(dst, text), nil
	case errorText:
		return msgpack.AppendStr(dst, recv.(error).Error()), nil
	}
	return msgpack.AppendStr(dst, recv.(fmt.Stringer).String()), nil
}

// appendMarshaled appends what MarshalMsg makes, and sees to it that receivers
// can take it: generated code writes times as ext 5, on which fluentd resets the
// connection. The method is given the room behind dst and nothing of dst itself,
// which is the beginning of the entry.
func appendMarshaled(dst []byte, m marshaler) ([]byte, error) {
	room := dst[len(dst):]
	out, err := m.MarshalMsg(room)
	if err != nil {
		return dst, err
	}
	ok, err := msgpack.IsClean(out)
	if err != nil {
		return dst, fmt.Errorf("MarshalMsg appended no single MessagePack value: %w", err)
	}
	switch {
	case !ok:
		fixed, _, err := msgpack.AppendClean(nil, out)
		if err != nil {
			return dst, err
		}
		return append(dst, fixed...), nil
	case cap(room) > 0 && &out[0] == &room[:1][0]: // it lies where it should
		return dst[:len(dst)+len(out)], nil
	}
	return append(dst, out...), nil
}

func textOf(t encoding.TextMarshaler) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = panicText(p)
		}
	}()
	b, err := t.MarshalText()
	if err != nil {
		return "!ERROR: " + err.Error()
	}
	return string(b)
}

// panicText describes a panic. Of composite values only the type is said: they
// could be cyclic, and fmt would follow them for ever.
func panicText(p any) string {
	switch p := p.(type) {
	case string:
		return "!PANIC: " + p
	case error:
		return "!PANIC: " + safeError(p)
	}
	switch reflect.TypeOf(p).Kind() {
	case reflect.Map, reflect.Slice, reflect.Array, reflect.Struct, reflect.Pointer, reflect.Interface:
		return fmt.Sprintf("!PANIC: (a value of type %T)", p)
	}
	return fmt.Sprint("!PANIC: ", p)
}

func safeError(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = "(its Error method panics)"
		}
	}()
	return err.Error()
}

// appender appends an AttrAppender within another value as a map. It is no attribute of the
// record, so nothing is replaced.
func (s *valuer) appender(dst []byte, o values.AttrAppender) ([]byte, error) {
	attrs, mark, fault := s.scratch.Collect(o)
	defer s.scratch.Release(mark)
	if fault != "" {
		return msgpack.AppendStr(dst, fault), nil
	}
	replace := s.replace
	s.replace = nil
	dst, _, err := s.group(dst, attrs)
	s.replace = replace
	return dst, err
}

// attr appends a value of slog.
func (s *valuer) attr(dst []byte, v slog.Value) ([]byte, error) {
	switch v.Kind() {
	case slog.KindString:
		return msgpack.AppendStr(dst, v.String()), nil
	case slog.KindInt64:
		return msgpack.AppendInt(dst, v.Int64()), nil
	case slog.KindUint64:
		return msgpack.AppendUint(dst, v.Uint64()), nil
	case slog.KindFloat64:
		return appendFloat(dst, v.Float64()), nil
	case slog.KindBool:
		return msgpack.AppendBool(dst, v.Bool()), nil
	case slog.KindDuration:
		return msgpack.AppendInt(dst, int64(v.Duration())), nil
	case slog.KindTime:
		return s.time(dst, v.Time()), nil
	case slog.KindLogValuer:
		if err := s.enter(dst, place{}); err != nil {
			return dst, err
		}
		s.level--
		dst, err := s.attr(dst, v.Resolve())
		s.level++
		s.leave()
		return dst, err
	case slog.KindGroup: // within another value: no attribute of the record
		replace := s.replace
		s.replace = nil
		dst, _, err := s.group(dst, v.Group())
		s.replace = replace
		return dst, err
	}
	if l, ok := v.Any().(slog.LogValuer); ok {
		return s.attr(dst, slog.AnyValue(l).Resolve())
	}
	if o, ok := appenderOf(v); ok {
		return s.appender(dst, o)
	}
	if err, ok := errorOf(v); ok {
		return msgpack.AppendStr(dst, values.Know(err).Text), nil
	}
	return s.any(dst, v.Any())
}
