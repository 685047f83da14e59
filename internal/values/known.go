package values

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
)

// A KnownError is an error that has been asked for its text, for those who need that
// in several places: it is not asked again. The encoders of package encode write one as
// they write Err. To others it is an error with the text of Err; errors.Is and
// errors.As find Err in it, but not what Err wraps (see [Known]); %+v prints what Err
// prints.
type KnownError struct {
	Err  error  // not nil
	Text string // what its Error returned, or panicked with
}

// Know asks err for its text. A panic becomes the text.
func Know(err error) KnownError {
	if k := knownOf(err); k != nil {
		return *k
	}
	return KnownError{err, message(err)}
}

// Known is Know for those who look at errors with package errors: what it returns
// also wraps what err wraps.
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

// knownWrap and knownJoin are KnownErrors whose Err wraps others.
type (
	knownWrap struct{ KnownError }
	knownJoin struct{ KnownError }
)

func (k *knownWrap) Unwrap() error { return k.Err.(interface{ Unwrap() error }).Unwrap() }

func (k *knownJoin) Unwrap() []error { return k.Err.(interface{ Unwrap() []error }).Unwrap() }

// knownOf returns err as a KnownError, nil if it is none, or one without an Err: it is
// an error like others then.
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

// MarshalText returns Text, which encoding/json writes where an error would be {}.
func (k *KnownError) MarshalText() ([]byte, error) { return []byte(k.Text), nil }

// Format prints Text, or what Err prints for %+v and %#v if it says how.
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

// As sets target to Err, if it can be, for [errors.As].
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

// known appends a KnownError as its Err, which is not asked for its text.
func (w *Walker) known(dst []byte, key string, k *KnownError) []byte {
	if knownOf(k) == nil {
		return w.error(dst, key, k)
	}
	if o, ok := k.Err.(AttrAppender); ok {
		return w.object(dst, key, o)
	}
	return w.error(dst, key, k)
}

// WritesItself reports whether an error has methods with which encoders may write it
// other than as its text.
func WritesItself(err error) bool {
	switch err.(type) {
	case json.Marshaler, encoding.TextMarshaler, AttrAppender:
		return true
	}
	return false
}
