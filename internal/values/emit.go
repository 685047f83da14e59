package values

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// An Emitter receives a value from a [Walk]. A scalar is one call. A list is a call of List, the
// calls for its elements, and a call of EndList. A map begins with Map and ends with EndMap; each
// member is a call of Key or Field, and the calls for its value. An Emitter must not retain its
// arguments.
type Emitter interface {
	Null()
	Bool(v bool)
	Int(v int64)
	Uint(v uint64)
	Float(v float64, bits int)
	Text(v string)
	Bytes(v []byte)
	Time(v time.Time)
	Duration(v time.Duration)
	Level(v slog.Level)
	JSON(v []byte) error // one encoded JSON value; if v is invalid, nothing is emitted
	Fault(err error)     // replaces a value that cannot be encoded
	List(n int)          // begins a list of n elements
	Map(n int)           // begins a map of n members; -1: the number is not known
	Key(name string)     // begins a member
	Field(f *Field)      // begins a member with the name of a struct field
	// Direct receives several members at once: fields of the struct at address p, whose values have
	// the kind Field.Direct. A field with the option omitempty whose value is zero is omitted.
	Direct(fields []Field, p unsafe.Pointer)
	EndList()
	EndMap()
	Err() error // if it is not nil, the walk ends with this error
}

// A MsgEmitter is an Emitter of MessagePack, for a walk with Limits.Forward.
type MsgEmitter interface {
	Emitter
	Msg(m Marshaler)
}

// Limits configures a [Walk].
type Limits struct {
	Depth int // maximum nesting of pointers, interfaces, maps and lists
	// Nest is the maximum nesting of maps and lists. Deeper maps and lists are emitted as JSON
	// text. 0: no limit.
	Nest int
	// Forward selects the fields and methods for MessagePack instead of JSON. With Forward, maps
	// are not sorted.
	Forward bool
	// Every selects the fields of both JSON and MessagePack. It is for an Emitter whose result can
	// be written in either format.
	Every bool
}

// MaxDepth is the Limits.Depth for all values written as JSON.
const MaxDepth = 1000

const (
	maxNodes   = 1 << 20 // maximum number of values visited; a value counts once for each pointer to it
	trackDepth = 8       // depth from which addresses are compared to find cycles
)

// The errors of a Walk. After an error the emitted value is incomplete and must be discarded.
var (
	ErrDepth   = errors.New("the value is nested too deeply")
	ErrCycle   = errors.New("the value contains itself")
	ErrNodes   = fmt.Errorf("the value holds more than %d others", maxNodes)
	ErrChanged = errors.New("a map has changed while it was written")
)

// A Walk passes values to an Emitter. It reads values of types without methods as encoding/json
// does. For a type with methods, it calls the first of these that the type has: LogValue,
// AppendAttrs, Error, MarshalJSON, MarshalText. A panic in a method becomes the text of the value.
// A Walk never modifies a value.
//
// An encoder reuses its Walk. It allocates only for sorted maps whose elements are not interfaces;
// methods of values may also allocate.
type Walk struct {
	Emitter
	Limits
	Style   *Style // style of JSON text, see Limits.Nest
	Scratch *AttrScratch
	Replace func(groups []string, a slog.Attr) slog.Attr // ReplaceAttr for attributes within values; may be nil
	Groups  []string                                     // names of the open groups, for Replace
	// Inspect, if not nil, is called for each list and for each value whose type has methods. If it
	// returns true, it has emitted the value.
	Inspect    func(v reflect.Value, s *Shape) bool
	Expansions int // number of groups and values that methods returned; limited per record
	Nodes      int // number of composite values visited; limited per record
	Level      int // number of maps and lists that enclose the current value
	// KeyFault is the error for the first map key that cannot be encoded. In the output, a text
	// with the reason replaces the key. The walk never clears KeyFault.
	KeyFault error

	depth       int         // nesting of composite values, pointers and interfaces
	groups      int         // nesting of groups
	refs        int         // number of enclosing composite values that have an address
	checkpoints [7]ref      // the enclosing values at depths 8, 16, 32, …, counted like refs, to find cycles
	path        []string    // names of the values that enclose an error, innermost first
	text        []byte      // scratch memory for a key, a UUID or a quoted value
	nested      *jsonWriter // writes values beyond Limits.Nest; nil until needed
}

// A ref identifies a pointer, map or slice. It includes the type and the length of a slice, because
// a struct and its first field have the same address, as do a slice and its beginning. The zero ref
// is for values without an address.
type ref struct {
	at  uintptr
	typ *Shape
	n   int // length of a slice
}

// Reset prepares w for another value. It keeps the counters Expansions and Nodes, which are limited
// per record.
func (w *Walk) Reset() {
	w.depth, w.refs, w.groups, w.Level, w.path = 0, 0, 0, 0, w.path[:0]
}

// Path returns the path of the value that caused an error, such as "user.address".
func (w *Walk) Path() string {
	const show = 8
	names, more := slices.Clone(w.path), ""
	slices.Reverse(names)
	if len(names) > show {
		names, more = names[:show], "…"
	}
	return strings.Join(names, ".") + more
}

// In adds name to the path of err, which occurred within the value with that name. It returns err.
func (w *Walk) In(name string, err error) error {
	if err != nil && len(w.path) < MaxDepth {
		if len(name) > 40 {
			name = strings.ToValidUTF8(name[:40], "") + "…"
		}
		w.path = append(w.path, strings.Clone(name))
	}
	return err
}

// enter begins a composite value. It returns an error if a limit is exceeded or the value contains
// itself.
func (w *Walk) enter(p ref) error {
	w.depth++
	w.Nodes++
	switch {
	case w.Nodes > maxNodes:
		return ErrNodes
	case w.depth > w.Depth:
		return ErrDepth
	}
	if p.at == 0 {
		return nil
	}
	if w.refs++; w.refs < trackDepth {
		return nil
	}
	// The refs at depths 8, 16, 32 and so on are stored as checkpoints. In a cycle every ref occurs
	// again, so the cycle is found when the ref of a checkpoint does.
	n := bits.Len(uint(w.refs) / trackDepth)
	if w.refs&(w.refs-1) == 0 && n <= len(w.checkpoints) {
		n--
		w.checkpoints[n] = p
	}
	for i := range min(n, len(w.checkpoints)) {
		if w.checkpoints[i] == p {
			return ErrCycle
		}
	}
	return w.Err()
}

// begin is like enter, for a list or a map.
func (w *Walk) begin(p ref) error {
	w.Level++
	return w.enter(p)
}

func (w *Walk) end(p ref) error {
	w.Level--
	w.leave(p)
	return nil
}

func (w *Walk) leave(p ref) {
	w.depth--
	if p.at != 0 {
		w.refs--
	}
}

// Any emits a value of any type. Common types are emitted without reflection.
func (w *Walk) Any(x any) error {
	switch x := x.(type) {
	case nil:
		w.Null()
	case string:
		w.Text(x)
	case int:
		w.Int(int64(x))
	case int64:
		w.Int(x)
	case bool:
		w.Bool(x)
	case float64:
		w.Float(x, 64)
	case time.Time:
		w.Time(x)
	case time.Duration:
		w.Duration(x)
	case []any:
		return w.anys(x)
	case map[string]any:
		if !w.Forward {
			return w.anyMap(x)
		}
		return w.mapping(reflect.ValueOf(x), shapeOf(x))
	case slog.Value:
		return w.Value(x)
	case Rendered:
		if len(x) == 0 {
			w.Null()
		} else {
			return w.json(x, nil)
		}
	case Object:
		return w.object(x)
	default:
		s, v := shapeOf(x), reflect.ValueOf(x)
		if s.Kind == Struct && s.Type.Size() > unsafe.Sizeof(uintptr(0)) && s.Methods&w.calledMethods() == 0 && w.Inspect == nil {
			return w.structure(v, s, (*[2]unsafe.Pointer)(unsafe.Pointer(&x))[1])
		}
		return w.value(v, s)
	}
	return nil
}

// Value emits a value of package slog. A group is emitted as a map.
func (w *Walk) Value(v slog.Value) error {
	switch v.Kind() {
	case slog.KindString:
		w.Text(v.String())
	case slog.KindInt64:
		w.Int(v.Int64())
	case slog.KindUint64:
		w.Uint(v.Uint64())
	case slog.KindFloat64:
		w.Float(v.Float64(), 64)
	case slog.KindBool:
		w.Bool(v.Bool())
	case slog.KindDuration:
		w.Duration(v.Duration())
	case slog.KindTime:
		w.Time(v.Time())
	case slog.KindGroup:
		return w.group(v.Group())
	case slog.KindLogValuer:
		if w.Expansions >= MaxExpansions { // a LogValue method may return a new LogValuer on each call
			w.Fault(fault(TooMany))
			return nil
		}
		w.Expansions++
		if err := w.enter(ref{}); err != nil {
			return err
		}
		err := w.Value(v.Resolve())
		w.leave(ref{})
		return err
	default:
		return w.Any(v.Any())
	}
	return nil
}

// asJSONText emits, as JSON text, a map or list that is nested too deeply. The function f emits the
// map or list to w.Emitter, which asJSONText replaces while f runs.
func (w *Walk) asJSONText(f func() error) error {
	if w.nested == nil {
		w.nested = &jsonWriter{}
	}
	outer, nest, j := w.Emitter, w.Nest, w.nested
	*j = jsonWriter{Leaf: Leaf{Style: w.Style}, dst: j.dst[:0]}
	w.Emitter, w.Nest = j, 0
	err := f()
	w.Emitter, w.Nest = outer, nest
	if err == nil {
		w.Text(unsafeString(j.dst))
	}
	return err
}

func (w *Walk) tooDeep() bool { return w.Nest > 0 && w.Level >= w.Nest }

// group emits the attributes of a group as a map.
func (w *Walk) group(attrs []slog.Attr) error {
	switch {
	case w.Expansions >= MaxExpansions:
		w.Fault(fault(TooMany))
		return nil
	case w.groups >= MaxGroups:
		w.Fault(fault(TooDeep))
		return nil
	case w.tooDeep():
		return w.asJSONText(func() error { return w.group(attrs) })
	}
	w.Expansions++
	if err := w.enter(ref{}); err != nil {
		return err
	}
	if j, ok := w.Emitter.(*jsonWriter); !ok || w.Replace != nil || !j.group(attrs) {
		w.Level++
		w.Map(-1)
		if err := w.attrs(attrs); err != nil {
			return err
		}
		w.EndMap()
		w.Level--
	}
	w.leave(ref{})
	return nil
}

// attrs emits the members of a group. The attributes of a nested group without a name become
// members of the same group.
func (w *Walk) attrs(attrs []slog.Attr) error {
	w.groups++
	for i := range attrs {
		if err := w.attr(attrs[i]); err != nil {
			return w.In(attrs[i].Key, err)
		}
	}
	w.groups--
	return nil
}

func (w *Walk) attr(a slog.Attr) error {
	if a.Value.Kind() == slog.KindLogValuer {
		a.Value = a.Value.Resolve()
	}
	if w.Replace != nil && a.Value.Kind() != slog.KindGroup {
		a = Replaced(w.Replace, w.Groups, a)
		a.Value = a.Value.Resolve()
	}
	switch a.Value.Kind() {
	case slog.KindGroup:
		return w.namedGroup(a.Key, a.Value.Group())
	case slog.KindAny:
		x := a.Value.Any()
		if x == nil && a.Key == "" {
			return nil // a zero Attr is not emitted
		}
		if o, ok := x.(AttrAppender); ok {
			attrs, mark, fault := w.Scratch.Collect(o)
			if fault != "" {
				w.Key(a.Key)
				w.Text(fault)
				return nil
			}
			err := w.namedGroup(a.Key, attrs)
			w.Scratch.Release(mark)
			return err
		}
	}
	w.Key(a.Key)
	return w.Value(a.Value)
}

// namedGroup emits a group as a member. The attributes of a group without a name become members of
// the enclosing group.
func (w *Walk) namedGroup(name string, attrs []slog.Attr) error {
	switch {
	case isEmptyGroup(attrs, 0):
		return nil
	case name == "" && w.groups < MaxGroups && w.Expansions < MaxExpansions:
		w.Expansions++
		return w.attrs(attrs)
	}
	w.Key(name)
	if w.Replace == nil {
		return w.group(attrs)
	}
	w.Groups = append(w.Groups, name)
	err := w.group(attrs)
	w.Groups = w.Groups[:len(w.Groups)-1]
	return err
}

func isEmptyGroup(attrs []slog.Attr, depth int) bool {
	if depth > MaxGroups {
		return false
	}
	for i := range attrs {
		switch v := &attrs[i].Value; v.Kind() {
		case slog.KindGroup:
			if !isEmptyGroup(v.Group(), depth+1) {
				return false
			}
		case slog.KindAny:
			if attrs[i].Key != "" || v.Any() != nil {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// An Object is a map with its members in order.
type Object []Member

// A Member is a member of an Object.
type Member struct {
	Field *Field // nil if the member is not a field of a struct
	Key   string
	Value any
}

func (w *Walk) object(o Object) error {
	if w.tooDeep() {
		return w.asJSONText(func() error { return w.object(o) })
	}
	at := ref{at: uintptr(unsafe.Pointer(unsafe.SliceData(o))), n: len(o)}
	if err := w.begin(at); err != nil {
		return err
	}
	w.Map(-1)
	if err := w.members(o); err != nil {
		return err
	}
	w.EndMap()
	return w.end(at)
}

var plainValues = NewValues(Style{})

// MarshalJSON returns o as JSON, for encoders of other packages.
func (o Object) MarshalJSON() ([]byte, error) {
	return plainValues.AppendValue(nil, nil, slog.AnyValue(o)), nil
}

// String returns o as JSON, for encoders of other packages.
func (o Object) String() string {
	return string(plainValues.AppendValue(nil, nil, slog.AnyValue(o)))
}

// members emits the members of an Object that exist in the current format, which is JSON or
// MessagePack.
func (w *Walk) members(o Object) error {
	for i := range o {
		m := &o[i]
		switch in, _ := m.Value.(Object); {
		case m.Field == nil:
			w.Key(m.Key)
		case !m.Field.In(w.Forward):
			continue
		case m.Field.inline && in != nil:
			if err := w.members(in); err != nil {
				return err
			}
			continue
		default:
			w.Emitter.Field(m.Field)
		}
		if err := w.Any(m.Value); err != nil {
			return w.In(m.Key, err)
		}
	}
	return nil
}

func (w *Walk) anys(list []any) error {
	if list == nil {
		w.Null()
		return nil
	}
	if w.tooDeep() {
		return w.asJSONText(func() error { return w.anys(list) })
	}
	at := ref{at: uintptr(unsafe.Pointer(unsafe.SliceData(list))), n: len(list)}
	if err := w.begin(at); err != nil {
		return err
	}
	w.List(len(list))
	for i, e := range list {
		if err := w.Any(e); err != nil {
			return w.In(strconv.Itoa(i), err)
		}
	}
	w.EndList()
	return w.end(at)
}

// anyMap emits a map[string]any, the most common type of maps, with sorted keys. It allocates
// nothing.
func (w *Walk) anyMap(m map[string]any) error {
	if m == nil {
		w.Null()
		return nil
	}
	if w.tooDeep() {
		return w.asJSONText(func() error { return w.anyMap(m) })
	}
	at := ref{at: *(*uintptr)(unsafe.Pointer(&m))}
	if err := w.begin(at); err != nil {
		return err
	}
	w.Map(len(m))
	var room [16]string
	keys := room[:0]
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		w.Key(k)
		if err := w.Any(m[k]); err != nil {
			return w.In(k, err)
		}
	}
	w.EndMap()
	return w.end(at)
}

// calledMethods returns the set of methods that w calls.
func (w *Walk) calledMethods() Methods {
	if w.Forward {
		return walked | HasMarshalMsg
	}
	return walked
}

// value emits v, whose type has the shape s.
func (w *Walk) value(v reflect.Value, s *Shape) error {
	ms := s.Methods
	if v.CanAddr() {
		ms = s.ByAddr
	}
	if w.Inspect != nil && (s.ByAddr != 0 || s.Kind == List) && w.Inspect(v, s) {
		return nil
	}
	if ms &= w.calledMethods(); ms != 0 && v.CanInterface() && (s.Kind != Pointer || !v.IsNil()) {
		return w.method(v, s, ms)
	}
	switch s.Kind {
	case Bool:
		w.Bool(v.Bool())
	case Int:
		w.Int(v.Int())
	case Uint:
		w.Uint(v.Uint())
	case Float:
		w.Float(v.Float(), s.Type.Bits())
	case Complex:
		w.Text(strconv.FormatComplex(v.Complex(), 'g', -1, 128))
	case Text:
		w.Text(v.String())
	case Bytes:
		if v.IsNil() {
			w.Null()
		} else {
			w.Bytes(v.Bytes())
		}
	case Duration:
		w.Duration(time.Duration(v.Int()))
	case Level:
		w.Emitter.Level(slog.Level(v.Int()))
	case Number:
		w.number(v.String())
	case RawJSON:
		if v.IsNil() {
			w.Null()
		} else {
			return w.json(v.Bytes(), s)
		}
	case UUID:
		var u [16]byte
		for i := range u {
			u[i] = byte(v.Index(i).Uint())
		}
		w.text = appendUUID(w.text[:0], &u)
		w.Text(unsafeString(w.text))
	case Time:
		switch {
		case v.CanAddr() && v.CanInterface():
			w.Time(*v.Addr().Interface().(*time.Time))
		case v.CanInterface():
			w.Time(v.Interface().(time.Time))
		default:
			w.Null()
		}
	case SlogValue:
		if v.CanInterface() {
			return w.Value(v.Interface().(slog.Value))
		}
		w.Null()
	case Interface:
		switch {
		case v.IsNil():
			w.Null()
		case v.CanInterface():
			return w.Any(v.Interface())
		default:
			if err := w.enter(ref{}); err != nil {
				return err
			}
			v = v.Elem()
			err := w.value(v, ShapeOf(v.Type()))
			w.leave(ref{})
			return err
		}
	case Pointer:
		if v.IsNil() {
			w.Null()
			return nil
		}
		at := ref{at: v.Pointer(), typ: s}
		if err := w.enter(at); err != nil {
			return err
		}
		err := w.value(v.Elem(), s.Elem)
		w.leave(at)
		return err
	case List:
		return w.list(v, s)
	case Map:
		return w.mapping(v, s)
	case Struct:
		return w.structure(v, s, nil)
	default:
		w.Fault(errors.New("json: unsupported type: " + s.Type.String()))
	}
	return nil
}

// method emits v by calling the first of the methods in the set ms.
func (w *Walk) method(v reflect.Value, s *Shape, ms Methods) error {
	x := w.receiver(v, s)
	switch {
	case ms&HasLogValue != 0:
		return w.Value(slog.AnyValue(x))
	case ms&HasAppendAttrs != 0:
		return w.appender(x.(AttrAppender))
	case ms&HasError != 0:
		w.Text(message(x.(error)))
	case ms&HasMarshalMsg != 0:
		w.Emitter.(MsgEmitter).Msg(x.(Marshaler))
	case ms&HasMarshalJSON != 0:
		b, err := Call(x, json.Marshaler.MarshalJSON)
		if err != nil {
			w.Failed("MarshalJSON", s, err)
			return nil
		}
		return w.json(b, s)
	default:
		b, err := Call(x, encoding.TextMarshaler.MarshalText)
		if err != nil {
			w.Failed("MarshalText", s, err)
		} else {
			w.Text(unsafeString(b))
		}
	}
	return nil
}

// json emits b, the result of MarshalJSON of a value of type s.
func (w *Walk) json(b []byte, s *Shape) error {
	if err := w.JSON(b); err != nil {
		w.Failed("MarshalJSON", s, err)
	}
	return nil
}

// Failed emits the error err of a method in the words of encoding/json.
func (w *Walk) Failed(method string, s *Shape, err error) {
	if f, panicked := err.(fault); panicked {
		w.Text(string(f))
		return
	}
	if s != nil {
		err = fmt.Errorf("json: error calling %s for type %s: %w", method, s.Type, err)
	}
	w.Fault(err)
}

// receiver returns v as an interface, to call its methods. If v has an address, the result is the
// address. The result is nil for a nil pointer or interface, and for a value in an unexported
// field.
func (w *Walk) receiver(v reflect.Value, s *Shape) any {
	switch {
	case !v.CanInterface() || (s.Kind == Pointer || s.Kind == Interface) && v.IsNil():
		return nil
	case v.CanAddr() && s.Kind != Pointer && s.Kind != Interface:
		return v.Addr().Interface() // the pointer type has all methods of the type, and possibly more
	}
	return v.Interface()
}

// appender emits an AttrAppender as a map.
func (w *Walk) appender(o AttrAppender) error {
	attrs, mark, fault := w.Scratch.Collect(o)
	if fault != "" {
		w.Text(fault)
		return nil
	}
	err := w.group(attrs)
	w.Scratch.Release(mark)
	return err
}

// Call returns the result of the function method for x. A panic is returned as an error.
func Call[T any](x any, method func(T) ([]byte, error)) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			b, err = nil, fault(FaultText(x, p))
		}
	}()
	return method(x.(T))
}

// number emits a json.Number. An empty number becomes 0, and an invalid number becomes a text.
func (w *Walk) number(text string) {
	switch {
	case text == "":
		w.Int(0)
	case (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && json.Valid(unsafe.Slice(unsafe.StringData(text), len(text))):
		_ = w.JSON(unsafe.Slice(unsafe.StringData(text), len(text))) // text is valid JSON
	default:
		w.Text(text)
	}
}

// list emits a slice or an array.
func (w *Walk) list(v reflect.Value, s *Shape) error {
	p, n := ref{typ: s}, v.Len()
	if v.Kind() == reflect.Slice {
		if v.IsNil() {
			w.Null()
			return nil
		}
		p.at, p.n = v.Pointer(), n
	}
	if w.tooDeep() {
		return w.asJSONText(func() error { return w.list(v, s) })
	}
	if err := w.begin(p); err != nil {
		return err
	}
	w.List(n)
	for i := range n {
		e := v.Index(i)
		if s.Elem.ByAddr&HasAppendAttrs != 0 {
			if o, ok := w.receiver(e, s.Elem).(AttrAppender); ok { // a LogValuer is excluded, because its method may allocate
				if err := w.appender(o); err != nil {
					return w.In(strconv.Itoa(i), err)
				}
				continue
			}
		}
		if err := w.value(e, s.Elem); err != nil {
			return w.In(strconv.Itoa(i), err)
		}
		if i&63 == 63 {
			if err := w.Err(); err != nil {
				return err
			}
		}
	}
	w.EndList()
	return w.end(p)
}

func (w *Walk) mapping(v reflect.Value, s *Shape) error {
	if v.IsNil() {
		w.Null()
		return nil
	}
	if w.tooDeep() {
		return w.asJSONText(func() error { return w.mapping(v, s) })
	}
	at := ref{at: v.Pointer()}
	if err := w.begin(at); err != nil {
		return err
	}
	w.Map(v.Len())
	if err := w.pairs(v, s); err != nil {
		return err
	}
	w.EndMap()
	return w.end(at)
}

// pairs emits the members of a map. In MessagePack they are not sorted.
func (w *Walk) pairs(v reflect.Value, s *Shape) error {
	if !w.Forward {
		return w.sorted(v, s)
	}
	left, mem := v.Len(), s.maps.get(s, v)
	if mem == nil {
		mem = &mapMemory{iter: *v.MapRange()}
	} else {
		defer s.maps.put(mem)
	}
	for mem.iter.Next() {
		if left--; left < 0 {
			return ErrChanged
		}
		key, val := mem.key, mem.val
		if key.IsValid() {
			key.SetIterKey(&mem.iter)
			val.SetIterValue(&mem.iter)
		} else {
			key, val = mem.iter.Key(), mem.iter.Value()
		}
		w.text = w.appendKey(w.text[:0], key, s.Key)
		w.Key(unsafeString(w.text))
		if err := w.value(val, s.Elem); err != nil {
			return w.In(string(w.appendKey(nil, key, s.Key)), err)
		}
		if err := w.Err(); err != nil {
			return err
		}
	}
	if left != 0 {
		return ErrChanged
	}
	return nil
}

// sorted emits the members of a map in the order of their keys.
func (w *Walk) sorted(v reflect.Value, s *Shape) error {
	type pair struct {
		key   string
		value reflect.Value
	}
	all := make([]pair, 0, v.Len())
	for it := v.MapRange(); it.Next(); {
		key := it.Key()
		text := ""
		if key.Kind() == reflect.String {
			text = key.String()
		} else {
			text = string(w.appendKey(nil, key, s.Key))
		}
		all = append(all, pair{text, it.Value()})
	}
	slices.SortFunc(all, func(a, b pair) int { return strings.Compare(a.key, b.key) })
	for _, p := range all {
		w.Key(p.key)
		if err := w.value(p.value, s.Elem); err != nil {
			return w.In(p.key, err)
		}
	}
	return nil
}

// appendKey appends the key of a map as text. Strings, numbers, booleans and the result of
// MarshalText are appended unchanged. Other keys are appended as JSON.
func (w *Walk) appendKey(dst []byte, k reflect.Value, s *Shape) []byte {
	for k.Kind() == reflect.Interface {
		if k.IsNil() {
			return append(dst, "null"...)
		}
		k = k.Elem()
		s = ShapeOf(k.Type())
	}
	switch {
	case k.Kind() == reflect.String:
		return append(dst, k.String()...)
	case s.Methods&HasMarshalText != 0 && k.CanInterface():
		if k.Kind() == reflect.Pointer && k.IsNil() {
			return dst
		}
		b, err := Call(k.Interface(), encoding.TextMarshaler.MarshalText)
		if err != nil {
			return w.faultyKey(dst, err)
		}
		return append(dst, b...)
	case k.CanInt():
		return strconv.AppendInt(dst, k.Int(), 10)
	case k.CanUint():
		return strconv.AppendUint(dst, k.Uint(), 10)
	case k.Kind() == reflect.Bool:
		return strconv.AppendBool(dst, k.Bool())
	case k.CanFloat():
		return jsontext.AppendFloat(dst, k.Float(), s.Type.Bits())
	}
	j := jsonWriter{Leaf: Leaf{Style: w.Style}}
	in := Walk{Emitter: &j, Limits: Limits{Depth: MaxDepth}, Style: w.Style, Scratch: new(AttrScratch), Expansions: w.Expansions}
	if err := in.value(k, s); err != nil {
		return w.faultyKey(dst, err)
	}
	if w.KeyFault == nil {
		w.KeyFault = j.fault
	}
	if len(j.dst) > 1 && j.dst[0] == '"' {
		return jsontext.AppendUnescaped(dst, j.dst[1:len(j.dst)-1])
	}
	return append(dst, j.dst...)
}

// faultyKey appends a text with the reason instead of a key that cannot be encoded. It sets
// w.KeyFault unless a method of the key panicked.
func (w *Walk) faultyKey(dst []byte, err error) []byte {
	if _, panicked := err.(fault); !panicked && w.KeyFault == nil {
		w.KeyFault = err
	}
	return append(dst, Fault(err)...)
}

// structure emits a struct. at is its address, or nil if the struct can only be read through v.
func (w *Walk) structure(v reflect.Value, s *Shape, at unsafe.Pointer) error {
	if w.tooDeep() {
		return w.asJSONText(func() error { return w.structure(v, s, at) })
	}
	if at == nil && v.CanAddr() {
		at = v.Addr().UnsafePointer()
	}
	w.Level++
	switch {
	case w.Every:
		w.Map(-1)
	case w.Forward:
		w.Map(s.count[1])
	default:
		w.Map(s.count[0])
	}
	for i := 0; i < len(s.Fields); i++ {
		f := &s.Fields[i]
		if !w.Every && !f.In(w.Forward) {
			continue
		}
		if f.run > 0 && at != nil {
			w.Emitter.Direct(s.Fields[i:i+f.run], at)
			i += f.run - 1
			continue
		}
		fv, ok := f.valueIn(v)
		if !ok || (f.OmitEmpty || f.OmitZero) && f.omits(fv) {
			continue
		}
		if err := w.field(f, fv); err != nil {
			return w.In(f.Name, err)
		}
	}
	w.EndMap()
	w.Level--
	return nil
}

func (w *Walk) field(f *Field, v reflect.Value) error {
	if f.inline && !w.Every {
		if v.IsNil() {
			return nil
		}
		at := ref{at: v.Pointer()}
		if err := w.enter(at); err != nil {
			return err
		}
		err := w.pairs(v, f.Shape)
		w.leave(at)
		return err
	}
	w.Field(f)
	if f.quoted {
		return w.quoted(v, f.Shape)
	}
	return w.value(v, f.Shape)
}

// Read implements [Emitter.Direct] for an Emitter without a faster way.
func Read(e Emitter, fields []Field, p unsafe.Pointer) {
	for i := range fields {
		f := &fields[i]
		v := reflect.NewAt(f.Type, unsafe.Add(p, f.Offset)).Elem()
		if f.OmitEmpty && v.IsZero() {
			continue
		}
		e.Field(f)
		switch f.Kind {
		case Text:
			e.Text(v.String())
		case Int:
			e.Int(v.Int())
		case Bool:
			e.Bool(v.Bool())
		default:
			e.Float(v.Float(), 64)
		}
	}
}

// quoted emits a field with the option "string" of encoding/json: the JSON of a number, bool or
// string, as a string.
func (w *Walk) quoted(v reflect.Value, s *Shape) error {
	if s.Kind == Pointer {
		if v.IsNil() {
			w.Null()
			return nil
		}
		v, s = v.Elem(), s.Elem
	}
	if s.ByAddr&w.calledMethods() != 0 && v.CanAddr() || s.Methods&w.calledMethods() != 0 {
		return w.value(v, s)
	}
	switch s.Kind {
	case Bool:
		w.text = strconv.AppendBool(w.text[:0], v.Bool())
	case Int:
		w.text = jsontext.AppendInt(w.text[:0], v.Int())
	case Uint:
		w.text = jsontext.AppendUint(w.text[:0], v.Uint())
	case Float:
		if f := v.Float(); f-f == 0 {
			w.text = jsontext.AppendFloat(w.text[:0], f, s.Type.Bits())
			break
		}
		return w.value(v, s)
	case Text:
		w.text = jsontext.AppendString(w.text[:0], v.String())
	case Number:
		if w.text = append(w.text[:0], v.String()...); len(w.text) == 0 {
			w.text = append(w.text, '0')
		}
	default:
		return w.value(v, s)
	}
	w.Text(unsafeString(w.text))
	return nil
}

func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// A mapMemory is the memory for iterating over maps of one type. It is pooled, so that reading a
// key and a value does not allocate.
type mapMemory struct {
	iter     reflect.MapIter
	key, val reflect.Value // addressable variables for a key and a value
}

// A mapPool is the pool of mapMemories for maps of one type.
type mapPool struct{ sync.Pool }

// get returns memory for iterating over v. It returns nil if copies of the elements would be
// written differently. A copy has an address, unlike an element of a map, and therefore may have
// more methods.
func (m *mapPool) get(s *Shape, v reflect.Value) *mapMemory {
	if s.Elem.addrMatters || !v.CanInterface() {
		return nil
	}
	mem, _ := m.Get().(*mapMemory)
	if mem == nil {
		mem = &mapMemory{key: reflect.New(s.Type.Key()).Elem(), val: reflect.New(s.Type.Elem()).Elem()}
	}
	mem.iter.Reset(v)
	return mem
}

// put clears mem and returns it to the pool.
func (m *mapPool) put(mem *mapMemory) {
	mem.iter.Reset(reflect.Value{})
	mem.key.SetZero()
	mem.val.SetZero()
	m.Put(mem)
}
