package values

import (
	"encoding"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// A tree renders a composite value. Each nested value is written like a top-level one
// (LogValuers resolved, AttrAppenders as objects, errors as their message, times, durations
// and levels in the configured form, NaN as a string), everything else as by encoding/json.
// It is allocated on its creator's stack; the limits are shared across the record, in the
// Walker.
type tree struct {
	*Walker
	fault string // why rendering was abandoned
}

// typed appends x, whose type is not one of slog's kinds. Forms without objects write it as
// a string.
func (w *Walker) typed(dst []byte, x any) (out []byte) {
	start, form, level := len(dst), w.Form, w.level
	w.Form = FormJSON
	defer func() {
		p := recover()
		if w.Form, w.level = form, level; p != nil {
			out = w.text(dst[:start], FaultText(x, p))
		}
	}()
	t := tree{Walker: w}
	out = t.any(dst, x)
	if w.Form = form; t.fault != "" {
		return w.text(out[:start], t.fault)
	}
	if n := len(out) - 1; form != FormJSON && out[start] == '"' { // a string needs no second pair of quotes
		return w.text(out[:start], string(jsontext.AppendUnescaped(nil, out[start+1:n])))
	}
	return w.quote(out, start)
}

// enter descends into a composite value. It reports false if a limit is exceeded; the text
// written so far must then be discarded.
func (t *tree) enter() bool {
	t.level++
	t.nodes++
	switch {
	case t.fault != "":
	case t.nodes > maxNodes:
		t.fault = tooLarge
	case t.level > maxNesting:
		t.fault = tooNested
	}
	return t.fault == ""
}

// any appends a value of any type, common types without reflection.
func (t *tree) any(dst []byte, x any) []byte {
	switch x := x.(type) {
	case nil:
		return t.null(dst)
	case string:
		return jsontext.AppendString(dst, x)
	case int:
		return jsontext.AppendInt(dst, int64(x))
	case int64:
		return jsontext.AppendInt(dst, x)
	case bool:
		return jsontext.AppendBool(dst, x)
	case float64:
		return t.float(dst, x, 64)
	case float32:
		return t.float(dst, float64(x), 32)
	case []any:
		return t.anys(dst, x)
	case map[string]any:
		return treeMap(t, dst, x)
	case map[string]error:
		return treeMap(t, dst, x)
	case map[string]time.Duration:
		return treeMap(t, dst, x)
	case Rendered:
		if len(x) == 0 {
			return t.null(dst)
		}
		return append(dst, x...)
	case time.Time:
		return t.Time(dst, x, attrTime)
	case time.Duration:
		return t.duration(dst, x)
	case slog.Value:
		return t.slogValue(dst, x)
	case slog.LogValuer:
		if isNilPointer(x) {
			return t.null(dst)
		}
		return t.slogValue(dst, slog.AnyValue(x))
	case AttrAppender:
		return t.element(dst, x)
	case error:
		return jsontext.AppendString(dst, message(x))
	}
	rt := reflect.TypeOf(x)
	if p := TraitsOf(rt).tree(rt); p.needed {
		return t.value(dst, reflect.ValueOf(x), p)
	}
	// Written as an attribute; the key is removed.
	start := len(dst)
	dst = t.Any(append(dst, '{'), anyName, x)
	return append(dst[:start], dst[start+1+len(anyHead):]...)
}

func (t *tree) anys(dst []byte, list []any) []byte {
	if list == nil {
		return t.null(dst)
	}
	if !t.enter() {
		return dst
	}
	dst = append(dst, '[')
	for i, e := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst = t.any(dst, e); t.fault != "" {
			return dst
		}
	}
	t.level--
	return append(dst, ']')
}

// slogValue appends a value of package slog. A group is an object.
func (t *tree) slogValue(dst []byte, v slog.Value) []byte {
	switch v.Kind() {
	case slog.KindLogValuer:
		if t.spent >= maxExpansions { // LogValue may return new values forever
			return jsontext.AppendString(dst, tooMany)
		}
		if t.spent++; !t.enter() {
			return dst
		}
		dst = t.slogValue(dst, v.Resolve())
		t.level--
		return dst
	case slog.KindGroup:
		return t.members(dst, v.Group())
	case slog.KindAny:
		return t.any(dst, v.Any())
	}
	return t.Scalar(dst, v)
}

// treeMap appends a map with sorted keys, like encoding/json.
func treeMap[T any](t *tree, dst []byte, m map[string]T) []byte {
	if m == nil {
		return t.null(dst)
	}
	if !t.enter() {
		return dst
	}
	var room [16]string
	keys := room[:0]
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	dst = append(dst, '{')
	for _, key := range keys {
		if dst = t.any(jsontext.AppendKey(dst, key), m[key]); t.fault != "" {
			return dst
		}
	}
	t.level--
	return append(dst, '}')
}

// value appends v according to p, the plan of its type.
func (t *tree) value(dst []byte, v reflect.Value, p *treePlan) []byte {
	op := p.op
	if v.CanAddr() {
		op = p.addrOp
	}
	if op > treeByKind && !v.CanInterface() {
		op = treeByKind // its methods cannot be called
	}
	switch op {
	case treeTime:
		return t.Time(dst, v.Interface().(time.Time), attrTime)
	case treeDuration:
		return t.duration(dst, time.Duration(v.Int()))
	case treeLevel:
		return t.levelOf(dst, slog.Level(v.Int()))
	case treeUUID:
		if !t.Style.typed {
			return t.asJSON(dst, v)
		}
		dst = appendUUID(append(dst, '"'), v.Interface())
		return append(dst, '"')
	case treeSlog:
		return t.slogValue(dst, v.Interface().(slog.Value))
	case treeValuer, treeAppender, treeError:
		if v.Kind() == reflect.Pointer && v.IsNil() {
			return t.null(dst)
		}
		return t.byMethod(dst, v, op)
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
		t.level--
		return dst
	case reflect.Pointer:
		if v.IsNil() {
			return t.null(dst)
		}
		if !t.enter() {
			return dst
		}
		dst = t.value(dst, v.Elem(), p.elem)
		t.level--
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

// byMethod appends the result of LogValue, AppendAttrs or Error.
func (t *tree) byMethod(dst []byte, v reflect.Value, op treeOp) []byte {
	x := interfaceOf(v)
	switch op {
	case treeValuer:
		return t.slogValue(dst, slog.AnyValue(x))
	case treeAppender:
		return t.element(dst, x.(AttrAppender))
	}
	return jsontext.AppendString(dst, message(x.(error)))
}

// interfaceOf returns v, or its address if v is addressable: the pointer type has more
// methods.
func interfaceOf(v reflect.Value) any {
	if v.CanAddr() && v.Kind() != reflect.Pointer {
		v = v.Addr()
	}
	return v.Interface()
}

// asJSON appends v as encoding/json does, with strings for NaN and the infinities.
func (t *tree) asJSON(dst []byte, v reflect.Value) []byte {
	return t.marshal(dst, interfaceOf(v))
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
		if dst = t.value(dst, v.Index(i), p.elem); t.fault != "" {
			return dst
		}
	}
	t.level--
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
		if dst = t.value(jsontext.AppendKey(dst, e.key), e.value, p.elem); t.fault != "" {
			return dst
		}
	}
	t.level--
	return append(dst, '}')
}

// mapKey returns a map key in the form of encoding/json.
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
		if dst = t.value(dst, fv, f.plan); t.fault != "" {
			return dst
		}
		if (f.quote && dst[start] != '"' || f.quoteString) && string(dst[start:]) != "null" {
			dst = jsontext.AppendString(dst[:start], string(dst[start:]))
		}
	}
	t.level--
	return append(dst, '}')
}

// EmptyField reports whether omitempty omits v.
func EmptyField(v reflect.Value) bool {
	if v.Kind() == reflect.Map {
		return v.Len() == 0
	}
	return emptyValue(v)
}

// ZeroField reports whether omitzero omits v. A panic in its IsZero method counts as false.
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
