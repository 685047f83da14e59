package values

import (
	"fmt"
	"reflect"
)

// PanicText says that a method of a value panicked with p, as slog does.
func PanicText(p any) string {
	const head = "!PANIC: "
	switch p := p.(type) {
	case string:
		return head + p
	case error:
		return head + message(p)
	}
	// A composite could be cyclic, and fmt would follow it until the stack
	// ends, which nothing can recover from.
	switch reflect.TypeOf(p).Kind() {
	case reflect.Map, reflect.Slice, reflect.Array, reflect.Struct, reflect.Pointer, reflect.Interface:
		return fmt.Sprintf("%s(a value of type %T)", head, p)
	}
	return fmt.Sprint(head, p)
}

// FaultText describes a panic in a method of v. A nil pointer whose method does
// not expect one is no fault worth more words than "<nil>", as in fmt.
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

// message returns err.Error(), or what went wrong in it.
func message(err error) (s string) {
	defer func() {
		if p := recover(); p != nil {
			s = FaultText(err, p)
		}
	}()
	return err.Error()
}
