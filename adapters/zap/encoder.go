package forebayzap

import (
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/values"
)

// An object collects fields as attributes. It is a zapcore.ObjectEncoder for one goroutine.
type object struct {
	attrs  []slog.Attr
	spaces []space      // open namespaces, the outermost first
	top    [2]slog.Attr // scratch space for the attributes caller and stack of an entry
}

// A space is an open namespace. It contains the attributes in attrs[from:].
type space struct {
	key  string
	from int
}

// add adds fields. An error stays an error value, so that the outputs determine its format.
func (o *object) add(fields []zapcore.Field) {
	for i := range fields {
		switch f := &fields[i]; f.Type {
		case zapcore.ErrorType:
			o.attrs = append(o.attrs, slog.Any(f.Key, f.Interface))
		case zapcore.InlineMarshalerType:
			o.contain(f)
		default:
			f.AddTo(o)
		}
	}
}

// contain adds the fields of an inlined object to o. If a method of the object panics, the text of
// the panic replaces these fields.
func (o *object) contain(f *zapcore.Field) {
	attrs, spaces := len(o.attrs), len(o.spaces)
	defer func() {
		if p := recover(); p != nil {
			o.attrs, o.spaces = o.attrs[:attrs], o.spaces[:spaces]
			o.put(f.Key, slog.StringValue(values.FaultText(f.Interface, p)))
		}
	}()
	f.AddTo(o)
}

// objectOf returns the attributes of m. If m panics, fault is the text of the panic. If m fails,
// err is its error, attrs contains the attributes added before, and zap adds the error as a field.
func objectOf(m zapcore.ObjectMarshaler) (attrs []slog.Attr, fault string, err error) {
	defer func() {
		if p := recover(); p != nil {
			attrs, fault, err = nil, values.FaultText(m, p), nil
		}
	}()
	var inner object
	err = m.MarshalLogObject(&inner)
	return inner.group(), "", err
}

// arrayOf returns the elements of m as a list, or the text of the panic if m panics. err is the
// error of m.
func arrayOf(m zapcore.ArrayMarshaler) (v slog.Value, err error) {
	defer func() {
		if p := recover(); p != nil {
			v, err = slog.StringValue(values.FaultText(m, p)), nil
		}
	}()
	var a array
	err = m.MarshalLogArray(&a)
	return a.value(), err
}

// group closes all namespaces and returns the attributes, with each namespace as a group. The
// result uses memory of o and is valid until o changes.
func (o *object) group() []slog.Attr {
	for i := len(o.spaces) - 1; i >= 0; i-- {
		s := o.spaces[i]
		inner := slices.Clone(o.attrs[s.from:])
		o.attrs = append(o.attrs[:s.from], slog.Attr{Key: s.key, Value: slog.GroupValue(inner...)})
	}
	o.spaces = o.spaces[:0]
	return o.attrs
}

// maxAttrs is the maximum capacity of the attributes of an object that is returned to the pool.
const maxAttrs = 256

// reset removes all attributes and the references to their values.
func (o *object) reset() {
	clear(o.attrs[:cap(o.attrs)])
	clear(o.top[:])
	o.attrs, o.spaces = o.attrs[:0], o.spaces[:0]
	if cap(o.attrs) > maxAttrs {
		o.attrs = nil
	}
}

// put appends an attribute.
func (o *object) put(key string, v slog.Value) {
	o.attrs = append(o.attrs, slog.Attr{Key: key, Value: v})
}

// The following methods implement zapcore.ObjectEncoder.

// AddArray adds a list. It returns the error of m.
func (o *object) AddArray(key string, m zapcore.ArrayMarshaler) error {
	v, err := arrayOf(m)
	o.put(key, v)
	return err
}

// AddObject adds a group. It returns the error of m.
func (o *object) AddObject(key string, m zapcore.ObjectMarshaler) error {
	attrs, fault, err := objectOf(m)
	if fault == "" {
		o.put(key, slog.GroupValue(attrs...))
	} else {
		o.put(key, slog.StringValue(fault))
	}
	return err
}

func (o *object) AddBinary(key string, v []byte)          { o.put(key, slog.AnyValue(v)) }
func (o *object) AddByteString(key string, v []byte)      { o.put(key, slog.StringValue(string(v))) }
func (o *object) AddBool(key string, v bool)              { o.put(key, slog.BoolValue(v)) }
func (o *object) AddComplex128(key string, v complex128)  { o.put(key, complexValue(v, 128)) }
func (o *object) AddComplex64(key string, v complex64)    { o.put(key, complexValue(complex128(v), 64)) }
func (o *object) AddDuration(key string, v time.Duration) { o.put(key, slog.DurationValue(v)) }
func (o *object) AddFloat64(key string, v float64)        { o.put(key, slog.Float64Value(v)) }
func (o *object) AddFloat32(key string, v float32)        { o.put(key, slog.Float64Value(shortest(v))) }
func (o *object) AddInt(key string, v int)                { o.put(key, slog.IntValue(v)) }
func (o *object) AddInt64(key string, v int64)            { o.put(key, slog.Int64Value(v)) }
func (o *object) AddInt32(key string, v int32)            { o.put(key, slog.Int64Value(int64(v))) }
func (o *object) AddInt16(key string, v int16)            { o.put(key, slog.Int64Value(int64(v))) }
func (o *object) AddInt8(key string, v int8)              { o.put(key, slog.Int64Value(int64(v))) }
func (o *object) AddString(key, v string)                 { o.put(key, slog.StringValue(v)) }
func (o *object) AddTime(key string, v time.Time)         { o.put(key, slog.TimeValue(v)) }
func (o *object) AddUint(key string, v uint)              { o.put(key, slog.Uint64Value(uint64(v))) }
func (o *object) AddUint64(key string, v uint64)          { o.put(key, slog.Uint64Value(v)) }
func (o *object) AddUint32(key string, v uint32)          { o.put(key, slog.Uint64Value(uint64(v))) }
func (o *object) AddUint16(key string, v uint16)          { o.put(key, slog.Uint64Value(uint64(v))) }
func (o *object) AddUint8(key string, v uint8)            { o.put(key, slog.Uint64Value(uint64(v))) }
func (o *object) AddUintptr(key string, v uintptr)        { o.put(key, slog.Uint64Value(uint64(v))) }

// AddReflected adds a value that the outputs encode by reflection.
func (o *object) AddReflected(key string, v any) error {
	o.put(key, slog.AnyValue(v))
	return nil
}

// OpenNamespace begins a group that contains all later attributes.
func (o *object) OpenNamespace(key string) { o.spaces = append(o.spaces, space{key, len(o.attrs)}) }

// shortest returns the float64 with the shortest decimal form of v: 0.1 instead of
// 0.10000000149011612.
func shortest(v float32) float64 {
	f, err := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', -1, 32), 64)
	if err != nil {
		return float64(v)
	}
	return f
}

// complexValue returns v in the format of zap, 1+2i.
func complexValue(v complex128, bits int) slog.Value {
	return slog.StringValue(strings.Trim(strconv.FormatComplex(v, 'g', -1, bits), "()"))
}

// An array collects the elements of a list. It is a zapcore.ArrayEncoder.
type array struct{ elems []any }

// value returns the list. If all elements are objects, it is a list of AttrAppenders, so that
// redaction rules and ReplaceAttr apply to the attributes of the objects.
func (a *array) value() slog.Value {
	var objects []members
	for _, e := range a.elems {
		m, ok := e.(members)
		if !ok {
			return slog.AnyValue(a.elems)
		}
		objects = append(objects, m)
	}
	if len(objects) > 0 {
		return slog.AnyValue(objects)
	}
	return slog.AnyValue([]any{})
}

// put appends an element.
func (a *array) put(v any) { a.elems = append(a.elems, v) }

// The following methods implement zapcore.ArrayEncoder.

// AppendArray appends a list. It returns the error of m.
func (a *array) AppendArray(m zapcore.ArrayMarshaler) error {
	v, err := arrayOf(m)
	a.put(v.Any())
	return err
}

// AppendObject appends the attributes of an object. It returns the error of m.
func (a *array) AppendObject(m zapcore.ObjectMarshaler) error {
	attrs, fault, err := objectOf(m)
	if fault == "" {
		a.put(members(attrs))
	} else {
		a.put(fault)
	}
	return err
}

// AppendReflected appends a value that the outputs encode by reflection.
func (a *array) AppendReflected(v any) error {
	a.put(v)
	return nil
}

func (a *array) AppendBool(v bool)              { a.put(v) }
func (a *array) AppendByteString(v []byte)      { a.put(string(v)) }
func (a *array) AppendComplex128(v complex128)  { a.put(complexValue(v, 128).String()) }
func (a *array) AppendComplex64(v complex64)    { a.put(complexValue(complex128(v), 64).String()) }
func (a *array) AppendDuration(v time.Duration) { a.put(v) }
func (a *array) AppendFloat64(v float64)        { a.put(v) }
func (a *array) AppendFloat32(v float32)        { a.put(v) }
func (a *array) AppendInt(v int)                { a.put(v) }
func (a *array) AppendInt64(v int64)            { a.put(v) }
func (a *array) AppendInt32(v int32)            { a.put(v) }
func (a *array) AppendInt16(v int16)            { a.put(v) }
func (a *array) AppendInt8(v int8)              { a.put(v) }
func (a *array) AppendString(v string)          { a.put(v) }
func (a *array) AppendTime(v time.Time)         { a.put(v) }
func (a *array) AppendUint(v uint)              { a.put(v) }
func (a *array) AppendUint64(v uint64)          { a.put(v) }
func (a *array) AppendUint32(v uint32)          { a.put(v) }
func (a *array) AppendUint16(v uint16)          { a.put(v) }
func (a *array) AppendUint8(v uint8)            { a.put(v) }
func (a *array) AppendUintptr(v uintptr)        { a.put(v) }

// members contains the attributes of an object in a list. It is an AttrAppender, so the outputs
// write it as a group.
type members []slog.Attr

var _ encode.AttrAppender = members(nil)

// AppendAttrs appends the attributes to dst.
func (m members) AppendAttrs(dst []slog.Attr) []slog.Attr { return append(dst, m...) }
