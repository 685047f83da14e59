package values

import (
	"encoding"
	"encoding/json"
	"errors"
	"reflect"
	"sync"
)

// encoding/json finds cycles only once it is 1000 levels deep, and follows what
// is deep without a cycle until the stack ends, which ends the process and
// cannot be recovered from. So values are looked through before it sees them.
const (
	maxNesting = 1000    // pointers, maps, slices and interfaces within each other
	maxNodes   = 1 << 20 // values looked at: pointers that share what they point to multiply
)

var (
	errNesting = errors.New("encode: the value is cyclic, or nested deeper than 1000 levels")
	errNodes   = errors.New("encode: the value holds more than 1048576 others")
)

// A shape is what can be said of all values of a type.
type shape struct {
	bounded bool // the type alone limits how deep its values are
	leaf    bool // a method says what it is; encoding/json does not look inside
	leafPtr bool // so it is if the value is addressable
	fields  []int
}

var (
	shapes   sync.Map // reflect.Type → *shape
	jsonType = reflect.TypeFor[json.Marshaler]()
	textType = reflect.TypeFor[encoding.TextMarshaler]()
)

func shapeOf(t reflect.Type) *shape {
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	return makeShape(t, map[reflect.Type]bool{})
}

// makeShape finds the shape of t. outer holds the types it lies in: if t is one
// of them it is recursive.
func makeShape(t reflect.Type, outer map[reflect.Type]bool) *shape {
	if outer[t] {
		return &shape{}
	}
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	outer[t] = true
	defer delete(outer, t)

	s := new(shape)
	if t.Kind() != reflect.Interface && (t.Implements(jsonType) || t.Implements(textType)) {
		s.leaf, s.bounded = true, true
	} else {
		p := reflect.PointerTo(t)
		s.leafPtr = p.Implements(jsonType) || p.Implements(textType)
		switch t.Kind() {
		case reflect.Interface:
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			s.bounded = makeShape(t.Elem(), outer).bounded
		case reflect.Struct:
			s.bounded = true
			for i := range t.NumField() {
				f := t.Field(i)
				if !f.IsExported() && !f.Anonymous || f.Tag.Get("json") == "-" {
					continue
				}
				if !makeShape(f.Type, outer).bounded {
					s.bounded = false
					s.fields = append(s.fields, i)
				}
			}
		default:
			s.bounded = true
		}
	}
	shapes.Store(t, s)
	return s
}

// checkNesting returns an error if v is cyclic, or too deep or too large to be
// encoded. Most types cannot be, and cost one look-up.
func checkNesting(v any) error {
	n := nesting{left: maxNodes}
	return n.check(v, 0)
}

type nesting struct{ left int }

// check looks through v. The types that decoded JSON consists of need no
// reflection.
func (n *nesting) check(v any, depth int) error {
	switch v := v.(type) {
	case nil, string, bool, float64, int, int64, json.Number:
		return nil
	case map[string]any:
		if err := n.enter(depth); err != nil {
			return err
		}
		for _, e := range v {
			if err := n.check(e, depth+1); err != nil {
				return err
			}
		}
		return nil
	case []any:
		if err := n.enter(depth); err != nil {
			return err
		}
		for _, e := range v {
			if err := n.check(e, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	if shapeOf(reflect.TypeOf(v)).bounded {
		return nil
	}
	return n.reflect(reflect.ValueOf(v), depth)
}

// enter counts a value that holds others.
func (n *nesting) enter(depth int) error {
	n.left--
	if n.left < 0 {
		return errNodes
	}
	if depth > maxNesting {
		return errNesting
	}
	return nil
}

func (n *nesting) reflect(v reflect.Value, depth int) error {
	if v.Kind() == reflect.Interface {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
		if v.CanInterface() {
			return n.check(v.Interface(), depth)
		}
	}
	s := shapeOf(v.Type())
	if s.bounded || s.leafPtr && v.CanAddr() {
		return nil
	}
	if err := n.enter(depth); err != nil {
		return err
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return n.reflect(v.Elem(), depth+1)
		}
	case reflect.Struct:
		for _, i := range s.fields {
			if err := n.reflect(v.Field(i), depth); err != nil {
				return err
			}
		}
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			if err := n.reflect(v.Index(i), depth+1); err != nil {
				return err
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if err := n.reflect(it.Value(), depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
