package values

import (
	"encoding"
	"encoding/json"
	"reflect"
	"sync"
)

// encoding/json detects cycles only 1000 levels deep, and follows deep acyclic values until
// the stack overflows, which ends the process and cannot be recovered. Values are therefore
// checked before they are passed to it.
const (
	maxNesting = 1000    // depth of pointers, maps, slices and interfaces
	maxNodes   = 1 << 20 // values visited; pointers to shared values multiply
)

const (
	tooNested = "!ERROR:encode: the value is cyclic, or nested deeper than 1000 levels"
	tooLarge  = "!ERROR:encode: the value holds more than 1048576 others"
)

// A shape holds properties common to all values of a type.
type shape struct {
	bounded bool // the type limits the depth of its values
	leaf    bool // a method encodes the value; encoding/json does not look inside
	leafPtr bool // leaf, if the value is addressable
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

// makeShape returns the shape of t. outer contains the enclosing types; if t is among them,
// it is recursive.
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

// checkNesting returns the text to write if v is cyclic, too deep or too large to be
// encoded. For most types this cannot happen and the check is one lookup.
func checkNesting(v any) string {
	n := nesting{left: maxNodes}
	return n.check(v, 0)
}

type nesting struct{ left int }

// check examines v. The types that decoded JSON consists of need no reflection.
func (n *nesting) check(v any, depth int) string {
	switch v := v.(type) {
	case nil, string, bool, float64, int, int64, json.Number:
		return ""
	case map[string]any:
		if fault := n.enter(depth); fault != "" {
			return fault
		}
		for _, e := range v {
			if fault := n.check(e, depth+1); fault != "" {
				return fault
			}
		}
		return ""
	case []any:
		if fault := n.enter(depth); fault != "" {
			return fault
		}
		for _, e := range v {
			if fault := n.check(e, depth+1); fault != "" {
				return fault
			}
		}
		return ""
	}
	if shapeOf(reflect.TypeOf(v)).bounded {
		return ""
	}
	return n.reflect(reflect.ValueOf(v), depth)
}

// enter counts a composite value.
func (n *nesting) enter(depth int) string {
	n.left--
	if n.left < 0 {
		return tooLarge
	}
	if depth > maxNesting {
		return tooNested
	}
	return ""
}

func (n *nesting) reflect(v reflect.Value, depth int) string {
	if v.Kind() == reflect.Interface {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
		if v.CanInterface() {
			return n.check(v.Interface(), depth)
		}
	}
	s := shapeOf(v.Type())
	if s.bounded || s.leafPtr && v.CanAddr() {
		return ""
	}
	if fault := n.enter(depth); fault != "" {
		return fault
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return n.reflect(v.Elem(), depth+1)
		}
	case reflect.Struct:
		for _, i := range s.fields {
			if fault := n.reflect(v.Field(i), depth); fault != "" {
				return fault
			}
		}
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			if fault := n.reflect(v.Index(i), depth+1); fault != "" {
				return fault
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if fault := n.reflect(it.Value(), depth+1); fault != "" {
				return fault
			}
		}
	}
	return ""
}
