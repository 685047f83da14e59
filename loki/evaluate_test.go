package loki

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/values"
)

// A joinedError counts calls like countingError, and wraps several errors.
type joinedError struct {
	countingError
	inner []error
}

func (e *joinedError) Unwrap() []error { *e.unwrap++; return e.inner }

// The type holdsError is a value that is logged as a group with an error in it.
type holdsError struct{ err error }

func (h holdsError) AppendAttrs(dst []slog.Attr) []slog.Attr {
	return append(dst, slog.Any("err", h.err))
}

// An ownFormatter is a Formatter that does not belong to package encode. It inspects errors only
// with errors.Is and errors.As.
type ownFormatter struct {
	groups string
	attrs  []byte
}

func (f ownFormatter) Scope() encode.Scope { return f }
func (ownFormatter) Codec() batch.Codec    { return encode.JSON(nil).Codec() }
func (ownFormatter) NeedsPC() bool         { return false }
func (f ownFormatter) WithGroup(name string) encode.Scope {
	f.groups += name + "."
	return f
}
func (f ownFormatter) WithAttrs(attrs []slog.Attr) encode.Scope {
	f.attrs = f.append(bytes.Clone(f.attrs), f.groups, attrs)
	return f
}
func (f ownFormatter) Append(dst []byte, r *encode.Record) ([]byte, batch.Meta, error) {
	return f.append(append(dst, f.attrs...), f.groups, r.Attrs), batch.Meta{}, nil
}

func (f ownFormatter) append(dst []byte, prefix string, attrs []slog.Attr) []byte {
	for _, a := range attrs {
		v := a.Value.Resolve()
		if v.Kind() == slog.KindGroup {
			dst = f.append(dst, prefix+a.Key+".", v.Group())
			continue
		}
		if o, ok := v.Any().(encode.AttrAppender); ok {
			dst = f.append(dst, prefix+a.Key+".", o.AppendAttrs(nil))
			continue
		}
		dst = fmt.Appendf(dst, "%s%s=", prefix, a.Key)
		if err, ok := v.Any().(error); ok {
			dst = f.error(dst, err)
		} else {
			dst = fmt.Appendf(dst, "%v", v.Any())
		}
		dst = append(dst, ' ')
	}
	return dst
}

func (f ownFormatter) error(dst []byte, err error) []byte {
	dst = append(dst, err.Error()...)
	var stack interface{ Callers() []uintptr }
	if errors.As(err, &stack) {
		dst = fmt.Appendf(dst, "(%d)", len(stack.Callers()))
	}
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range j.Unwrap() {
			dst = f.error(dst, e)
		}
	} else if e := errors.Unwrap(err); e != nil {
		dst = f.error(append(dst, "<-"...), e)
	}
	return dst
}

// The methods of each error in a chain are called once per record. This holds in every form of
// lines, also if the error becomes a label or metadata, and also if it is in a list, map or struct.
func TestErrorMethodsAreCalledOnceInAllForms(t *testing.T) {
	seed := testkit.Seed(t)
	chain := &encode.Options{Errors: "chain"}
	bodies := []struct {
		name  string
		c     Config
		text  bool // an error is written as its message only
		json  bool // lists and maps are written as in metadata
		other bool // a Formatter writes the lines
	}{
		{name: "json", json: true, text: true}, {name: "object", c: Config{Line: Line{Errors: "object"}}, json: true},
		{name: "exception in json", c: Config{Wire: wireJSON, Line: Line{Errors: "exception"}}, json: true}, {name: "chain in json", c: Config{Wire: wireJSON, Line: Line{Errors: "chain"}}, json: true},
		{name: "logfmt chain", c: Config{Line: Line{Body: bodyLogfmt, Errors: "chain"}}, json: true}, {name: "logfmt in json", c: Config{Wire: wireJSON, Line: Line{Body: bodyLogfmt}}, json: true, text: true},
		{name: "formatter json", c: Config{Line: Line{Formatter: encode.JSON(chain)}}, other: true},
		{name: "formatter logfmt", c: Config{Line: Line{Formatter: encode.Logfmt(chain)}}, other: true},
		{name: "formatter console", c: Config{Line: Line{Formatter: encode.Console(chain)}}, other: true},
		{name: "own formatter", c: Config{Line: Line{Formatter: ownFormatter{}}}, other: true},
	}
	shapes := []struct {
		name string
		path string
		deep bool // the methods of wrapped errors are called, too
		make func(err error) slog.Attr
	}{
		{"plain", "err", true, func(err error) slog.Attr { return slog.Any("err", err) }},
		{"no key", "_", true, func(err error) slog.Attr { return slog.Any("", err) }},
		{"group", "g.err", true, func(err error) slog.Attr { return slog.Group("g", "x", 1, "err", err) }},
		{"groups", "g.h.err", true, func(err error) slog.Attr { return slog.Group("g", slog.Group("h", "err", err), "y", 2) }},
		{"inline", "err", true, func(err error) slog.Attr { return slog.Group("", "x", 1, "err", err) }},
		{"valuer", "err", true, func(err error) slog.Attr { return slog.Any("err", valuerOf{slog.AnyValue(err)}) }},
		{"valuer of a group", "g.err", true, func(err error) slog.Attr {
			return slog.Any("g", valuerOf{slog.GroupValue(slog.Any("err", valuerOf{slog.AnyValue(err)}))})
		}},
		{"appender", "g.err", true, func(err error) slog.Attr { return slog.Any("g", holdsError{err}) }},
		{"appender in a group", "g.h.err", true, func(err error) slog.Attr { return slog.Group("g", "h", holdsError{err}) }},
		{"list", "errs", false, func(err error) slog.Attr { return slog.Any("errs", []error{nil, err}) }},
		{"list by address", "errs", false, func(err error) slog.Attr { return slog.Any("errs", &[]error{err}) }},
		{"list in a group", "g.errs", false, func(err error) slog.Attr { return slog.Group("g", "errs", []error{err}) }},
		{"any list", "errs", false, func(err error) slog.Attr { return slog.Any("errs", []any{1, []any{err}}) }},
		{"map", "errs", false, func(err error) slog.Attr { return slog.Any("errs", map[string]error{"a": err, "b": nil}) }},
		{"any map", "errs", false, func(err error) slog.Attr {
			return slog.Any("errs", map[string]any{"a": []error{err}, "b": map[string]any{"c": 1}})
		}},
		{"struct", "s", false, func(err error) slog.Attr {
			return slog.Any("s", &struct {
				Err error
				D   time.Duration
			}{err, 1})
		}},
		{"appenders", "list", false, func(err error) slog.Attr { return slog.Any("list", []holdsError{{err}}) }},
	}
	places := []string{"line", "label", "metadata", "both", "all", "all and label", "dropped"}
	for i, b := range bodies {
		for j, sh := range shapes {
			for k, place := range places {
				if !testkit.Share(seed, i+j+k, 5) {
					continue
				}
				for _, joined := range []bool{false, true} {
					for _, scoped := range []string{"record", "with", "group", "with group"} {
						if b.other && place != "line" && (sh.name == "appenders" || sh.name == "struct") {
							continue // may be called twice, as Config.Line documents
						}
						name := fmt.Sprintf("%s: %s, %s, joined %v, %s", b.name, sh.name, place, joined, scoped)
						a, bb := newCounting("inner a", nil), newCounting("inner b", nil)
						links := []*countingError{a, bb}
						var err error
						if joined {
							j := &joinedError{*newCounting("outer text", nil), []error{a, bb}}
							err, links = j, append(links, &j.countingError)
						} else {
							a.inner = bb
							outer := newCounting("outer text", a)
							err, links = outer, append(links, outer)
						}
						c := b.c
						c.BatchBytes = 4 << 10
						path := sh.path
						if strings.HasSuffix(scoped, "group") {
							path = "open." + path
						}
						if sh.path == "_" && place != "line" && place != "all" && place != "dropped" {
							continue // an attribute without a key cannot be configured by name
						}
						switch place {
						case "label", "all and label":
							c.LabelAttrs = []string{path}
						case "metadata":
							c.MetadataAttrs = []string{path}
						case "both":
							c.LabelAttrs, c.MetadataAttrs = []string{path}, []string{path}
						case "dropped":
							c.TraceIDKey, c.TraceID = "err", inMetadata
						}
						c.MetadataAll = strings.HasPrefix(place, "all")
						attrs := []slog.Attr{slog.Int("n", 1), sh.make(err), slog.String("s2", "x")}
						r := encode.Record{Message: "m"}
						var scopes []func(encode.Scope) encode.Scope
						if path != sh.path && strings.HasSuffix(scoped, "group") {
							scopes = append(scopes, inGroup("open"))
						}
						if strings.HasPrefix(scoped, "with") {
							scopes = append(scopes, with(attrs...))
						} else {
							r.Attrs = attrs
						}
						got, labels := encodeOne(t, c, r, scopes...)
						stacks := 0
						for _, e := range links {
							stacks += *e.stack
							if *e.errors > 1 || *e.unwrap > 1 || *e.stack > 1 {
								t.Errorf("%s: %s: Error called %d times, Unwrap %d, Callers %d", name, e.text, *e.errors, *e.unwrap, *e.stack)
							}
							if sh.deep && place != "dropped" && !b.text && (*e.errors != 1 || *e.unwrap != 1) {
								t.Errorf("%s: %s: Error called %d times, Unwrap %d", name, e.text, *e.errors, *e.unwrap)
							}
						}
						// With "object" and "exception", every error has a stack. The other forms
						// write one stack per chain.
						object := c.Line.Errors == "object" || c.Line.Errors == "exception"
						if sh.deep && place != "dropped" && !b.text && stacks != len(links) && (stacks != 1 || object) || b.text && stacks > 0 {
							t.Errorf("%s: got %d stacks", name, stacks)
						}
						in := got.Line
						if place != "line" && place != "label" && place != "dropped" {
							in = fmt.Sprint(got.Meta)
						}
						if place == "label" {
							in = labels
						}
						if (b.json || sh.deep || place != "line") && place != "dropped" && !strings.Contains(in, "outer text") {
							t.Errorf("%s: %s does not contain the error", name, in)
						}
						if b.json && place != "dropped" && !strings.Contains(got.Line, "outer text") {
							t.Errorf("%s: %s does not contain the error", name, got.Line)
						}
					}
				}
			}
		}
	}
}

// Only a limited number of evaluated values is retained for a record. Further values are evaluated
// each time they are written.
func TestEvaluatedValuesAreBounded(t *testing.T) {
	s := sinkFor(t, stored204{}, Config{MetadataAll: true})
	p := getPicked(0)
	defer p.free()
	out := s.enc.root.evaluate(p, nil, []slog.Attr{slog.Any("e", endless{}), slog.Any("err", newCounting("x", nil))})
	if p.evaluations != maxEvaluations {
		t.Errorf("kept %d groups", p.evaluations)
	}
	if _, ok := out[1].Value.Any().(*values.KnownError); !ok || out[0].Value.Kind() != slog.KindGroup {
		t.Errorf("got %v", out[1])
	}
	list := make([]any, 8)
	for i := range list {
		list[i] = list
	}
	list[3] = map[string]any{"list": list}
	encodeOne(t, Config{MetadataAll: true, Line: Line{Formatter: bytesAsLines{}}}, encode.Record{Message: "m", Attrs: []slog.Attr{slog.Any("list", list)}})
	e, _ := encodeOne(t, Config{MetadataAll: true}, encode.Record{Message: "m", Attrs: []slog.Attr{slog.Any("g", groupValuer{[]slog.Attr{slog.Int("a", 1)}}), slog.Any("e", endless{})}})
	if e.Meta["g_a"] != "1" || !strings.HasPrefix(e.Line, `{"msg":"m","g":{"a":1}`) {
		t.Errorf("got %.100s %q", e.Line, e.Meta["g_a"])
	}
}

// Although errors are evaluated before a Formatter receives them, it finds the original error.
// Errors that encode themselves are passed unchanged.
func TestFormatterReceivesOriginalErrors(t *testing.T) {
	for _, all := range []bool{false, true} {
		f := &recordingFormatter{}
		err := newCounting("text", errors.New("in"))
		encodeOne(t, Config{MetadataAll: all, Line: Line{Formatter: f}}, encode.Record{Attrs: []slog.Attr{slog.Any("err", fmt.Errorf("outer: %w", err)), slog.Any("json", asJSON{})}})
		outer, ok := f.seen[0].Value.Any().(error)
		var in *countingError
		if !ok || !errors.As(outer, &in) || in != err || errors.Unwrap(outer) != error(err) {
			t.Errorf("all %v: got %T %v", all, outer, outer)
		}
		if _, ok := outer.(*countingError); ok {
			t.Error("the Formatter received the inner error instead of the outer one")
		}
		if _, ok := f.seen[1].Value.Any().(asJSON); !ok {
			t.Errorf("all %v: got %T", all, f.seen[1].Value.Any())
		}
	}
}

type asJSON struct{}

func (asJSON) Error() string                { return "text" }
func (asJSON) MarshalJSON() ([]byte, error) { return []byte("1"), nil }

// A recordingFormatter is a Formatter that retains the attributes it received.
type recordingFormatter struct {
	bytesAsLines
	seen []slog.Attr
}

func (f *recordingFormatter) Scope() encode.Scope { return f }
func (f *recordingFormatter) Append(dst []byte, r *encode.Record) ([]byte, batch.Meta, error) {
	f.seen = append(f.seen, r.Attrs...)
	return append(dst, 'x'), batch.Meta{}, nil
}

// A line does not change if its attributes are also labels or metadata.
func TestEvaluationDoesNotChangeLine(t *testing.T) {
	rng := testkit.Rand(testkit.Seed(t))
	for i := range 1000 {
		c := Config{Wire: []string{wireProtobuf, wireJSON}[i/2%2], BatchBytes: 4 << 10, Line: Line{Body: []string{bodyJSON, bodyLogfmt}[i%2]}, Limits: Limits{MaxMetadataPairs: 1}}
		r := encode.Record{Time: time.Unix(1, 2), Message: "m", Attrs: randomAttrs(rng, 0)}
		r.Attrs = append(r.Attrs, slog.Any("errs", []any{errors.New("x"), map[string]error{"k": nil}, struct{ E error }{errors.New("y")}}))
		if rng.IntN(4) == 0 {
			c.Line.Formatter = []encode.Encoder{encode.JSON(nil), encode.Logfmt(nil), encode.Console(nil)}[rng.IntN(3)]
		}
		var lines [2]string
		for k := range lines {
			c.MetadataAll = k == 1
			s := sinkFor(t, nil, c)
			dst, _, err := s.Encoder().Scope().WithGroup("w").WithAttrs(r.Attrs[:i%3%len(r.Attrs)]).Append(nil, &r)
			if err != nil {
				t.Fatal(err)
			}
			line, _, _ := s.enc.codec.parts(func() entry {
				e, _ := s.enc.form.parse(dst)
				return e
			}())
			lines[k] = string(line)
		}
		if lines[0] != lines[1] {
			t.Fatalf("%d: got\n%s, want\n%s", i, lines[1], lines[0])
		}
	}
}
