package values

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
)

// A KnownError is an error with its text, for callers that need the text in several places without
// calling Error again. The encoders of package encode write a KnownError like Err. In other
// respects it is an error with the text of Err. errors.Is and errors.As match Err but not the
// errors that Err wraps (see [Known]), and %+v prints like Err.
type KnownError struct {
	Err  error  // not nil
	Text string // the result of Err.Error, or the text of its panic
}

// Know calls Error on err and returns err with its text. A panic becomes the text.
func Know(err error) KnownError {
	if k := knownOf(err); k != nil {
		return *k
	}
	return KnownError{err, message(err)}
}

// Known is like Know, but errors.Is and errors.As also find the errors that err wraps.
func Known(err error) error {
	k := Know(err)
	switch k.Err.(type) {
	case interface{ Unwrap() error }:
		return &knownWrap{k}
	case interface{ Unwrap() []error }:
		return &knownJoin{k}
	}
	return &k
}

// knownWrap and knownJoin are KnownErrors whose Err wraps other errors.
type (
	knownWrap struct{ KnownError }
	knownJoin struct{ KnownError }
)

func (k *knownWrap) Unwrap() error { return k.Err.(interface{ Unwrap() error }).Unwrap() }

func (k *knownJoin) Unwrap() []error { return k.Err.(interface{ Unwrap() []error }).Unwrap() }

// knownOf returns err as a KnownError, or nil if err is not a KnownError or has no Err.
func knownOf(err error) *KnownError {
	switch k := err.(type) {
	case *KnownError:
		if k == nil || k.Err == nil {
			return nil
		}
		return k
	case *knownWrap:
		return &k.KnownError
	case *knownJoin:
		return &k.KnownError
	}
	return nil
}

// Error returns Text.
func (k *KnownError) Error() string { return k.Text }

// MarshalText returns Text. Without it, encoding/json would write {}.
func (k *KnownError) MarshalText() ([]byte, error) { return []byte(k.Text), nil }

// Format prints Text. For %+v and %#v it delegates to Err if Err is a fmt.Formatter.
func (k *KnownError) Format(s fmt.State, verb rune) {
	if f, ok := k.Err.(fmt.Formatter); ok && (s.Flag('+') || s.Flag('#')) {
		f.Format(s, verb)
		return
	}
	fmt.Fprintf(s, fmt.FormatString(s, verb), k.Text)
}

// Is reports whether Err is target, for [errors.Is].
func (k *KnownError) Is(target error) bool {
	if k == nil || k.Err == nil || target == nil {
		return false
	}
	if reflect.TypeOf(target).Comparable() && reflect.TypeOf(k.Err).Comparable() && k.Err == target {
		return true
	}
	is, ok := k.Err.(interface{ Is(error) bool })
	return ok && is.Is(target)
}

// As sets target to Err if the types match, for [errors.As].
func (k *KnownError) As(target any) bool {
	if k == nil || k.Err == nil {
		return false
	}
	at := reflect.ValueOf(target).Elem()
	if reflect.TypeOf(k.Err).AssignableTo(at.Type()) {
		at.Set(reflect.ValueOf(k.Err))
		return true
	}
	as, ok := k.Err.(interface{ As(any) bool })
	return ok && as.As(target)
}

// known appends err, a KnownError, like its field Err, but without calling Error again.
func (w *Walker) known(dst []byte, key string, err error) []byte {
	if k := knownOf(err); k != nil {
		if o, ok := k.Err.(AttrAppender); ok {
			return w.object(dst, key, o)
		}
	}
	return w.error(dst, key, err)
}

// WritesItself reports whether err has methods that an encoder may use instead of its text.
func WritesItself(err error) bool {
	switch err.(type) {
	case json.Marshaler, encoding.TextMarshaler, AttrAppender:
		return true
	}
	return false
}
