package values

import (
	"log/slog"
	"math"
	"reflect"
	"time"
	"unsafe"
)

// A rawValue has the memory layout of a [slog.Value]. attrsJSON reads it directly, because the
// methods of Value are not inlined and check the kind again.
type rawValue struct {
	num uint64         // the number, or the length of the text
	typ unsafe.Pointer // rawText, rawNumber, or any other type
	ptr unsafe.Pointer // the bytes of the text, or the slog.Kind of the number
}

func rawOf(v *slog.Value) *rawValue { return (*rawValue)(unsafe.Pointer(v)) }

func (r *rawValue) text() string { return unsafe.String((*byte)(r.ptr), int(r.num)) }

// any returns the field any of the slog.Value, which consists of typ and ptr. See [Shape.kindAny].
func (r *rawValue) any() any { return *(*any)(unsafe.Pointer(&r.typ)) }

func (r *rawValue) kind() slog.Kind { return *(*slog.Kind)(r.ptr) }

// rawText and rawNumber are the values of the field typ in a text and in a number. If this version
// of log/slog has another layout, both are an address that occurs in no Value, and attrsJSON calls
// the methods of Value.
var rawText, rawNumber = rawTypes()

func rawTypes() (text, number unsafe.Pointer) {
	none := unsafe.Pointer(new(rawValue))
	if unsafe.Sizeof(slog.Value{}) != unsafe.Sizeof(rawValue{}) {
		return none, none
	}
	const hello = "hello"
	s, other, first := slog.StringValue(hello), slog.AnyValue(none), slog.Int64Value(-2)
	text, number = rawOf(&s).typ, rawOf(&first).typ
	if r := rawOf(&s); r.num != uint64(len(hello)) || r.ptr != unsafe.Pointer(unsafe.StringData(hello)) ||
		text == number || rawOf(&other).any() != any(none) {
		return none, none
	}
	for _, n := range []struct {
		num uint64
		v   slog.Value
	}{
		{math.MaxUint64 - 1, first}, {math.MaxUint64, slog.Uint64Value(math.MaxUint64)}, {1, slog.BoolValue(true)},
		{0, slog.BoolValue(false)}, {math.Float64bits(-1.5), slog.Float64Value(-1.5)}, {uint64(time.Hour), slog.DurationValue(time.Hour)},
	} {
		if r := rawOf(&n.v); r.num != n.num || r.typ != number || r.kind() != n.v.Kind() {
			return none, none
		}
	}
	for _, v := range []slog.Value{ // see Shape.kindAny
		slog.TimeValue(time.Unix(1, 0)), slog.TimeValue(time.Unix(1<<40, 0)), slog.GroupValue(slog.Bool("", true)), slog.AnyValue(slog.KindBool),
	} {
		if reflect.TypeOf(rawOf(&v).any()).PkgPath() != "log/slog" {
			return none, none
		}
	}
	return text, number
}
