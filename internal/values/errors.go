package values

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// appendTrail appends the calls of a stack as separate lines, which follow the line of the record.
func appendTrail(dst []byte, key string, calls []string) []byte {
	dst = append(dst, "\n    "...)
	dst = append(jsontext.AppendName(dst, key), " stack:"...)
	for _, c := range calls {
		dst = append(dst, "\n        "...)
		dst = jsontext.AppendShown(dst, c, false)
	}
	return dst
}

const (
	MaxChain  = 20  // maximum depth of wrapped errors
	MaxLinks  = 100 // maximum number of errors in one chain; joined errors may share errors, so a chain can repeat them
	maxFrames = 64  // maximum number of frames of a stack
)

// error appends an error as a string, and the additional members that the style requires. Their
// keys consist of the key, an underscore and a suffix. With a dot instead, Elasticsearch would
// parse err.chain as a member of the object err, and reject a record in which err is a string.
func (w *Walker) error(dst []byte, key string, err error) []byte {
	dst = w.key(dst, key)
	if k := knownOf(err); k != nil {
		dst, err = w.text(dst, k.Text), k.Err
	} else {
		dst = w.text(dst, message(err))
	}
	switch w.Style.Errors {
	case ErrorChain:
		return w.chain(dst, key, err)
	case ErrorVerbose:
		if f, ok := err.(fmt.Formatter); ok && originalOf(err).Methods&HasFormat != 0 {
			if s, ok := verbose(f); ok {
				dst = w.text(w.suffixed(dst, key, verboseSuffix), s)
			}
		}
	}
	return dst
}

func verbose(f fmt.Formatter) (s string, ok bool) {
	defer func() { // fmt recovers panics of the method, but not all panics in nested calls of fmt
		if recover() != nil {
			s, ok = "", false
		}
	}()
	return fmt.Sprintf("%+v", f), true
}

// chain appends the chain and the stack of err, if it has any.
func (w *Walker) chain(dst []byte, key string, err error) []byte {
	c := chain{Leaf: w.Leaf}
	c.noteStack(err, 1)
	joined, next := Unwrap(err)
	if next != nil || len(joined) > 0 {
		start := len(dst)
		dst = w.suffixed(dst, key, chainSuffix)
		c.start = len(dst)
		if w.Form == FormJSON {
			dst = append(dst, '[')
			c.start++
		}
		dst = c.follow(dst, joined, next, 1)
		switch {
		case len(dst) == c.start:
			dst = dst[:start] // the joined errors are all nil
		case w.Form == FormJSON:
			dst = append(dst, ']')
		default:
			dst = w.quote(dst, c.start)
		}
	}
	dst = w.stack(dst, key, &c)
	c.scratch.free()
	return dst
}

// plainError is the type that errors.New returns, the most common error type. It has neither a
// chain nor a stack, so every format writes only its message.
var plainError = reflect.TypeOf(errors.New(""))

// A chain is the state of appending the chain of an error. For each error, Error and Unwrap are
// called once, and the stack method at most once.
//
// In JSON a chain is an array of messages, with a nested array for each branch of a joined error.
// In text formats a chain is written as "a <- b [c <- d] [e]".
type chain struct {
	Leaf
	start   int // offset in dst of the chain's text
	links   int
	scratch *stackScratch // nil if no error has a stack method
}

// A stackScratch is the memory for a chain with a stack. It is pooled.
type stackScratch struct {
	errors []stackError // the errors with a stack method, in the order of the chain
	calls  []string
}

var stackScratchPool = sync.Pool{New: func() any { return new(stackScratch) }}

func (r *stackScratch) free() {
	if r != nil {
		clear(r.errors)
		clear(r.calls[:cap(r.calls)])
		r.errors = r.errors[:0]
		stackScratchPool.Put(r)
	}
}

// A stackError is an error with a stack method. The stack may be empty, which is unknown until the
// method is called.
type stackError struct {
	err   error
	kind  stackKind
	depth int
}

// noteStack adds err to the stackErrors if it has a stack method. It calls no method.
func (c *chain) noteStack(err error, depth int) {
	k := stackOf(err)
	if k == noStack {
		return
	}
	if c.scratch == nil {
		c.scratch = stackScratchPool.Get().(*stackScratch)
	}
	c.scratch.errors = append(c.scratch.errors, stackError{err, k, depth})
}

// follow appends the chain of wrapped errors: the error next, or one branch for each error in
// joined.
func (c *chain) follow(dst []byte, joined []error, next error, depth int) []byte {
	for next != nil {
		if depth++; depth > MaxChain || c.links >= MaxLinks {
			return c.link(dst, "(and more)")
		}
		c.noteStack(next, depth)
		dst = c.link(dst, message(next))
		joined, next = Unwrap(next)
	}
	for _, err := range joined {
		if err == nil {
			continue
		}
		if depth >= MaxChain || c.links >= MaxLinks {
			return c.link(dst, "(and more)")
		}
		c.noteStack(err, depth+1)
		if c.Form == FormJSON {
			dst = jsontext.Comma(dst)
		} else if len(dst) > c.start {
			dst = append(dst, ' ')
		}
		dst = c.link(append(dst, '['), message(err))
		more, one := Unwrap(err)
		dst = append(c.follow(dst, more, one, depth+1), ']')
	}
	return dst
}

// link appends one message of the chain.
func (c *chain) link(dst []byte, s string) []byte {
	c.links++
	if c.Form == FormJSON {
		return jsontext.AppendString(jsontext.Comma(dst), s)
	}
	if len(dst) > c.start && dst[len(dst)-1] != '[' {
		dst = append(dst, " <- "...)
	}
	return append(dst, s...)
}

// Unwrap returns the errors that err wraps. A panic is returned as a wrapped error.
func Unwrap(err error) (joined []error, next error) {
	defer func() {
		if p := recover(); p != nil {
			joined, next = nil, fault(PanicText(p))
			if isNilPointer(err) {
				next = nil
			}
		}
	}()
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return nil, e.Unwrap()
	case interface{ Unwrap() []error }:
		return e.Unwrap(), nil
	}
	return nil, nil
}

// A fault is an error whose text replaces a value that cannot be encoded.
type fault string

func (f fault) Error() string { return string(f) }

// faultType is never written as the type of an error, because no code outside this package knows
// it.
var faultType = reflect.TypeFor[fault]()

// stackKind identifies the method with which an error type provides its stack.
type stackKind uint8

const (
	noStack     stackKind = iota
	stackCalled           // Callers() []uintptr
	stackString           // StackTrace() string
	stackFrames           // StackTrace() []runtime.Frame
	stackIter             // StackTrace() *runtime.Frames
	stackSlice            // StackTrace() with a slice of any uintptr type
)

// stackOf returns the kind of stack method that err's type has. It calls no method.
func stackOf(err error) stackKind { return shapeOf(err).errors.stack }

var stackTypes = [...]reflect.Type{
	stackCalled: reflect.TypeFor[interface{ Callers() []uintptr }](),
	stackString: reflect.TypeFor[interface{ StackTrace() string }](),
	stackFrames: reflect.TypeFor[interface{ StackTrace() []runtime.Frame }](),
	stackIter:   reflect.TypeFor[interface{ StackTrace() *runtime.Frames }](),
}

func stackKindOf(t reflect.Type) stackKind {
	for k := stackCalled; k <= stackIter; k++ {
		if t.Implements(stackTypes[k]) {
			return k
		}
	}
	m, ok := t.MethodByName("StackTrace")
	if !ok || m.Type.NumIn() != 1 || m.Type.NumOut() != 1 {
		return noStack
	}
	if out := m.Type.Out(0); out.Kind() == reflect.Slice && out.Elem().Kind() == reflect.Uintptr {
		return stackSlice
	}
	return noStack
}

// Trace returns the stack of err, either as program counters or as text. Both are zero if err has
// no stack. If the stack method panics, text describes the panic.
func Trace(err error) (pcs []uintptr, text string) {
	var calls []string
	c := stackError{err: err, kind: stackOf(err)}
	text, failure := c.frames(
		func(pc uintptr) { pcs = append(pcs, pc) },
		func(f runtime.Frame) { calls = append(calls, call(f.Function, f.File, f.Line)) })
	switch {
	case failure != "":
		return nil, failure
	case len(calls) > 0:
		text = strings.Join(calls, "\n")
	}
	return pcs, text
}

// frames passes each frame of the stack of c, up to maxFrames, to one of two functions: pc receives
// program counters, and frame receives resolved frames. If the stack is a text, it is returned
// instead. failure describes a panic of the stack method.
func (c *stackError) frames(pc func(uintptr), frame func(runtime.Frame)) (text, failure string) {
	defer func() {
		if p := recover(); p != nil {
			text = ""
			if !isNilPointer(c.err) {
				failure = PanicText(p)
			}
		}
	}()
	var pcs []uintptr
	switch c.kind {
	case stackString:
		return c.err.(interface{ StackTrace() string }).StackTrace(), ""
	case stackCalled:
		pcs = c.err.(interface{ Callers() []uintptr }).Callers()
	case stackFrames:
		all := c.err.(interface{ StackTrace() []runtime.Frame }).StackTrace()
		for _, f := range all[:min(len(all), maxFrames)] {
			frame(f)
		}
	case stackIter:
		it := c.err.(interface{ StackTrace() *runtime.Frames }).StackTrace()
		for n := 0; it != nil && n < maxFrames; n++ {
			f, more := it.Next()
			if f == (runtime.Frame{}) {
				break
			}
			if frame(f); !more {
				break
			}
		}
	case stackSlice:
		if e, ok := c.err.(interface{ StackTrace() []uintptr }); ok {
			pcs = e.StackTrace()
			break
		}
		all := reflect.ValueOf(c.err).MethodByName("StackTrace").Call(nil)[0]
		for i := range min(all.Len(), maxFrames) {
			pc(uintptr(all.Index(i).Uint()))
		}
	}
	for _, p := range pcs[:min(len(pcs), maxFrames)] {
		pc(p)
	}
	return "", ""
}

// stack appends the stack of the deepest error in c that has one. If no error has a stack, but a
// stack method panicked, it appends the description of the panic.
func (w *Walker) stack(dst []byte, key string, c *chain) []byte {
	if c.scratch == nil {
		return dst
	}
	fault := ""
	slices.SortStableFunc(c.scratch.errors, func(a, b stackError) int { return b.depth - a.depth })
	for i := range c.scratch.errors {
		c.scratch.calls = c.scratch.calls[:0]
		text, failure := c.scratch.errors[i].frames(
			func(pc uintptr) { c.scratch.calls = append(c.scratch.calls, FrameOf(pc).call) },
			func(f runtime.Frame) { c.scratch.calls = append(c.scratch.calls, call(f.Function, f.File, f.Line)) })
		switch {
		case text != "":
			return w.text(w.suffixed(dst, key, stackSuffix), text)
		case failure != "", len(c.scratch.calls) == 0:
			fault = cmp.Or(fault, failure)
		case w.Form == FormConsole:
			w.Trail = appendTrail(w.Trail, key, c.scratch.calls)
			return dst
		default:
			return list(w.Leaf, w.suffixed(dst, key, stackSuffix), c.scratch.calls, Leaf.text)
		}
	}
	if fault != "" {
		return w.text(w.suffixed(dst, key, stackSuffix), fault)
	}
	return dst
}
