package redact

import (
	"fmt"

	"github.com/forebay-log/forebay/internal/values"
)

// Encoders write no more of a chain of errors than these limits.
const (
	maxChain = 20  // depth of wrapped errors
	maxLinks = 100 // total errors
)

// err returns a replacement for err if a text that encoders write of it must change: its
// message, its %+v form, the messages of the errors it wraps, or a textual stack. The
// replacement has all these texts, redacted, and does not wrap any part of err.
func (w *Walker) err(err error, at span) (error, bool) {
	links := 0
	if !w.changes(err, at, 1, &links) {
		return nil, false
	}
	links = 0
	return w.cleaned(err, at, 1, &links), true
}

// changes reports whether a text of err must change.
func (w *Walker) changes(err error, at span, depth int, links *int) bool {
	*links++
	if _, ch := w.text(values.Know(err).Text, at, 0); ch {
		return true
	}
	if s, ok := verbose(err); ok {
		if _, ch := w.text(s, at, 0); ch {
			return true
		}
	}
	if _, trace := values.Trace(err); trace != "" {
		if _, ch := w.text(trace, at, 0); ch {
			return true
		}
	}
	joined, next := values.Unwrap(err)
	if next != nil {
		return depth < maxChain && *links < maxLinks && w.changes(next, at, depth+1, links)
	}
	for _, e := range joined {
		if e != nil && depth < maxChain && *links < maxLinks && w.changes(e, at, depth+1, links) {
			return true
		}
	}
	return false
}

// cleaned returns an error with the texts of err, redacted.
func (w *Walker) cleaned(err error, at span, depth int, links *int) error {
	*links++
	var c texts
	c.text, _ = w.text(values.Know(err).Text, at, 0)
	c.more = c.text
	if s, ok := verbose(err); ok {
		c.more, _ = w.text(s, at, 0)
	}
	pcs, trace := values.Trace(err)
	trace, _ = w.text(trace, at, 0)
	joined, next := values.Unwrap(err)
	var all []error
	if next != nil {
		joined = []error{next}
	}
	for _, e := range joined {
		if e != nil && depth < maxChain && *links < maxLinks {
			all = append(all, w.cleaned(e, at, depth+1, links))
		}
	}
	switch {
	case next != nil && len(all) > 0:
		one := single{c, all[0]}
		switch {
		case pcs != nil:
			return &singleCalls{one, pcs}
		case trace != "":
			return &singleTrace{one, stackText(trace)}
		}
		return &one
	}
	many := several{c, all}
	switch {
	case pcs != nil:
		return &severalCalls{many, pcs}
	case trace != "":
		return &severalTrace{many, stackText(trace)}
	}
	return &many
}

// verbose returns the %+v form of an error that implements fmt.Formatter.
func verbose(err error) (string, bool) {
	f, ok := err.(fmt.Formatter)
	if !ok {
		return "", false
	}
	b, fault := textOf(f, values.HasFormat)
	return string(b) + fault, true
}

// texts is an error that consists of texts.
type texts struct {
	text string
	more string // the %+v form
}

func (t *texts) Error() string { return t.text }

// Format prints the text, or for %+v the verbose text of the replaced error.
func (t *texts) Format(s fmt.State, verb rune) {
	if verb == 'v' && s.Flag('+') {
		fmt.Fprint(s, t.more)
		return
	}
	fmt.Fprintf(s, fmt.FormatString(s, verb), t.text)
}

// One type for each combination of wrapping and stack method: encoders examine the method
// set.
type (
	single struct {
		texts
		next error
	}
	several struct {
		texts
		all []error
	}

	calls     []uintptr
	stackText string

	singleCalls struct {
		single
		calls
	}
	singleTrace struct {
		single
		stackText
	}
	severalCalls struct {
		several
		calls
	}
	severalTrace struct {
		several
		stackText
	}
)

func (s *single) Unwrap() error        { return s.next }
func (s *several) Unwrap() []error     { return s.all }
func (c calls) Callers() []uintptr     { return c }
func (t stackText) StackTrace() string { return string(t) }
