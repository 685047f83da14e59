package encode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A countingError is an error that counts the calls of its methods.
type countingError struct {
	msg           string
	next          error
	asked, unwrap int
}

func (e *countingError) Error() string { e.asked++; return e.msg }

func (e *countingError) Unwrap() error { e.unwrap++; return e.next }

type countingJoin struct {
	msg           string
	next          []error
	asked, unwrap int
}

func (e *countingJoin) Error() string { e.asked++; return e.msg }

func (e *countingJoin) Unwrap() []error { e.unwrap++; return e.next }

// chained are options that write the chain and the stack of an error.
var chained = &Options{Errors: "chain"}

func TestErrorMethodsAreCalledOnce(t *testing.T) {
	leaf1, leaf2 := &countingError{msg: "leaf1"}, &countingError{msg: "leaf2"}
	mid := &countingError{msg: "mid", next: leaf2}
	join := &countingJoin{msg: "join", next: []error{leaf1, nil, mid}}
	top := &countingError{msg: "top", next: join}
	for _, e := range []Encoder{JSON(chained), Logfmt(chained), Console(chained)} {
		encodeOne(t, e, slog.Any("err", top))
		for _, l := range []*countingError{leaf1, leaf2, mid, top} {
			if l.asked != 1 || l.unwrap != 1 {
				t.Errorf("%s: Error asked %d times, Unwrap %d times, want 1 and 1", l.msg, l.asked, l.unwrap)
			}
			l.asked, l.unwrap = 0, 0
		}
		if join.asked != 1 || join.unwrap != 1 {
			t.Errorf("join: Error asked %d times, Unwrap %d times, want 1 and 1", join.asked, join.unwrap)
		}
		join.asked, join.unwrap = 0, 0
	}
}

func cyclicError() error {
	a, b := &countingError{msg: "a"}, &countingError{msg: "b"}
	a.next, b.next = b, a
	return a
}

func wideError() error {
	err := error(&countingError{msg: "x"})
	for range 18 {
		err = &countingJoin{msg: "j", next: []error{err, err}}
	}
	return err
}

func TestErrorDetailsByFormat(t *testing.T) {
	path := &fs.PathError{Op: "open", Path: "/x", Err: fs.ErrNotExist}
	for _, c := range []struct {
		name   string
		format string
		err    error
		want   string
	}{
		{"plain", "", io.EOF, `"err":"EOF"`},
		{"wrapped", "chain", fmt.Errorf("read: %w", io.EOF), `"err":"read: EOF","err_chain":["EOF"]`},
		{"twice", "chain", fmt.Errorf("start: %w", path), `"err":"start: open /x: file does not exist","err_chain":["open /x: file does not exist","file does not exist"]`},
		{"joined", "chain", errors.Join(io.EOF, fmt.Errorf("b: %w", io.ErrClosedPipe)),
			`"err":"EOF\nb: io: read/write on closed pipe","err_chain":[["EOF"],["b: io: read/write on closed pipe","io: read/write on closed pipe"]]`},
		{"several %w", "chain", fmt.Errorf("%w and %w", io.EOF, io.ErrNoProgress), `"err":"EOF and multiple Read calls return no data or error","err_chain":[["EOF"],["multiple Read calls return no data or error"]]`},
		{"join below", "chain", fmt.Errorf("c: %w", errors.Join(io.EOF)), `"err":"c: EOF","err_chain":["EOF",["EOF"]]`},
		{"unwraps nil", "chain", &countingError{msg: "e"}, `"err":"e"`},
		{"unwraps nothing", "chain", &countingJoin{msg: "e", next: []error{nil, nil}}, `"err":"e"`},
		{"panics", "chain", panicUnwrap{}, `"err":"outside","err_chain":["!PANIC: unwrap"]`},
		{"nil pointer", "", (*ptrError)(nil), `"err":"<nil>"`},
		{"default", "", fmt.Errorf("start: %w", errors.Join(path, textError{"a stack"})), `"err":"start: open /x: file does not exist\ntext"`},
		{"text", "text", fmt.Errorf("read: %w", io.EOF), `"err":"read: EOF"`},
		{"verbose", "verbose", verboseError{}, `"err":"short","err_verbose":"long\nversion"`},
		{"verbose without", "verbose", fmt.Errorf("read: %w", io.EOF), `"err":"read: EOF"`},
		{"marshaler with a chain", "chain", jsonError{"x"}, `"err":"x"`},
		{"marshaler", "", jsonError{"x"}, `"err":"x"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := encodeOne(t, JSON(&Options{LevelKey: "-", MessageKey: "-", Errors: c.format}), slog.Any("err", c.err))
			if want := "{" + c.want + "}\n"; got != want {
				t.Errorf("got %swant %s", got, want)
			}
		})
	}
}

type verboseError struct{}

func (verboseError) Error() string { return "short" }

func (verboseError) Format(f fmt.State, verb rune) {
	if f.Flag('+') {
		io.WriteString(f, "long\nversion")
	} else {
		io.WriteString(f, "short")
	}
}

func TestErrorChainIsBounded(t *testing.T) {
	for _, err := range []error{cyclicError(), wideError()} {
		got := encodeOne(t, JSON(chained), slog.Any("err", err))
		if n := strings.Count(got, `"`)/2 - 6; n > 100+25 || !strings.Contains(got, "(and more)") {
			t.Errorf("%d links: %.400s", n, got)
		}
	}
	if got := encodeOne(t, JSON(chained), slog.Any("err", cyclicError())); !strings.Contains(got, `"err_chain":[`+strings.Repeat(`"b","a",`, 9)+`"b","(and more)"]`) {
		t.Errorf("not 20 links: %s", got)
	}
	deep := io.EOF
	for i := range 19 {
		deep = &countingError{msg: fmt.Sprint(i), next: deep}
	}
	if got := encodeOne(t, JSON(chained), slog.Any("err", deep)); strings.Contains(got, "more") || !strings.Contains(got, `"0","EOF"]`) {
		t.Errorf("20 links are within bounds: %s", got)
	}
}

// Error types with stacks, as in several packages.
type (
	pkgFrame  uintptr
	pkgStack  []pkgFrame
	pkgError  struct{ pcs pkgStack }
	goError   struct{ pcs []uintptr }
	textError struct{ s string }
	rtError   struct{ frames []runtime.Frame }
	iterError struct{ pcs []uintptr }
	badStack  struct{}
	oddStack  struct{}
	wrapStack struct {
		goError
		err error
	}
)

func (e pkgError) Error() string { return "pkg" }

func (e pkgError) StackTrace() pkgStack { return e.pcs }

func (e goError) Error() string { return "go" }

func (e goError) Callers() []uintptr { return e.pcs }

func (e textError) Error() string { return "text" }

func (e textError) StackTrace() string { return e.s }

func (e rtError) Error() string { return "rt" }

func (e rtError) StackTrace() []runtime.Frame { return e.frames }

func (e iterError) Error() string { return "iter" }

func (e iterError) StackTrace() *runtime.Frames { return runtime.CallersFrames(e.pcs) }

func (e badStack) Error() string { return "bad" }

func (e badStack) Callers() []uintptr { panic("no stack") }

func (e oddStack) Error() string { return "odd" }

func (e oddStack) StackTrace(int) []uintptr { panic("must not be called") }

func (e wrapStack) Unwrap() error { return e.err }

func callers() []uintptr {
	pcs := make([]uintptr, 8)
	return pcs[:runtime.Callers(1, pcs)]
}

func TestStacksOfErrorTypes(t *testing.T) {
	pcs := callers()
	frames := runtime.CallersFrames(pcs)
	first, _ := frames.Next()
	rt := []runtime.Frame{first}
	pkg := make(pkgStack, len(pcs))
	for i, pc := range pcs {
		pkg[i] = pkgFrame(pc)
	}
	for name, err := range map[string]error{
		"pkg": pkgError{pkg}, "go": goError{pcs}, "rt": rtError{rt}, "iter": iterError{pcs},
		"wrapped":  fmt.Errorf("outer: %w", goError{pcs}),
		"deepest":  wrapStack{goError{[]uintptr{1}}, goError{pcs}},
		"branches": errors.Join(io.EOF, goError{pcs}, goError{[]uintptr{1}}),
	} {
		t.Run(name, func(t *testing.T) {
			got := encodeOne(t, JSON(chained), slog.Any("err", err))
			want := `"err_stack":["github.com/forebay-log/forebay/encode.callers ` + first.File
			if !strings.Contains(got, want) {
				t.Errorf("no %s in %s", want, got)
			}
			if name != "rt" && !strings.Contains(got, "encode.TestStacksOfErrorTypes ") {
				t.Errorf("no second frame in %s", got)
			}
			console := encodeOne(t, Console(chained), slog.Any("err", err))
			if !strings.Contains(console, "\n    err stack:\n        github.com/forebay-log/forebay/encode.callers "+first.File) {
				t.Errorf("not on lines of its own: %s", console)
			}
			s := Console(chained).Scope().WithAttrs([]slog.Attr{slog.Any("err", err)})
			console = encodeScope(t, s, slog.Int("n", 1))
			if i, j := strings.Index(console, "n=1"), strings.Index(console, "err stack:"); i < 0 || j < i {
				t.Errorf("not behind the record: %s", console)
			}
			checkLine(t, Console(chained), []byte(console))
		})
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{textError{"line\nline"}, `"err":"text","err_stack":"line\nline"`},
		{textError{}, `"err":"text"`},
		{goError{}, `"err":"go"`},
		{badStack{}, `"err":"bad","err_stack":"!PANIC: no stack"`},
		{oddStack{}, `"err":"odd"`},
		{(*goError)(nil), `"err":"<nil>"`},
	} {
		if got := encodeOne(t, JSON(&Options{LevelKey: "-", MessageKey: "-", Errors: "chain"}), slog.Any("err", c.err)); got != "{"+c.want+"}\n" {
			t.Errorf("got %s want %s", got, c.want)
		}
	}
	// A long stack is truncated, and invalid program counters are written as frames.
	got := encodeOne(t, JSON(chained), slog.Any("err", goError{make([]uintptr, 1<<20)}))
	if n := strings.Count(got, `":0"`); n != 64 {
		t.Errorf("%d frames", n)
	}
}

// A maybeStack is an error with a stack method that may return nothing or panic. It counts the
// calls of the method.
type maybeStack struct {
	pcs     []uintptr
	next    error
	crashes bool
	asked   int
}

func (e *maybeStack) Error() string { return "asked" }

func (e *maybeStack) Unwrap() error { return e.next }

func (e *maybeStack) Callers() []uintptr {
	e.asked++
	if e.crashes {
		panic("no stack")
	}
	return e.pcs
}

// An error whose stack method returns nothing does not hide the stack of a different error. Each
// stack method is called once.
func TestEmptyStackDoesNotHideOtherStack(t *testing.T) {
	pcs := callers()
	const found, crashed = `"err_stack":["github.com/forebay-log/forebay/encode.callers `, `"err_stack":"!PANIC: no stack"`
	for name, c := range map[string]struct {
		make func() []*maybeStack // the first error is logged
		want string
	}{
		"empty below": {func() []*maybeStack {
			below := &maybeStack{}
			return []*maybeStack{{pcs: pcs, next: below}, below}
		}, found},
		"three deep": {func() []*maybeStack {
			c := &maybeStack{}
			b := &maybeStack{next: c}
			return []*maybeStack{{pcs: pcs, next: b}, b, c}
		}, found},
		"empty branch first": {func() []*maybeStack {
			a, b := &maybeStack{}, &maybeStack{pcs: pcs}
			return []*maybeStack{{next: errors.Join(a, b)}, a, b}
		}, found},
		"panics below": {func() []*maybeStack {
			below := &maybeStack{crashes: true}
			return []*maybeStack{{pcs: pcs, next: below}, below}
		}, found},
		"panics above": {func() []*maybeStack {
			below := &maybeStack{pcs: pcs}
			return []*maybeStack{{crashes: true, next: below}, below}
		}, found},
		"panics, others empty": {func() []*maybeStack {
			below := &maybeStack{crashes: true}
			return []*maybeStack{{next: below}, below}
		}, crashed},
		"none": {func() []*maybeStack {
			below := &maybeStack{}
			return []*maybeStack{{next: below}, below}
		}, ""},
	} {
		for _, enc := range []Encoder{JSON(chained), Logfmt(chained), Console(chained)} {
			links := c.make()
			got := encodeOne(t, enc, slog.Any("err", links[0]))
			if strings.HasPrefix(got, "{") && (!strings.Contains(got, c.want) || c.want == "" && strings.Contains(got, "err_stack")) {
				t.Errorf("%s: want %s in %s", name, c.want, got)
			}
			if has := strings.Contains(got, "encode.callers"); has != (c.want == found) {
				t.Errorf("%s: a stack: %v in %s", name, has, got)
			}
			for i, l := range links {
				if l.asked > 1 {
					t.Errorf("%s: link %d was asked %d times for its stack", name, i, l.asked)
				}
			}
		}
	}
	// If an error is in two branches of a joined error, its stack method is called once per branch.
	shared := &maybeStack{}
	if got := encodeOne(t, JSON(chained), slog.Any("err", errors.Join(shared, shared))); shared.asked != 2 || strings.Contains(got, "stack") {
		t.Errorf("asked %d times: %s", shared.asked, got)
	}
	// An empty stack does not hide the stack of a wrapped or joined error of another type.
	for _, err := range []error{wrapStack{goError{pcs}, goError{}}, errors.Join(goError{}, goError{pcs}), errors.Join(textError{}, goError{pcs})} {
		if got := encodeOne(t, JSON(chained), slog.Any("err", err)); !strings.Contains(got, found) {
			t.Errorf("no stack: %s", got)
		}
	}
}

// If the value of a key is a string, no other key begins with that key and a dot. Elasticsearch
// would interpret such a key as a member of an object and reject the record. The caller must avoid
// a group with the same name as an error.
func TestNoKeyExtendsKeyOfString(t *testing.T) {
	err := fmt.Errorf("outer: %w", errors.Join(goError{callers()}, verboseError{}))
	attrs := []slog.Attr{
		slog.Any("err", err), slog.Any("v", verboseError{}), slog.Any("", textError{"at\nline"}), slog.Any("e.f", err),
		slog.Group("g", slog.Any("err", err), slog.Group("h", slog.Any("err", textError{"at\nline"}))),
	}
	for _, form := range []string{"text", "chain", "verbose"} {
		o := &Options{Errors: form, AddSource: true}
		for name, e := range map[string]Encoder{"json": JSON(o), "logfmt": Logfmt(o), "console": Console(o)} {
			line := encodeScope(t, e.Scope().WithAttrs(attrs).WithGroup("w").WithAttrs(attrs), attrs...)
			keys := map[string]bool{} // keys of strings, with the names of their groups
			all := []string{}
			if name == "json" {
				var members map[string]any
				if err := json.Unmarshal([]byte(line), &members); err != nil {
					t.Fatal(err)
				}
				var flatten func(prefix string, in map[string]any)
				flatten = func(prefix string, in map[string]any) {
					for k, v := range in {
						if in, ok := v.(map[string]any); ok {
							flatten(prefix+k+".", in)
							continue
						}
						_, keys[prefix+k] = v.(string)
						all = append(all, prefix+k)
					}
				}
				flatten("", members)
			} else {
				first, _, _ := strings.Cut(line, "\n")
				if name == "console" {
					_, first, _ = strings.Cut(first, " m  ")
				}
				pairs, err := parseLogfmt(first)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range pairs {
					keys[p[0]] = true
					all = append(all, p[0])
				}
			}
			if !keys["w.g.err"] || form == "chain" && !slices.Contains(all, "w.g.err_chain") {
				t.Fatalf("%s, %s: keys %q", name, form, all)
			}
			for _, k := range all {
				for i := range k {
					if k[i] == '.' && keys[k[:i]] {
						t.Errorf("%s, %s: the key %s extends %s, which is the key of a string", name, form, k, k[:i])
					}
				}
			}
		}
	}
}
