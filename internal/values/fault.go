package values

import (
	"fmt"
	"log/slog"
	"reflect"
)

// PanicText returns the text that slog writes for a method of a value that panicked with p.
func PanicText(p any) string {
	const head = "!PANIC: "
	switch p := p.(type) {
	case string:
		return head + p
	case error:
		return head + message(p)
	}
	// A composite value may contain itself. fmt would follow the cycle until the stack overflows,
	// which cannot be recovered.
	switch reflect.TypeOf(p).Kind() {
	case reflect.Map, reflect.Slice, reflect.Array, reflect.Struct, reflect.Pointer, reflect.Interface:
		return fmt.Sprintf("%s(a value of type %T)", head, p)
	}
	return fmt.Sprint(head, p)
}

// Replaced returns the result of the user-supplied ReplaceAttr function replace. If the function
// panics, the text of the panic becomes the value.
func Replaced(replace func([]string, slog.Attr) slog.Attr, groups []string, a slog.Attr) (out slog.Attr) {
	defer func() {
		if p := recover(); p != nil {
			out = slog.String(a.Key, PanicText(p))
		}
	}()
	return replace(groups, a)
}

// Fault returns the text that replaces a value that cannot be encoded because of err.
func Fault(err error) string {
	if f, ok := err.(fault); ok {
		return string(f)
	}
	return "!ERROR:" + message(err)
}

// FaultText returns the text for a panic p in a method of v. Like fmt, it returns "<nil>" for a nil
// pointer whose method does not handle nil.
func FaultText(v, p any) string {
	if isNilPointer(v) {
		return "<nil>"
	}
	return PanicText(p)
}

func isNilPointer(v any) bool {
	rv := reflect.ValueOf(v)
	return rv.Kind() == reflect.Pointer && rv.IsNil()
}

// message returns err.Error(), or the description of a panic of this method.
func message(err error) (s string) {
	defer func() {
		if p := recover(); p != nil {
			s = FaultText(err, p)
		}
	}()
	return err.Error()
}
