package values

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// A plan encodes the values of a type without encoding/json, which is several times slower.
// A type has a plan if its kinds determine the encoding at every depth: no methods for JSON
// or text, no interfaces, no maps, no recursion. The output equals that of encoding/json,
// except that NaN and the infinities are strings here and an error there.
type plan struct {
	kind   reflect.Kind // Int, Uint, Float64, … represent all their sizes; Invalid: base64; Chan: a duration
	elem   *plan        // element of a pointer, slice or array
	size   int          // bits of a float
	fields []planField
}

type planField struct {
	*plan
	key       string // `"name":`
	index     int
	omitEmpty bool
}

// traits are cached properties of a type that no case in any handles.
type traits struct {
	objects objects
	Plan    *plan                    // nil: use encoding/json
	made    atomic.Pointer[treePlan] // see tree
}

// tree returns the tree plan of t. tr are the traits of t.
func (tr *traits) tree(t reflect.Type) *treePlan {
	p := tr.made.Load()
	if p == nil {
		p = treeOf(t)
		tr.made.Store(p)
	}
	return p
}

var traitsByType sync.Map // reflect.Type → *traits

func TraitsOf(t reflect.Type) *traits {
	if tr, ok := traitsByType.Load(t); ok {
		return tr.(*traits)
	}
	tr := &traits{objects: objectsOf(t)}
	if tr.objects == notObjects && shapeOf(t).bounded {
		tr.Plan = makePlan(t)
	}
	traitsByType.Store(t, tr)
	return tr
}

var numberType = reflect.TypeFor[json.Number]()

// makePlan returns the plan for a type that is not recursive, or nil if there is none.
func makePlan(t reflect.Type) *plan {
	switch op, addrOp := opsOf(t); {
	case op == treeDuration:
		return &plan{kind: reflect.Chan}
	case t == numberType, op > treeByKind, addrOp > treeByKind:
		return nil
	}
	switch t.Kind() {
	case reflect.Bool, reflect.String:
		return &plan{kind: t.Kind()}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &plan{kind: reflect.Int}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return &plan{kind: reflect.Uint}
	case reflect.Float32, reflect.Float64:
		return &plan{kind: reflect.Float64, size: t.Bits()}
	case reflect.Slice, reflect.Array, reflect.Pointer:
		elem := makePlan(t.Elem())
		if elem == nil {
			return nil
		}
		if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
			return &plan{} // base64
		}
		return &plan{kind: t.Kind(), elem: elem}
	case reflect.Struct:
		return structPlan(t)
	}
	return nil
}

func structPlan(t reflect.Type) *plan {
	p := &plan{kind: reflect.Struct}
	names := map[string]bool{}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			return nil // has special rules
		}
		tag := f.Tag.Get("json")
		if !f.IsExported() || tag == "-" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if name == "" {
			name = f.Name
		}
		field := planField{plan: makePlan(f.Type), index: i}
		for o := range strings.SplitSeq(options, ",") {
			switch o {
			case "omitempty":
				field.omitEmpty = true
			case "":
			default:
				return nil
			}
		}
		if field.plan == nil || names[name] || !plainName(name) {
			return nil
		}
		names[name] = true
		field.key = jsontext.Key(name)
		p.fields = append(p.fields, field)
	}
	return p
}

// plainName reports whether encoding/json is certain to write name unchanged.
func plainName(name string) bool {
	for _, r := range name {
		if r != '_' && r != '-' && r != '.' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return false
		}
	}
	return true
}

// planned appends v according to p. The form must be JSON.
func (l Leaf) planned(dst []byte, p *plan, v reflect.Value) []byte {
	switch p.kind {
	case reflect.String:
		return jsontext.AppendString(dst, v.String())
	case reflect.Int:
		return jsontext.AppendInt(dst, v.Int())
	case reflect.Uint:
		return jsontext.AppendUint(dst, v.Uint())
	case reflect.Float64:
		return l.float(dst, v.Float(), p.size)
	case reflect.Bool:
		return jsontext.AppendBool(dst, v.Bool())
	case reflect.Chan:
		return l.duration(dst, time.Duration(v.Int()))
	case reflect.Invalid:
		return l.bytes(dst, v.Bytes())
	case reflect.Pointer:
		if v.IsNil() {
			return l.null(dst)
		}
		return l.planned(dst, p.elem, v.Elem())
	case reflect.Slice, reflect.Array:
		if p.kind == reflect.Slice && v.IsNil() {
			return l.null(dst)
		}
		dst = append(dst, '[')
		for i := range v.Len() {
			dst = l.planned(jsontext.Comma(dst), p.elem, v.Index(i))
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	for i := range p.fields {
		f := &p.fields[i]
		fv := v.Field(f.index)
		if f.omitEmpty && emptyValue(fv) {
			continue
		}
		dst = l.planned(append(jsontext.Comma(dst), f.key...), f.plan, fv)
	}
	return append(dst, '}')
}

// emptyValue reports whether omitempty omits v.
func emptyValue(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.String, reflect.Array:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}
