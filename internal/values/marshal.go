package values

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"unicode/utf8"
)

// A marshaler is a json.Encoder together with its output buffer. Unlike json.Marshal, a
// json.Encoder can leave HTML unescaped.
type marshaler struct {
	out scratchWriter
	enc *json.Encoder
}

var marshalers = sync.Pool{New: func() any {
	m := new(marshaler)
	m.enc = json.NewEncoder(&m.out)
	m.enc.SetEscapeHTML(false)
	return m
}}

func (m *marshaler) free() {
	m.out.free()
	marshalers.Put(m)
}

// marshal appends v as encoding/json does, with strings for NaN and the infinities. If v
// cannot be marshaled, it appends a text with the reason.
func (l Leaf) marshal(dst []byte, v any) (out []byte) {
	start := len(dst)
	defer func() {
		if p := recover(); p != nil {
			// The encoder is not returned to the pool: its state is unknown.
			out = l.text(dst[:start], FaultText(v, p))
		}
	}()
	if fault := checkNesting(v); fault != "" {
		return l.text(dst, fault)
	}
	m := marshalers.Get().(*marshaler)
	err, changed := m.enc.Encode(v), false
	if unsupported := (*json.UnsupportedValueError)(nil); errors.As(err, &unsupported) {
		var rv reflect.Value
		if rv, changed = finite(reflect.ValueOf(v)); changed {
			m.out.free()
			err = m.enc.Encode(rv.Interface())
		}
	}
	if err != nil {
		text := "!ERROR:" + err.Error()
		m.free()
		return l.text(dst, text)
	}
	b := bytes.TrimSuffix(m.out.buf, []byte{'\n'})
	if !utf8.Valid(b) { // encoding/json does not validate the output of a json.Marshaler
		b = bytes.ToValidUTF8(b, []byte("\ufffd"))
	}
	if changed {
		out = appendStoodIn(dst, b)
	} else {
		out = append(dst, b...)
	}
	m.free()
	return l.quote(out, start)
}

// raw appends JSON that was made elsewhere.
func (l Leaf) raw(dst []byte, v json.RawMessage) []byte {
	if v == nil {
		return l.null(dst)
	}
	if !json.Valid(v) || !utf8.Valid(v) || bytes.ContainsAny(v, "\r\n") {
		return l.marshal(dst, v)
	}
	start := len(dst)
	return l.quote(append(dst, v...), start)
}

// other appends a value that only its methods or reflection can describe.
func (w *Walker) other(dst []byte, v any) []byte {
	t := reflect.TypeOf(v)
	tr := TraitsOf(t)
	if tr.objects != notObjects {
		return w.array(dst, v, tr.objects)
	}
	if w.Form != FormJSON {
		switch v.(type) {
		case encoding.TextMarshaler, fmt.Stringer:
			return w.described(dst, v)
		}
	}
	if tr.Plan != nil {
		start, in := len(dst), w.Leaf
		in.Form = FormJSON
		return w.quote(in.planned(dst, tr.Plan, reflect.ValueOf(v)), start)
	}
	if tr.tree(t).needed {
		return w.typed(dst, v)
	}
	return w.marshal(dst, v)
}

// described appends the result of MarshalText or String.
func (l Leaf) described(dst []byte, v any) (out []byte) {
	defer func() {
		if p := recover(); p != nil {
			out = l.text(dst, FaultText(v, p))
		}
	}()
	switch v := v.(type) {
	case encoding.TextMarshaler:
		b, err := v.MarshalText()
		if err != nil {
			return l.text(dst, "!ERROR:"+err.Error())
		}
		return l.text(dst, string(b))
	case fmt.Stringer:
		return l.text(dst, v.String())
	}
	return l.null(dst)
}
