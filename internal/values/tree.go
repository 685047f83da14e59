package values

import (
	"encoding"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// A tree renders a value that others lie in, for [Values]: each of them as it stands
// by itself (errors as their message, durations, times, levels and UUIDs in their own
// form, NaN as a string), wherever it lies, and all else as encoding/json has it. It
// lives on the stack of its maker.
type tree struct {
	Leaf
	depth int
	left  int   // values that may still hold others
	err   error // why it was given up
}

// typed appends x, which is none of slog's own kinds.
func (l Leaf) typed(dst []byte, x any) (out []byte) {
	start := len(dst)
	defer func() {
		if p := recover(); p != nil {
			out = l.text(dst[:start], FaultText(x, p))
		}
	}()
	t := tree{Leaf: l, left: maxNodes}
	if out = t.any(dst, x); t.err != nil {
		return l.text(out[:start], "!ERROR:"+t.err.Error())
	}
	return out
}

// enter goes into a value that holds others. It reports false if that is too much;
// what has been written is then of no use.
func (t *tree) enter() bool {
	t.depth++
	t.left--
	switch {
	case t.err != nil:
	case t.left < 0:
		t.err = errNodes
	case t.depth > maxNesting:
		t.err = errNesting
	}
	return t.err == nil
}

// any appends a value of any type.
func (t *tree) any(dst []byte, x any) []byte {
	switch x := x.(type) {
	case nil:
		return t.null(dst)
	case Rendered:
		if len(x) == 0 {
			return t.null(dst)
		}
		return append(dst, x...)
	case []any:
		if x == nil {
			return t.null(dst)
		}
		if !t.enter() {
			return dst
		}
		dst = append(dst, '[')
		for i, e := range x {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst = t.any(dst, e); t.err != nil {
				return dst
			}
		}
		t.depth--
		return append(dst, ']')
	case map[string]any:
		return treeMap(t, dst, x)
	case map[string]error:
		return treeMap(t, dst, x)
	case map[string]time.Duration:
		return treeMap(t, dst, x)
	case error:
		return jsontext.AppendString(dst, message(x))
	case float32: // slog would make it a float64
		return t.float(dst, float64(x), 32)
	case slog.Value:
		if x.Kind() == slog.KindAny {
			return t.any(dst, x.Any())
		}
	}
	value := slog.AnyValue(x)
	switch value.Kind() {
	case slog.KindLogValuer, slog.KindGroup:
		return t.marshal(dst, x)
	case slog.KindAny:
	default:
		return t.Scalar(dst, value)
	}
	rt := reflect.TypeOf(x)
	tr := TraitsOf(rt)
	if _, ok := x.(AttrAppender); ok || tr.objects != notObjects {
		return t.marshal(dst, x)
	}
	if p := tr.tree(rt); p.needed {
		return t.value(dst, reflect.ValueOf(x), p)
	}
	// As an attribute, but without its key.
	start := len(dst)
	w := Walker{Leaf: t.Leaf, In: &outermost}
	dst = w.Any(append(dst, '{'), anyName, x)
	return append(dst[:start], dst[start+1+len(anyHead):]...)
}

// treeMap appends a map with its keys in order, as encoding/json has them.
func treeMap[T any](t *tree, dst []byte, m map[string]T) []byte {
	if m == nil {
		return t.null(dst)
	}
	if !t.enter() {
		return dst
	}
	dst = append(dst, '{')
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if dst = t.any(jsontext.AppendKey(dst, key), m[key]); t.err != nil {
			return dst
		}
	}
	t.depth--
	return append(dst, '}')
}

// value appends v as p, the plan of its type, says.
func (t *tree) value(dst []byte, v reflect.Value, p *treePlan) []byte {
	op := p.op
	if op > treeByKind && !v.CanInterface() || op == treeMethod && p.byAddr && !v.CanAddr() {
		op = treeByKind // out of reach of its methods
	}
	switch op {
	case treeTime:
		return t.Time(dst, v.Interface().(time.Time), attrTime)
	case treeDuration:
		return t.duration(dst, time.Duration(v.Int()))
	case treeLevel:
		return t.level(dst, slog.Level(v.Int()))
	case treeUUID:
		dst = appendUUID(append(dst, '"'), v.Interface())
		return append(dst, '"')
	case treeError:
		if v.Kind() == reflect.Pointer && v.IsNil() {
			return t.null(dst)
		}
		return jsontext.AppendString(dst, message(v.Interface().(error)))
	case treeMethod:
		return t.asJSON(dst, v)
	}
	if !p.needed && v.CanInterface() {
		switch v.Kind() {
		case reflect.String:
			if v.Type() != numberType {
				return jsontext.AppendString(dst, v.String())
			}
		case reflect.Float32, reflect.Float64:
			return t.float(dst, v.Float(), v.Type().Bits())
		}
		if tr := TraitsOf(v.Type()); tr.Plan != nil {
			return t.planned(dst, tr.Plan, v)
		}
		return t.asJSON(dst, v)
	}
	switch v.Kind() {
	case reflect.Bool:
		return jsontext.AppendBool(dst, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return jsontext.AppendInt(dst, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return jsontext.AppendUint(dst, v.Uint())
	case reflect.Float32, reflect.Float64:
		return t.float(dst, v.Float(), v.Type().Bits())
	case reflect.String:
		return jsontext.AppendString(dst, v.String())
	case reflect.Interface:
		if v.IsNil() {
			return t.null(dst)
		}
		if v = v.Elem(); v.CanInterface() {
			return t.any(dst, v.Interface())
		}
		if !t.enter() {
			return dst
		}
		dst = t.value(dst, v, treeOf(v.Type()))
		t.depth--
		return dst
	case reflect.Pointer:
		if v.IsNil() {
			return t.null(dst)
		}
		if !t.enter() {
			return dst
		}
		dst = t.value(dst, v.Elem(), p.elem)
		t.depth--
		return dst
	case reflect.Slice, reflect.Array:
		return t.list(dst, v, p)
	case reflect.Map:
		return t.pairs(dst, v, p)
	case reflect.Struct:
		return t.fields(dst, v, p)
	}
	return jsontext.AppendString(dst, "!ERROR:json: unsupported type: "+v.Type().String())
}

// asJSON appends v as encoding/json does, with strings for NaN and the infinities.
func (t *tree) asJSON(dst []byte, v reflect.Value) []byte {
	if v.CanAddr() {
		v = v.Addr() // methods may want it
	}
	return t.marshal(dst, v.Interface())
}

func (t *tree) list(dst []byte, v reflect.Value, p *treePlan) []byte {
	if v.Kind() == reflect.Slice {
		if v.IsNil() {
			return t.null(dst)
		}
		if p.bytes {
			dst = base64.StdEncoding.AppendEncode(append(dst, '"'), v.Bytes())
			return append(dst, '"')
		}
	}
	if !t.enter() {
		return dst
	}
	dst = append(dst, '[')
	for i := range v.Len() {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst = t.value(dst, v.Index(i), p.elem); t.err != nil {
			return dst
		}
	}
	t.depth--
	return append(dst, ']')
}

var errKey = errors.New("json: unsupported type of keys")

func (t *tree) pairs(dst []byte, v reflect.Value, p *treePlan) []byte {
	if v.IsNil() {
		return t.null(dst)
	}
	type pair struct {
		key   string
		value reflect.Value
	}
	all := make([]pair, 0, v.Len())
	for it := v.MapRange(); it.Next(); {
		key, err := mapKey(it.Key())
		if err != nil {
			return jsontext.AppendString(dst, "!ERROR:"+err.Error())
		}
		all = append(all, pair{key, it.Value()})
	}
	slices.SortFunc(all, func(a, b pair) int { return strings.Compare(a.key, b.key) })
	if !t.enter() {
		return dst
	}
	dst = append(dst, '{')
	for _, e := range all {
		if dst = t.value(jsontext.AppendKey(dst, e.key), e.value, p.elem); t.err != nil {
			return dst
		}
	}
	t.depth--
	return append(dst, '}')
}

// mapKey returns the key of a map as encoding/json writes it.
func mapKey(k reflect.Value) (string, error) {
	if k.Kind() == reflect.String {
		return k.String(), nil
	}
	if k.CanInterface() {
		if m, ok := k.Interface().(encoding.TextMarshaler); ok {
			if k.Kind() == reflect.Pointer && k.IsNil() {
				return "", nil
			}
			b, err := m.MarshalText()
			return string(b), err
		}
	}
	switch k.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(k.Int(), 10), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return strconv.FormatUint(k.Uint(), 10), nil
	}
	return "", fmt.Errorf("%w: %s", errKey, k.Type())
}

func (t *tree) fields(dst []byte, v reflect.Value, p *treePlan) []byte {
	if !t.enter() {
		return dst
	}
	dst = append(dst, '{')
fields:
	for i := range p.fields {
		f := &p.fields[i]
		fv := v
		for k, x := range f.index {
			if k > 0 && fv.Kind() == reflect.Pointer {
				if fv.IsNil() {
					continue fields
				}
				fv = fv.Elem()
			}
			fv = fv.Field(x)
		}
		if f.omitEmpty && EmptyField(fv) || f.omitZero && ZeroField(fv) {
			continue
		}
		dst = append(jsontext.Comma(dst), f.key...)
		start := len(dst)
		if dst = t.value(dst, fv, f.plan); t.err != nil {
			return dst
		}
		if (f.quote && dst[start] != '"' || f.quoteString) && string(dst[start:]) != "null" {
			dst = jsontext.AppendString(dst[:start], string(dst[start:]))
		}
	}
	t.depth--
	return append(dst, '}')
}

// EmptyField reports what omitempty asks for.
func EmptyField(v reflect.Value) bool {
	if v.Kind() == reflect.Map {
		return v.Len() == 0
	}
	return emptyValue(v)
}

// ZeroField reports what omitzero asks for. A method that panics says nothing.
func ZeroField(v reflect.Value) (zero bool) {
	defer func() {
		if recover() != nil {
			zero = false
		}
	}()
	type zeroer = interface{ IsZero() bool }
	if v.CanInterface() {
		switch k := v.Kind(); {
		case (k == reflect.Pointer || k == reflect.Interface) && v.IsNil():
			return true
		case v.Type().Implements(zeroType):
			return v.Interface().(zeroer).IsZero()
		case reflect.PointerTo(v.Type()).Implements(zeroType):
			if !v.CanAddr() {
				own := reflect.New(v.Type()).Elem()
				own.Set(v)
				v = own
			}
			return v.Addr().Interface().(zeroer).IsZero()
		}
	}
	return v.IsZero()
}

var zeroType = reflect.TypeFor[interface{ IsZero() bool }]()
