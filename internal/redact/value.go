package redact

import (
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"unsafe"

	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/values"
)

// value redacts a value. If anything in it must change, it returns the replacement. depth
// is 0 for the value of an attribute; groups in such a value are returned as []slog.Attr.
//
// Encoders may write a value through one of its methods or by its kind, so every way is
// checked. The replacement has none of the methods, so that no encoder can produce a
// different text.
func (w *Walker) value(v reflect.Value, p *plan, at span, depth int) (out any, changed bool) {
	if !p.suspect {
		return nil, false
	}
	if w.left--; w.left < 0 || depth > maxDepth {
		w.over = true
	}
	if w.over {
		return tooDeep, true
	}
	switch p.kind {
	case reflect.Interface:
		if v.IsNil() {
			return nil, false
		}
		v = v.Elem()
		return w.value(v, w.rules.plan(v.Type()), at, depth)
	case reflect.Pointer:
		if v.IsNil() {
			return nil, false
		}
		if depth > 0 || p.elem.kind == reflect.Pointer || p.elem.kind == reflect.Interface {
			depth++
		}
		return w.value(v.Elem(), p.elem, at, depth)
	}
	switch p.typ {
	case attrType:
		return w.attrValue(v.Interface().(slog.Attr), at)
	case valueType:
		return w.printedValue(v.Interface().(slog.Value), at, depth)
	}
	recv, ms := p.receiver(v)
	if !w.rules.values() {
		ms &= appendAttrs
	}
	seen := p.own // the methods that encoders can call
	if v.CanAddr() {
		seen = p.all
	}
	if seen&logValue != 0 && depth > 0 && v.CanInterface() {
		// Encoders write only the result of LogValue, except those that use MarshalMsg.
		if !w.rules.values() {
			return nil, false
		}
		if out, changed = w.logged(recv, at, depth); changed || seen&marshalMsg == 0 {
			return out, changed
		}
	}
	if ms != 0 {
		if out, changed = w.rich(recv, ms, at, depth); changed {
			return out, true
		}
	}
	// Every encoder writes an attribute that is an error as text, except a struct that is
	// an error only through an embedded field.
	if seen&(marshalJSON|marshalText) == 0 && (seen&errorText == 0 || depth > 0 || p.embeds) {
		if out, changed = w.kind(v, p, at, depth); changed {
			if err, ok := recv.(error); ok && depth == 0 && seen&errorText != 0 {
				links := 0
				return w.cleaned(err, at, 1, &links), true
			}
			return out, true
		}
	}
	if ms != 0 {
		return w.plain(recv, ms, at)
	}
	return nil, false
}

// receiver returns v with all methods of its type and, if addressable, of its pointer type,
// for encoders that use the address.
func (p *plan) receiver(v reflect.Value) (any, methods) {
	switch {
	case p.all == 0 || !v.CanInterface():
		return nil, 0
	case v.CanAddr():
		return v.Addr().Interface(), p.all
	case p.all == p.own:
		return v.Interface(), p.own
	}
	c := reflect.New(p.typ)
	c.Elem().Set(v)
	return c.Interface(), p.all
}

// rich redacts the results of methods that expose names or a chain of errors. A replacement
// has the same form as the method's result.
func (w *Walker) rich(recv any, ms methods, at span, depth int) (out any, changed bool) {
	if ms&marshalJSON != 0 {
		if b, fault := textOf(recv, marshalJSON); fault != "" {
			if s, ch := w.text(fault, at, 0); ch {
				return s, true
			}
		} else if out, changed = w.document(b, at); changed {
			return out, true
		}
	}
	if ms&errorText != 0 {
		if err, ch := w.err(recv.(error), at); ch {
			if depth > 0 {
				return err.Error(), true
			}
			return err, true
		}
	}
	if ms&appendAttrs != 0 {
		if out, changed = w.appender(recv.(values.AttrAppender), at, depth); changed {
			return out, true
		}
	}
	if ms&logValue != 0 && depth > 0 { // LogValue of an attribute is already resolved
		return w.logged(recv, at, depth)
	}
	return nil, false
}

// logged redacts the result of LogValue.
func (w *Walker) logged(recv any, at span, depth int) (any, bool) {
	if w.made++; w.made > maxMade {
		return tooMany, true
	}
	return w.slogValue(slog.AnyValue(recv).Resolve(), at, depth)
}

// plain redacts the results of methods that return only a text.
func (w *Walker) plain(recv any, ms methods, at span) (any, bool) {
	for _, m := range [...]methods{marshalText, stringText, formatted} {
		if ms&m == 0 {
			continue
		}
		b, fault := textOf(recv, m)
		if s, ch := w.text(unsafeString(b)+fault, at, 0); ch {
			return s, true
		}
	}
	if ms&marshalMsg != 0 {
		b, fault := textOf(recv, marshalMsg)
		if js, _, err := msgpack.AppendJSON(nil, b); err == nil && fault == "" {
			return w.document(js, at)
		}
		if s, ch := w.text(unsafeString(b)+fault, at, 0); ch {
			return s, true
		}
	}
	return nil, false
}

// textOf calls method m of recv for its text. fault describes a failure.
func textOf(recv any, m methods) (b []byte, fault string) {
	defer func() {
		if p := recover(); p != nil {
			b, fault = nil, values.FaultText(recv, p)
		}
	}()
	var err error
	switch m {
	case marshalJSON:
		b, err = recv.(json.Marshaler).MarshalJSON()
	case marshalText:
		b, err = recv.(encoding.TextMarshaler).MarshalText()
	case marshalMsg:
		b, err = recv.(msgMarshaler).MarshalMsg(nil)
	case formatted:
		b = fmt.Appendf(nil, "%+v", recv)
	default:
		return []byte(recv.(fmt.Stringer).String()), ""
	}
	if err != nil {
		return nil, values.Know(err).Text
	}
	return b, ""
}

// appender redacts an AttrAppender. It becomes a group as an attribute and a map elsewhere.
func (w *Walker) appender(o values.AttrAppender, at span, depth int) (any, bool) {
	if w.made++; w.made > maxMade || w.depth >= maxGroups {
		return tooMany, true
	}
	attrs, fault := appended(o)
	if fault != "" {
		return changedTo(w.text(fault, at, 0))
	}
	w.depth++
	w.within++
	names := len(w.names)
	if depth == 0 && w.key != "" && w.offers() {
		w.names = append(w.names, w.key)
	}
	out := w.attrs(at, attrs, false)
	w.names = w.names[:names]
	w.within--
	w.depth--
	switch {
	case len(out) == len(attrs) && (len(out) == 0 || &out[0] == &attrs[0]):
		return nil, false
	case depth == 0:
		return out, true
	}
	return mapOf(out), true
}

func appended(o values.AttrAppender) (attrs []slog.Attr, fault string) {
	defer func() {
		if p := recover(); p != nil {
			attrs, fault = nil, values.FaultText(o, p)
		}
	}()
	return o.AppendAttrs(nil), ""
}

// mapOf returns attributes in the form used within another value.
func mapOf(attrs []slog.Attr) map[string]any {
	m := make(map[string]any, len(attrs))
	for _, a := range attrs {
		if a.Key == "" && a.Value.Kind() == slog.KindGroup {
			maps.Copy(m, mapOf(a.Value.Group()))
			continue
		}
		m[a.Key] = inner(a.Value)
	}
	return m
}

// slogValue redacts a value of package slog inside another value.
func (w *Walker) slogValue(v slog.Value, at span, depth int) (any, bool) {
	a := slog.Attr{Value: v.Resolve()}
	if a.Value.Kind() == slog.KindAny {
		x := a.Value.Any()
		if x == nil {
			return nil, false
		}
		v := reflect.ValueOf(x)
		return w.value(v, w.rules.plan(v.Type()), at, depth+1)
	}
	w.within++
	w.muted++
	_, changed := w.scalar(at, &a)
	w.within--
	w.muted--
	if !changed {
		return nil, false
	}
	return inner(a.Value), true
}

// attrValue redacts an attribute inside another value.
func (w *Walker) attrValue(a slog.Attr, at span) (any, bool) {
	w.within++
	w.muted++
	keep, changed := w.attr(at, &a)
	w.within--
	w.muted--
	switch {
	case !keep:
		return nil, true
	case !changed && !w.prints(a.Value):
		return changedTo(w.text(a.String(), at, 0))
	}
	return map[string]any{"Key": a.Key, "Value": inner(a.Value)}, true
}

// printedValue redacts a slog.Value inside another value. Some encoders write it with its
// String method.
func (w *Walker) printedValue(v slog.Value, at span, depth int) (any, bool) {
	if out, changed := w.slogValue(v, at, depth); changed {
		return out, true
	}
	if w.prints(v) {
		return inner(v), true
	}
	return changedTo(w.text(v.String(), at, 0))
}

// prints reports whether the String method of v prints values with package fmt. That output
// is not examined; it includes unexported fields and may be infinite.
func (w *Walker) prints(v slog.Value) bool {
	switch v.Kind() {
	case slog.KindAny, slog.KindLogValuer:
		x := v.Any()
		return x != nil && w.rules.plan(reflect.TypeOf(x)).suspect
	case slog.KindGroup:
		return slices.ContainsFunc(v.Group(), func(a slog.Attr) bool { return w.prints(a.Value) })
	}
	return false
}

// inner returns a value of package slog in the form used inside another value. LogValuers
// are resolved, since their other contents were not examined.
func inner(v slog.Value) any {
	if v = v.Resolve(); v.Kind() == slog.KindGroup {
		return mapOf(v.Group())
	}
	return v.Any()
}

// kind redacts a value by its kind.
func (w *Walker) kind(v reflect.Value, p *plan, at span, depth int) (any, bool) {
	switch p.kind {
	case reflect.String:
		return changedTo(w.text(v.String(), at, 0))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return changedTo(w.number(slog.Int64Value(v.Int())))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return changedTo(w.number(slog.Uint64Value(v.Uint())))
	case reflect.Float32, reflect.Float64:
		return changedTo(w.number(slog.Float64Value(v.Float())))
	case reflect.Slice, reflect.Array:
		if p.bytes {
			return changedTo(w.text(unsafeString(bytesOf(v, p)), at, 0))
		}
		return w.list(v, p, at, depth)
	case reflect.Map:
		return w.pairs(v, p, at, depth)
	case reflect.Struct:
		return w.structure(v, p, at, depth)
	}
	return nil, false
}

// changedTo returns a text as any. It allocates only for changed texts.
func changedTo(s string, changed bool) (any, bool) {
	if !changed {
		return nil, false
	}
	return s, true
}

// bytesOf returns the bytes of a slice or an array.
func bytesOf(v reflect.Value, p *plan) []byte {
	if p.kind == reflect.Array && !v.CanAddr() {
		c := reflect.New(p.typ).Elem()
		c.Set(v)
		v = c
	}
	return v.Bytes()
}

func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// as returns an unchanged value with the methods it has in its original location.
func as(v reflect.Value, p *plan) any {
	switch {
	case !v.CanInterface():
		return Text
	case p.all != p.own && v.CanAddr():
		return v.Addr().Interface()
	}
	return v.Interface()
}

func (w *Walker) list(v reflect.Value, p *plan, at span, depth int) (any, bool) {
	mark := len(w.nodes)
	at, hit := w.element(at)
	var out []any
	for i := range v.Len() {
		e := v.Index(i)
		y, ch := w.rules.hidden, hit
		if !hit {
			y, ch = w.value(e, p.elem, at, depth+1)
		}
		if w.over {
			break
		}
		if ch && out == nil {
			out = make([]any, v.Len())
			for k := range i {
				out[k] = as(v.Index(k), p.elem)
			}
		}
		switch {
		case ch:
			out[i] = y
		case out != nil:
			out[i] = as(e, p.elem)
		}
	}
	w.nodes = w.nodes[:mark]
	switch {
	case w.over:
		return tooDeep, true
	case out == nil:
		return nil, false
	case p.typ.Elem() == errorType:
		return errorsOf(out), true
	case p.typ.Elem().Implements(appenderType) || p.elem.all&appendAttrs != 0:
		for i, e := range out { // all of one form
			if o, ok := e.(values.AttrAppender); ok && !isNil(o) {
				if attrs, fault := appended(o); fault == "" {
					out[i] = mapOf(w.attrs(at, attrs, false))
				}
			}
		}
	}
	return out, true
}

func isNil(x any) bool {
	v := reflect.ValueOf(x)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// errorsOf returns a list of errors as []error, so that encoders write their texts.
func errorsOf(list []any) []error {
	out := make([]error, len(list))
	for i, x := range list {
		switch x := x.(type) {
		case error:
			out[i] = x
		case string:
			out[i] = &single{told: told{x, x}}
		case nil:
		default:
			out[i] = &single{told: told{Text, Text}}
		}
	}
	return out
}

func (w *Walker) pairs(v reflect.Value, p *plan, at span, depth int) (any, bool) {
	var out map[string]any
	own := func() {
		if out != nil {
			return
		}
		out = make(map[string]any, v.Len())
		for it := v.MapRange(); it.Next(); {
			out[keyText(it.Key())] = as(it.Value(), p.elem)
		}
	}
	for it := v.MapRange(); it.Next() && !w.over; {
		k, e := it.Key(), it.Value()
		name := keyText(k)
		mark := len(w.nodes)
		next, hit := w.step(at, name)
		if other, ok := otherKeyText(k); ok && !hit {
			_, hit = w.step(at, other)
			next = w.unique(mark)
			if _, ch := w.match(other); ch {
				hit = true
			}
		}
		y, ch := w.rules.hidden, hit
		if !hit {
			y, ch = w.value(e, p.elem, next, depth+1)
		}
		w.nodes = w.nodes[:mark]
		shown, renamed := w.text(name, at, 0)
		if w.hidden(k, at, depth) {
			shown, renamed = w.rules.text, true
		}
		if !ch && !renamed {
			continue
		}
		own()
		if !ch {
			y = as(e, p.elem)
		}
		if renamed {
			delete(out, name)
			for n, free := 2, shown; ; n++ {
				if _, taken := out[free]; !taken {
					shown = free
					break
				}
				free = shown + "#" + strconv.Itoa(n)
			}
		}
		out[shown] = y
	}
	switch {
	case w.over:
		return tooDeep, true
	case out == nil:
		return nil, false
	}
	return out, true
}

// hidden reports whether any part of a map key must change. Package fluent writes a key of
// any type as JSON.
func (w *Walker) hidden(k reflect.Value, at span, depth int) bool {
	if k.Kind() == reflect.Interface {
		k = k.Elem()
	}
	switch k.Kind() {
	case reflect.Invalid, reflect.String, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return false // its text has been checked
	}
	if k.Type().Implements(textType) {
		return false
	}
	_, changed := w.value(k, w.rules.plan(k.Type()), at, depth+1)
	return changed
}

// keyText returns the key of a map as a text.
func keyText(k reflect.Value) string {
	switch k.Kind() {
	case reflect.String:
		return k.String()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if !k.Type().Implements(textType) {
			return strconv.FormatInt(k.Int(), 10)
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		if !k.Type().Implements(textType) {
			return strconv.FormatUint(k.Uint(), 10)
		}
	}
	if !k.CanInterface() {
		return Text
	}
	x := k.Interface()
	if _, ok := x.(encoding.TextMarshaler); ok {
		b, fault := textOf(x, marshalText)
		return string(b) + fault
	}
	return fmt.Sprint(x)
}

// otherKeyText returns the text of a string key that also has a text method.
func otherKeyText(k reflect.Value) (string, bool) {
	if k.Kind() != reflect.String || !k.Type().Implements(textType) || !k.CanInterface() {
		return "", false
	}
	b, fault := textOf(k.Interface(), marshalText)
	return string(b) + fault, true
}

func (w *Walker) structure(v reflect.Value, p *plan, at span, depth int) (any, bool) {
	var out reflect.Value
	for i := range p.fields {
		f := &p.fields[i]
		fv, ok := f.of(v)
		if !ok || f.omitEmpty && values.IsEmpty(fv) || f.omitZero && fv.IsZero() {
			continue
		}
		y, ch := w.field(fv, f, at, depth)
		if w.over {
			return tooDeep, true
		}
		if ch && !out.IsValid() {
			out = reflect.New(p.twin()).Elem()
			for k := range i {
				p.fields[k].keep(out, v)
			}
		}
		switch {
		case ch && f.at >= 0 && y != nil:
			out.Field(f.at).Set(reflect.ValueOf(y))
		case ch:
		case out.IsValid():
			f.keep(out, v)
		}
	}
	if !out.IsValid() {
		return nil, false
	}
	return out.Interface(), true
}

// of returns the value of the field in a struct. It reports false for a field reached
// through a nil pointer.
func (f *field) of(v reflect.Value) (reflect.Value, bool) {
	if f.hidden {
		return f.reveal(v)
	}
	for i, x := range f.index {
		if i > 0 && v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return v, false
			}
			v = v.Elem()
		}
		v = v.Field(x)
	}
	return v, true
}

// reveal returns the value of an embedded interface of an unexported type. Package fluent
// writes it.
func (f *field) reveal(v reflect.Value) (reflect.Value, bool) {
	if !v.CanAddr() {
		if !v.CanInterface() {
			return v, false
		}
		c := reflect.New(v.Type()).Elem()
		c.Set(v)
		v = c
	}
	v = v.Field(f.index[0])
	v = reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
	return v, !v.IsNil()
}

// field redacts one field.
func (w *Walker) field(v reflect.Value, f *field, at span, depth int) (any, bool) {
	if f.hit {
		return w.rules.hidden, true
	}
	next := at
	if w.rules.tree() {
		mark := len(w.nodes)
		defer func() { w.nodes = w.nodes[:mark] }()
		for _, name := range f.names {
			_, hit := w.step(at, name)
			if hit {
				return w.rules.hidden, true
			}
		}
		next = w.unique(mark)
	}
	return w.value(v, f.plan, next, depth+1)
}

// keep copies the field to the twin unchanged.
func (f *field) keep(twin, v reflect.Value) {
	if f.at < 0 {
		return
	}
	fv, ok := f.of(v)
	if !ok || f.omitEmpty && values.IsEmpty(fv) || f.omitZero && values.IsZero(fv) {
		return
	}
	x := as(fv, f.plan)
	if f.quote {
		x = quoted(fv, x)
	}
	if x != nil {
		twin.Field(f.at).Set(reflect.ValueOf(x))
	}
}

// quoted returns a number, bool or string in the form the encoding/json option string
// produces.
func quoted(v reflect.Value, x any) any {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if k := v.Kind(); k < reflect.Bool || k > reflect.Float64 && k != reflect.String {
		return x
	}
	b, err := json.Marshal(x)
	if err != nil || slices.Equal(b, []byte("null")) {
		return x
	}
	return string(b)
}
