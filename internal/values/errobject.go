package values

import (
	"reflect"
	"runtime"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// AppendError appends err as a member of the JSON object at the end of dst, preceded by a
// comma if needed. c may be nil. Most forms are as in package encode: the message, and
// further members whose keys begin with key. Two forms differ:
//
//	ErrorObject     {"Type":"*fs.PathError","Message":"…","Source":"dir/file.go:12",
//	                 "StackTrace":"function /path/file.go:12\n…","Inner":{…}}
//	ErrorException  the same, with "InnerException":{…} or "InnerExceptions":[…]
//
// Source is the first frame of the stack. Source and StackTrace are omitted for errors
// without a stack (package encode lists the supported methods). Inner is the error that err
// wraps, or a list of the errors it joins. Errors nested deeper than 20 levels, or beyond
// 100 in total, are omitted and a note is written. Error, Unwrap and the stack method are
// each called once per error; Error is not called for a [KnownError]. Frames are looked up
// once per program counter. A panic in one of these methods becomes part of the text.
func (v *Values) AppendError(dst []byte, c *Cache, key string, err error) []byte {
	switch v.errors.Errors {
	case ErrorObject:
		o := errorObject{one: `,"Inner":`, several: `,"Inner":[`}
		return o.append(jsontext.AppendKey(dst, key), err, 1)
	case ErrorException:
		o := errorObject{one: `,"InnerException":`, several: `,"InnerExceptions":[`}
		return o.append(jsontext.AppendKey(dst, key), err, 1)
	}
	w := Walker{Leaf: Leaf{&v.errors, c, FormJSON}, In: &outermost}
	return w.Any(dst, key, err)
}

// Details returns the suffixes of the additional keys that AppendError may write for an error.
func (v *Values) Details() []string { return v.errors.Errors.suffixes() }

// suffixes returns the suffixes of the additional keys of an error.
func (f errorForm) suffixes() []string {
	switch f {
	case ErrorChain:
		return []string{chainSuffix, stackSuffix}
	case ErrorVerbose:
		return []string{verboseSuffix}
	}
	return nil
}

// An errorObject writes an error and the errors it wraps as objects.
type errorObject struct {
	one, several string // text before one nested error and before a list of them, with the key
	links        int    // number of errors written
}

func (o *errorObject) append(dst []byte, err error, depth int) []byte {
	o.links++
	var text string
	if k := knownOf(err); k != nil {
		err, text = k.Err, k.Text
	} else {
		text = message(err)
	}
	known := &shapeOf(err).errors
	dst = append(dst, originalOf(err).errors.head...)
	dst = jsontext.AppendString(dst, text)
	if known.plain {
		return append(dst, '}')
	}
	if kind := known.stack; kind != noStack {
		dst = appendErrorStack(dst, err, kind)
	}
	joined, next := Unwrap(err)
	switch {
	case next != nil:
		dst = o.inner(append(dst, o.one...), next, depth+1)
	case len(joined) > 0:
		dst = append(dst, o.several...)
		for _, e := range joined {
			if e == nil {
				continue
			}
			before := o.links
			dst = o.inner(jsontext.Comma(dst), e, depth+1)
			if o.links == before {
				break // the text "(and more)" was written
			}
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// An errorType holds the properties of an error type. It is part of its [Shape].
type errorType struct {
	head    string // {"Type":"…","Message":
	plain   bool   // the type of errors.New, which has only a message
	standIn bool   // the type is a StandIn
	stack   stackKind
}

func errorTypeOf(t reflect.Type) errorType {
	head := []byte(`{`)
	if t != faultType {
		head = append(jsontext.AppendString(append(head, `"Type":`...), t.String()), ',')
	}
	return errorType{string(append(head, `"Message":`...)), t == plainError, t.Implements(standInType), stackKindOf(t)}
}

// A StandIn is an error that replaces another error and is written with the type of the replaced
// error.
type StandIn interface {
	error
	Original() *Shape // type of the replaced error
}

var standInType = reflect.TypeFor[StandIn]()

// Original returns the shape of err, or of the error that err replaces.
func Original(err error) *Shape {
	if k := knownOf(err); k != nil {
		err = k.Err
	}
	return originalOf(err)
}

// originalOf implements Original for errors that are not KnownErrors.
func originalOf(err error) *Shape {
	s := shapeOf(err)
	if s.errors.standIn {
		return err.(StandIn).Original()
	}
	return s
}

func (o *errorObject) inner(dst []byte, err error, depth int) []byte {
	if depth > MaxChain || o.links >= MaxLinks {
		return append(dst, `"(and more)"`...)
	}
	return o.append(dst, err, depth)
}

// appendErrorStack appends the members Source and StackTrace of an error with a stack.
func appendErrorStack(dst []byte, err error, kind stackKind) []byte {
	start, n := len(dst), 0
	c := stackError{err: err, kind: kind}
	text, failure := c.frames(
		func(pc uintptr) { dst, n = appendFrame(dst, FrameOf(pc), n), n+1 },
		func(f runtime.Frame) { dst, n = appendRuntimeFrame(dst, n, &f), n+1 })
	switch {
	case failure != "" || text != "":
		return jsontext.AppendString(append(dst[:start], `,"StackTrace":`...), text+failure)
	case n == 0:
		return dst
	}
	return append(dst, '"')
}

// appendFrame appends frame i of a stack. Before the first frame it appends the beginning of the
// members.
func appendFrame(dst []byte, f *Frame, i int) []byte {
	if i > 0 {
		return append(dst, f.more...)
	}
	return append(append(dst, f.head...), f.more[len(`\n`):]...)
}

// appendRuntimeFrame is like appendFrame for a frame that is already resolved.
func appendRuntimeFrame(dst []byte, i int, f *runtime.Frame) []byte {
	if i > 0 {
		dst = append(dst, `\n`...)
	} else {
		dst = appendHead(dst, f.File, f.Line)
	}
	return appendCall(dst, f.Function, f.File, f.Line)
}
