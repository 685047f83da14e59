package redact

import (
	"fmt"

	"github.com/forebay-log/forebay/internal/values"
)

// err redacts the texts of an error that encoders may write: its message, its %+v form, the
// messages of the errors it wraps, and a textual stack. If a text must change, it returns a
// replacement that has only redacted texts and does not wrap any part of the error.
func (w *Walker) err(err error, at span) (error, bool) {
	links := 0
	if !w.changes(err, at, 1, &links) {
		return nil, false
	}
	return w.cleaned(err, at), true
}

// changes reports whether a text of err, or of an error that err wraps, must change. links counts
// the examined errors.
func (w *Walker) changes(err error, at span, depth int, links *int) bool {
	*links++
	if _, changed := w.textsOf(err, at); changed {
		return true
	}
	joined, next := values.Unwrap(err)
	if next != nil {
		return depth < values.MaxChain && *links < values.MaxLinks && w.changes(next, at, depth+1, links)
	}
	for _, e := range joined {
		if e != nil && depth < values.MaxChain && *links < values.MaxLinks && w.changes(e, at, depth+1, links) {
			return true
		}
	}
	return false
}

// cleaned returns a replacement for err with all its texts redacted.
func (w *Walker) cleaned(err error, at span) error {
	links := 0
	return w.link(err, at, 1, &links)
}

// link is like cleaned, for an error at the given depth of a chain. links counts the errors of the
// chain.
func (w *Walker) link(err error, at span, depth int, links *int) error {
	*links++
	t, _ := w.textsOf(err, at)
	joined, next := values.Unwrap(err)
	if next != nil {
		joined = []error{next}
	}
	var all []error
	for _, e := range joined {
		if e != nil && depth < values.MaxChain && *links < values.MaxLinks {
			all = append(all, w.link(e, at, depth+1, links))
		}
	}
	switch {
	case next != nil && len(all) > 0:
		one := single{t, all[0]}
		switch {
		case t.pcs != nil:
			return &singleCalls{one}
		case t.trace != "":
			return &singleTrace{one}
		}
		return &one
	case t.pcs != nil:
		return &severalCalls{several{t, all}}
	case t.trace != "":
		return &severalTrace{several{t, all}}
	}
	return &several{t, all}
}

// textsOf returns the redacted texts of err itself, without the errors that it wraps. changed
// reports whether one of the texts changed.
func (w *Walker) textsOf(err error, at span) (t texts, changed bool) {
	var more, trace bool
	t.original = values.Original(err)
	t.text, changed = w.text(values.Know(err).Text, at, 0)
	t.more = t.text
	if f, ok := err.(fmt.Formatter); ok {
		b, fault := textOf(f, values.HasFormat)
		t.more, more = w.text(string(b)+fault, at, 0)
	}
	t.pcs, t.trace = values.Trace(err)
	t.trace, trace = w.text(t.trace, at, 0)
	return t, changed || more || trace
}

// texts is the replacement for an error. It contains only redacted texts.
type texts struct {
	text     string
	more     string        // the %+v form
	trace    string        // the stack in text form
	pcs      []uintptr     // the stack as program counters
	original *values.Shape // type of the replaced error
}

func (t *texts) Error() string { return t.text }

// Original implements [values.StandIn].
func (t *texts) Original() *values.Shape { return t.original }

// Format prints the field text. For %+v it prints the field more, which is the redacted verbose
// text of the replaced error.
func (t *texts) Format(s fmt.State, verb rune) {
	if verb == 'v' && s.Flag('+') {
		fmt.Fprint(s, t.more)
		return
	}
	fmt.Fprintf(s, fmt.FormatString(s, verb), t.text)
}

// There is a type for each combination of wrapping and stack methods, because encoders test for
// these methods.
type (
	single struct {
		texts
		next error
	}
	several struct {
		texts
		all []error
	}
	singleCalls  struct{ single }
	singleTrace  struct{ single }
	severalCalls struct{ several }
	severalTrace struct{ several }
)

func (s *single) Unwrap() error           { return s.next }
func (s *several) Unwrap() []error        { return s.all }
func (s *singleCalls) Callers() []uintptr { return s.pcs }
func (s *singleTrace) StackTrace() string { return s.trace }

func (s *severalCalls) Callers() []uintptr { return s.pcs }
func (s *severalTrace) StackTrace() string { return s.trace }
