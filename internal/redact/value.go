package redact

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/values"
)

// A filter is a [values.Emitter] that applies the rules to a value and emits the result to the next
// Emitter. Without a next Emitter, it only determines whether the rules change the value.
type filter struct {
	values.Emitter // the next Emitter; may be nil
	w              *Walker
	walk           values.Walk
	at             span // nodes of the rules that apply to the next value
	open           []container
	hide           bool // the next value must be replaced
	hidden         int  // number of open lists and maps within the hidden value
	changed        bool
	failed         error // error of a walk within inspect
}

// A container is an open list or map.
type container struct {
	at    span // nodes of the rules that apply to the elements
	mark  int  // length of Walker.nodes before the container
	inner int  // length of Walker.nodes in the container
	list  bool
	hide  bool // all elements of the list must be replaced
}

// errChanged ends a walk that only determines whether the rules change the value.
var errChanged = errors.New("changed")

var attrType = reflect.TypeFor[slog.Attr]()

// value redacts a value of a type that slog does not know. If any part of it must change, value
// returns a replacement.
//
// Encoders may write a value by calling one of its methods, or according to its reflect.Kind.
// Therefore the result of each such method is examined. The replacement has none of the methods, so
// every encoder writes the redacted text.
func (w *Walker) value(x any, at span) (out any, changed bool) {
	f := w.filter
	if f == nil {
		f = &filter{w: w}
		f.walk.Emitter, f.walk.Inspect, f.walk.Scratch = f, f.inspect, &w.scratch
		f.walk.Limits = values.Limits{Depth: values.MaxDepth, Every: true}
		f.walk.Style = plainStyle
		w.filter = f
	}
	err := f.run(nil, x, at)
	switch {
	case err == errChanged:
		var b builder
		if err = f.run(&b, x, at); err == nil {
			return b.out, true
		}
		return tooDeep, true
	case err != nil:
		return tooDeep, true
	}
	return nil, false
}

var plainStyle = &values.NewValues(values.Style{}).Style

// run walks over x. next may be nil.
func (f *filter) run(next values.Emitter, x any, at span) error {
	mark := len(f.w.nodes)
	f.Emitter, f.at, f.open, f.hide, f.hidden, f.changed, f.failed = next, at, f.open[:0], false, 0, false, nil
	f.walk.Expansions, f.walk.Nodes = f.w.expansions, f.w.nodesSeen
	f.walk.Reset()
	err := f.walk.Any(x)
	if err == nil {
		err = f.failed
	}
	if err == nil && f.changed && next == nil {
		err = errChanged
	}
	f.w.nodes = f.w.nodes[:mark]
	f.Emitter = nil
	if next == nil {
		f.w.expansions, f.w.nodesSeen = f.walk.Expansions, f.walk.Nodes
	}
	return err
}

// hideNext reports whether the next value must be hidden. If so, it emits the replacement.
func (f *filter) hideNext() bool {
	if f.hidden > 0 {
		return true
	}
	if !f.hide {
		return false
	}
	f.replace(f.w.rules.text)
	f.endValue()
	return true
}

// replace emits text instead of the next value.
func (f *filter) replace(text string) {
	f.changed = true
	if f.Emitter != nil {
		f.Emitter.Text(text)
	}
}

// endValue prepares for the value after the current one.
func (f *filter) endValue() {
	f.hide = false
	if n := len(f.open); n > 0 {
		c := &f.open[n-1]
		f.w.nodes = f.w.nodes[:c.inner]
		f.at, f.hide = c.at, c.hide
	}
}

// emitUnchanged emits a scalar that no rule can match.
func (f *filter) emitUnchanged(emit func(values.Emitter)) {
	if f.hideNext() {
		return
	}
	if f.Emitter != nil {
		emit(f.Emitter)
	}
	f.endValue()
}

func (f *filter) Null() { f.emitUnchanged(values.Emitter.Null) }

func (f *filter) Bool(v bool) { f.emitUnchanged(func(e values.Emitter) { e.Bool(v) }) }

func (f *filter) Time(v time.Time) { f.emitUnchanged(func(e values.Emitter) { e.Time(v) }) }

func (f *filter) Duration(v time.Duration) { f.emitUnchanged(func(e values.Emitter) { e.Duration(v) }) }

func (f *filter) Level(v slog.Level) { f.emitUnchanged(func(e values.Emitter) { e.Level(v) }) }

func (f *filter) Int(v int64) {
	f.number(slog.Int64Value(v), func(e values.Emitter) { e.Int(v) })
}

func (f *filter) Uint(v uint64) {
	f.number(slog.Uint64Value(v), func(e values.Emitter) { e.Uint(v) })
}

func (f *filter) Float(v float64, bits int) {
	f.number(slog.Float64Value(v), func(e values.Emitter) { e.Float(v, bits) })
}

func (f *filter) number(v slog.Value, emit func(values.Emitter)) {
	s, changed := f.w.number(v)
	f.text(s, changed, emit)
}

// text emits s if changed is true. Otherwise it calls the function emit, which emits the original
// value.
func (f *filter) text(s string, changed bool, emit func(values.Emitter)) {
	switch {
	case f.hideNext():
		return
	case changed:
		f.replace(s)
	case f.Emitter != nil:
		emit(f.Emitter)
	}
	f.endValue()
}

func (f *filter) Text(v string) {
	s, changed := f.w.text(v, f.at, 0)
	f.text(s, changed, func(e values.Emitter) { e.Text(v) })
}

func (f *filter) Bytes(v []byte) {
	s, changed := f.w.text(unsafeString(v), f.at, 0)
	f.text(s, changed, func(e values.Emitter) { e.Bytes(v) })
}

func (f *filter) Fault(err error) {
	s, changed := f.w.text(values.Fault(err), f.at, 0)
	f.text(s, changed, func(e values.Emitter) { e.Fault(err) })
}

func (f *filter) JSON(v []byte) error {
	if !json.Valid(v) {
		var any json.RawMessage
		return json.Unmarshal(v, &any)
	}
	if f.hideNext() {
		return nil
	}
	out, changed := f.w.document(v, f.at)
	f.changed = f.changed || changed
	if f.Emitter != nil {
		switch out := out.(type) {
		case string:
			f.Emitter.Text(out)
		case json.RawMessage:
			_ = f.Emitter.JSON(out) // out is valid JSON
		default:
			_ = f.Emitter.JSON(v)
		}
	}
	f.endValue()
	return nil
}

func (f *filter) List(n int) {
	if f.hide || f.hidden > 0 {
		f.hidden++
		return
	}
	c := container{mark: len(f.w.nodes), list: true}
	c.at, c.hide = f.w.element(f.at)
	f.enter(c)
	if f.Emitter != nil {
		f.Emitter.List(n)
	}
}

func (f *filter) Map(n int) {
	if f.hide || f.hidden > 0 {
		f.hidden++
		return
	}
	f.enter(container{at: f.at, mark: len(f.w.nodes)})
	if f.Emitter != nil {
		f.Emitter.Map(n)
	}
}

func (f *filter) enter(c container) {
	c.inner = len(f.w.nodes)
	f.open = append(f.open, c)
	f.at, f.hide = c.at, c.hide
}

func (f *filter) EndList() { f.end(values.Emitter.EndList) }

func (f *filter) EndMap() { f.end(values.Emitter.EndMap) }

func (f *filter) end(emit func(values.Emitter)) {
	if f.hidden > 0 {
		if f.hidden--; f.hidden == 0 {
			f.hideNext()
		}
		return
	}
	n := len(f.open) - 1
	f.w.nodes = f.w.nodes[:f.open[n].mark]
	f.open = f.open[:n]
	if f.Emitter != nil {
		emit(f.Emitter)
	}
	f.endValue()
}

func (f *filter) Key(name string) {
	if f.hidden > 0 {
		return
	}
	shown, changed := f.w.text(name, f.at, 0)
	f.changed = f.changed || changed
	if f.Emitter != nil {
		f.Emitter.Key(shown)
	}
	f.at, f.hide = f.w.step(f.at, name)
}

func (f *filter) Field(field *values.Field) {
	if f.hidden > 0 {
		return
	}
	if f.Emitter != nil {
		f.Emitter.Field(field)
	}
	start := len(f.w.nodes)
	for _, name := range field.Names {
		_, hit := f.w.step(f.at, name)
		f.hide = f.hide || hit
	}
	f.at = f.w.unique(start)
}

func (f *filter) Direct(fields []values.Field, p unsafe.Pointer) { values.Read(f, fields, p) }

func (f *filter) Err() error {
	if f.changed && f.Emitter == nil {
		return errChanged
	}
	return f.failed
}

// inspect redacts the results of methods that encoders may call but the walk over the value does
// not. It reports whether it has emitted the value.
func (f *filter) inspect(v reflect.Value, s *values.Shape) bool {
	if f.hide || f.hidden > 0 || !v.CanInterface() || !f.w.rules.values() {
		return false
	}
	if s.Type == attrType {
		f.attr(v.Interface().(slog.Attr))
		return true
	}
	if s.Kind == values.List && s.ByAddr == 0 {
		if s.Type.Kind() != reflect.Array || s.Type.Elem().Kind() != reflect.Uint8 {
			return false
		}
		b := make([]byte, v.Len())
		reflect.Copy(reflect.ValueOf(b), v)
		text, changed := f.w.text(unsafeString(b), f.at, 0)
		if changed {
			f.replace(text)
			f.endValue()
		}
		return changed
	}
	seen := s.Methods // the methods that encoders can call
	if v.CanAddr() {
		seen = s.ByAddr
	}
	if seen&(values.HasLogValue|values.HasAppendAttrs|values.HasError) != 0 || s.Kind == values.Pointer && v.IsNil() {
		return false // the walk calls the method, and every encoder writes its result
	}
	out, changed := f.w.methods(receiver(v, s), s.ByAddr, f.at)
	if !changed {
		return false
	}
	f.changed = true
	if f.Emitter != nil {
		switch out := out.(type) {
		case json.RawMessage:
			_ = f.Emitter.JSON(out) // out is valid JSON
		default:
			f.Emitter.Text(out.(string))
		}
	}
	f.endValue()
	return true
}

// attr redacts a slog.Attr within a value. The rules apply to its key as in a record.
func (f *filter) attr(a slog.Attr) {
	f.Map(2)
	f.Key("Key")
	f.Text(a.Key)
	f.Key("Value")
	f.at, f.hide = f.w.step(f.at, a.Key)
	open, hidden := len(f.open), f.hidden
	if err := f.walk.Value(a.Value); err != nil {
		f.failed, f.hidden = err, hidden
		for len(f.open) > open {
			f.EndList()
		}
	}
	f.EndMap()
}

// receiver returns v, or its address if v is addressable, so that the result has all methods that
// an encoder can call.
func receiver(v reflect.Value, s *values.Shape) any {
	switch {
	case s.Kind == values.Pointer, s.ByAddr == s.Methods && !v.CanAddr():
		return v.Interface()
	case v.CanAddr():
		return v.Addr().Interface()
	}
	c := reflect.New(s.Type)
	c.Elem().Set(v)
	return c.Interface()
}

// methods redacts the results of those methods of recv that return text or JSON.
func (w *Walker) methods(recv any, ms values.Methods, at span) (out any, changed bool) {
	for _, m := range [...]values.Methods{values.HasMarshalJSON, values.HasMarshalText, values.HasString, values.HasFormat, values.HasMarshalMsg} {
		if ms&m == 0 {
			continue
		}
		b, fault := textOf(recv, m)
		if m == values.HasMarshalMsg && fault == "" {
			if js, _, err := msgpack.AppendJSON(nil, b); err == nil {
				m, b = values.HasMarshalJSON, js
			}
		}
		if m == values.HasMarshalJSON && fault == "" {
			out, changed = w.document(b, at)
		} else {
			out, changed = changedTo(w.text(unsafeString(b)+fault, at, 0))
		}
		if changed {
			return out, true
		}
	}
	return nil, false
}

// textOf returns the result of method m of recv. fault describes a failure of the method.
func textOf(recv any, m values.Methods) (b []byte, fault string) {
	defer func() {
		if p := recover(); p != nil {
			b, fault = nil, values.FaultText(recv, p)
		}
	}()
	var err error
	switch m {
	case values.HasMarshalJSON:
		b, err = recv.(json.Marshaler).MarshalJSON()
	case values.HasMarshalText:
		b, err = recv.(encoding.TextMarshaler).MarshalText()
	case values.HasMarshalMsg:
		b, err = recv.(values.Marshaler).MarshalMsg(nil)
	case values.HasFormat:
		b = fmt.Appendf(nil, "%+v", recv)
	default:
		return []byte(recv.(fmt.Stringer).String()), ""
	}
	if err != nil {
		return nil, values.Know(err).Text
	}
	return b, ""
}

// appender redacts an attribute that is an AttrAppender. The result is a group.
func (w *Walker) appender(o values.AttrAppender, at span) (any, bool) {
	if w.expansions++; w.expansions > values.MaxExpansions || w.depth >= values.MaxGroups {
		return values.TooMany, true
	}
	attrs, mark, fault := w.scratch.Collect(o)
	if fault != "" {
		return changedTo(w.text(fault, at, 0))
	}
	defer w.scratch.Release(mark)
	w.depth++
	w.within++
	names := len(w.names)
	if w.key != "" && w.hasFuncs() {
		w.names = append(w.names, w.key)
	}
	out := w.attrs(at, attrs, false)
	w.names = w.names[:names]
	w.within--
	w.depth--
	if len(out) == len(attrs) && (len(out) == 0 || &out[0] == &attrs[0]) {
		return nil, false
	}
	return out, true
}

// changedTo returns s as a value of type any. It allocates only if s has changed.
func changedTo(s string, changed bool) (any, bool) {
	if !changed {
		return nil, false
	}
	return s, true
}

func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// A builder is a [values.Emitter] that builds a Go value from the calls it receives. A map becomes
// a values.Object, which keeps the order of the members and the name of a struct field in each
// format.
type builder struct {
	out  any
	open []any         // the open lists and maps: each is a *values.Object or a *[]any
	next values.Member // the current member of the innermost map
}

func (b *builder) put(v any) {
	if len(b.open) == 0 {
		b.out = v
		return
	}
	switch in := b.open[len(b.open)-1].(type) {
	case *values.Object:
		b.next.Value = v
		*in = append(*in, b.next)
	case *[]any:
		*in = append(*in, v)
	}
}

func (b *builder) Null()                                     { b.put(nil) }
func (b *builder) Bool(v bool)                               { b.put(v) }
func (b *builder) Int(v int64)                               { b.put(v) }
func (b *builder) Uint(v uint64)                             { b.put(v) }
func (b *builder) Text(v string)                             { b.put(strings.Clone(v)) }
func (b *builder) Bytes(v []byte)                            { b.put(slices.Clone(v)) }
func (b *builder) Time(v time.Time)                          { b.put(v) }
func (b *builder) Duration(v time.Duration)                  { b.put(v) }
func (b *builder) Level(v slog.Level)                        { b.put(v) }
func (b *builder) Fault(err error)                           { b.put(values.Fault(err)) }
func (b *builder) Direct(f []values.Field, p unsafe.Pointer) { values.Read(b, f, p) }
func (b *builder) Err() error                                { return nil }
func (b *builder) Map(int)                                   { b.begin(&values.Object{}) }
func (b *builder) List(n int)                                { list := make([]any, 0, n); b.begin(&list) }
func (b *builder) Field(f *values.Field)                     { b.next = values.Member{Field: f, Key: f.Name} }

func (b *builder) Float(v float64, bits int) {
	if bits == 32 {
		b.put(float32(v))
	} else {
		b.put(v)
	}
}

func (b *builder) JSON(v []byte) error {
	b.put(json.RawMessage(slices.Clone(v)))
	return nil
}

// Key begins a member. If another member has the same key after redaction, a number is appended to
// the key.
func (b *builder) Key(name string) {
	in := *b.open[len(b.open)-1].(*values.Object)
	key := name
	for n := 2; slices.ContainsFunc(in, func(m values.Member) bool { return m.Field == nil && m.Key == key }); n++ {
		key = name + "#" + strconv.Itoa(n)
	}
	b.next = values.Member{Key: strings.Clone(key)}
}

// begin opens a list or a map. Until the list or map ends, the enclosing one contains a pointer to
// it.
func (b *builder) begin(v any) {
	b.put(v)
	b.open = append(b.open, v)
}

func (b *builder) EndList() { b.end() }
func (b *builder) EndMap()  { b.end() }

func (b *builder) end() {
	n := len(b.open) - 1
	var v any
	switch in := b.open[n].(type) {
	case *values.Object:
		v = *in
	case *[]any:
		v = *in
	}
	b.open = b.open[:n]
	if n == 0 {
		b.out = v
		return
	}
	switch in := b.open[n-1].(type) {
	case *values.Object:
		(*in)[len(*in)-1].Value = v
	case *[]any:
		(*in)[len(*in)-1] = v
	}
}
