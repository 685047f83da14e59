package forebay_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/forebay-log/forebay"
)

// A valueMaker creates nested values that contain a secret, from the input of a fuzzer.
type valueMaker struct {
	input  []byte
	byKey  bool // the secret is always the value of the key password
	budget int
}

func (m *valueMaker) next(n int) int {
	if len(m.input) == 0 {
		return 0
	}
	b := m.input[0]
	m.input = m.input[1:]
	return int(b) % n
}

// A tagged is a struct with fields that are renamed or hidden by tags.
type tagged struct {
	A any `json:"b,omitempty" msg:"c"`
	B any `json:"-" fluent:"d"`
	c any
}

type keyed struct {
	Password any `json:"passWord" msg:"pw"`
}

// value returns a value that contains the secret.
func (m *valueMaker) value() any {
	m.budget--
	if len(m.input) == 0 || m.budget < 0 {
		v := positions[m.next(len(positions)-1)].value(secret)
		if m.byKey {
			return []any{map[string]any{"x": 1, "Password": v}, keyed{v}}[m.next(2)]
		}
		return v
	}
	switch m.next(22) {
	case 0:
		v := positions[m.next(len(positions)-1)].value(secret)
		if m.byKey {
			return map[string]any{"password": v}
		}
		return v
	case 1:
		return []any{m.value(), m.value()}
	case 2:
		return map[string]any{"a": m.value(), "b": m.value()}
	case 3:
		return tagged{A: m.value()}
	case 4:
		t := &tagged{A: 1, B: m.value()}
		if !m.byKey {
			t.c = secret // encoders write the secret if they format the struct with fmt
		}
		return t
	case 5:
		return slog.GroupValue(slog.Any("g", m.value()), slog.Any("", m.value()))
	case 6:
		return logValuer{slog.AnyValue(m.value())}
	case 7:
		return appender{[]slog.Attr{slog.Any("a", m.value()), slog.Int("b", 1)}}
	case 8:
		return []appender{{[]slog.Attr{slog.Any("a", m.value())}}, {}}
	case 9: // a slice of the value's type
		v := reflect.ValueOf(m.value())
		l := reflect.MakeSlice(reflect.SliceOf(v.Type()), 2, 2)
		l.Index(1).Set(v)
		return l.Interface()
	case 10:
		v := reflect.ValueOf(m.value())
		l := reflect.MakeMap(reflect.MapOf(reflect.TypeFor[namedString](), v.Type()))
		l.SetMapIndex(reflect.ValueOf(namedString("k")), v)
		return l.Interface()
	case 11:
		v := reflect.ValueOf(m.value())
		p := reflect.New(v.Type())
		p.Elem().Set(v)
		return p.Interface()
	case 12:
		v := reflect.ValueOf(m.value())
		tag := reflect.StructTag([]string{"", `json:"j"`, `json:"j,omitempty" msgpack:"-"`, `json:"-" codec:"c"`, `json:",string"`}[m.next(5)])
		s := reflect.New(reflect.StructOf([]reflect.StructField{{Name: "N", Type: reflect.TypeFor[int]()}, {Name: "F", Type: v.Type(), Tag: tag}}))
		s.Elem().Field(1).Set(v)
		if m.next(2) == 0 {
			return s.Elem().Interface()
		}
		return s.Interface()
	case 13:
		v := reflect.ValueOf(m.value())
		a := reflect.New(reflect.ArrayOf(1, v.Type())).Elem()
		a.Index(0).Set(v)
		return a.Interface()
	case 14:
		b, err := marshaled(m.value())
		if err != nil {
			return m.value()
		}
		return json.RawMessage(b)
	case 15:
		b, err := marshaled(m.value())
		if err != nil {
			return m.value()
		}
		return []any{string(b), b, fmt.Sprintf("%q", b), "got " + string(b[:len(b)-m.next(len(b))]), stringer{string(b)}, textual{string(b)}}[m.next(6)]
	case 16:
		if v, ok := m.value().(error); ok && !m.byKey {
			return []error{fmt.Errorf("w: %w", v), hiding{v}, errors.Join(v, v), stackError{v, "x"}, &fieldError{"x", v}}[m.next(5)]
		}
		return m.value()
	case 17:
		if !m.byKey {
			return fmt.Sprintf("%+v", m.value())
		}
		return m.value()
	case 18:
		return map[any]any{1: m.value()}
	case 19:
		return map[string][]any{"a": {nil, m.value()}}
	case 20:
		if !m.byKey { // its String prints the contained value
			return struct{ slog.Value }{slog.AnyValue(m.value())}
		}
		return m.value()
	default:
		return []slog.Attr{slog.Any("x", m.value())}
	}
}

// marshaled returns v as JSON. It returns an error if a method of v panics, or if the JSON contains
// the secret in base64, which no rule decodes.
func marshaled(v any) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	b, err = json.Marshal(v)
	if form := leak([]byte(strings.ReplaceAll(string(b), secret, ""))); form != "" {
		err = errors.New(form)
	}
	if len(b) > 1<<14 { // each level of quoting multiplies the length
		err = errors.New("it is too long")
	}
	return b, err
}

// No encoder writes the secret in a random value.
func FuzzRedaction(f *testing.F) {
	for i := range 22 {
		f.Add([]byte{byte(i), 1, byte(i), 2, 3, 4, 5}, false)
		f.Add([]byte{byte(i), byte(i), 14, 0, 12, 3, 2, 1}, true)
	}
	f.Add([]byte{14, 2, 3, 10, 0}, true)
	byPattern := views(f, forebay.RedactPattern(secretPattern))
	byKey := views(f, forebay.RedactKeys("password"))
	f.Fuzz(func(t *testing.T, input []byte, key bool) {
		m := valueMaker{input: input, byKey: key, budget: 20}
		v := m.value()
		views := byPattern
		if key {
			views = byKey
		}
		way := ways[m.next(4)]
		for _, o := range views {
			way.log(slog.New(o.Router), v)
			got := o.take()
			if form := leak([]byte(got)); form != "" {
				at := strings.Index(got, form)
				t.Fatalf("%s, %s, a %T: …%q…", o.name, way.name, v, got[max(0, at-300):min(len(got), at+100)])
			}
			if got == "" {
				t.Errorf("%s, %s, a %T: nothing is logged", o.name, way.name, v)
			}
		}
	})
}
