package transform

import (
	"bytes"
	"log/slog"
	"strings"
)

// A kind is the type of a field that Parse extracts.
type kind uint8

const (
	textKind    kind = iota // any text
	intKind                 // digits with a sign
	floatKind               // a number
	boolKind                // true or false
	timeKind                // the time of the record
	levelKind               // the level of the record
	messageKind             // the message
)

// A template is text with fields between literals, such as
//
//	{client} - {user} [{time:...}] "{method} {path}" {status:int}
//
// A field extends to the next literal. A field without a form matches a word, which contains neither
// a space nor a quotation mark. The other forms match:
//
//	int     digits with an optional sign
//	...     any text
//	spaces  spaces; may be empty
//	quoted  text up to a quotation mark without a backslash before it; may be empty
//	*       any text to the end; may be empty
//	whole   all text to the end; the literals and fields after it match parts of the same text
//
// The text does not become a field if the name is "-", or if the text is empty or "-".
//
// Matching takes one pass over the text, which is many times faster than a regular expression.
type template []part

// A part is a field and the literal that follows it.
type part struct {
	group
	form    form
	literal string
}

// A form is a kind of text that a field can match.
type form uint8

const (
	word form = iota
	integer
	anything
	whole
	spaces // only this form and the following ones match an empty text
	quoted
	rest
)

// forms maps the names of forms in templates to forms.
var forms = map[string]form{"": word, "int": integer, "quoted": quoted, "...": anything, "whole": whole, "spaces": spaces, "*": rest}

// newTemplate parses a template. It panics if the template is invalid, because all templates are
// constants of this package.
func newTemplate(text string) (t template) {
	literal, text, ok := strings.Cut(text, "{")
	t = append(t, part{group: group{name: "-"}, form: rest, literal: literal}) // part 0 contains only the literal before the first field
	for ok {
		var field string
		field, text, ok = strings.Cut(text, "}")
		name, kindOf, _ := strings.Cut(field, ":")
		f, known := forms[kindOf]
		if !ok || !known || name == "" {
			panic("transform: template field " + field)
		}
		p := part{group: group{name: name}, form: f}
		switch {
		case name == slog.TimeKey:
			p.kind = timeKind
		case name == slog.LevelKey:
			p.kind = levelKind
		case name == slog.MessageKey:
			p.kind = messageKind
		case f == integer:
			p.kind = intKind
		}
		p.literal, text, ok = strings.Cut(text, "{")
		t = append(t, p)
	}
	return t
}

// match matches text with the template and appends the fields to values. ok is false if text does
// not match.
func (t template) match(values []value, text []byte) (all []value, ok bool) {
	if !strings.HasPrefix(asString(text), t[0].literal) {
		return values, false
	}
	at := len(t[0].literal)
	for i := 1; i < len(t); i++ {
		p := &t[i]
		end := p.end(text, at)
		if end < 0 {
			return values, false
		}
		v := text[at:end]
		if p.form == whole {
			v = text[at:]
		}
		if at = end + len(p.literal); p.form < spaces && len(v) == 0 {
			return values, false
		}
		if p.name != "-" && (len(v) != 1 || v[0] != '-') && len(v) > 0 {
			values = append(values, value{p.group, v})
		}
	}
	if at != len(text) {
		return values, false
	}
	return values, true
}

// end returns the index after the field that starts at text[at]. The literal of p follows there. If
// the field does not match, it returns -1.
func (p *part) end(text []byte, at int) int {
	b := text[at:]
	n := len(b)
	switch p.form {
	case word:
		for i, c := range b {
			if c == ' ' || c == '"' {
				n = i
				break
			}
			if p.literal != "" && c == p.literal[0] && i > 0 && strings.HasPrefix(asString(b[i:]), p.literal) {
				return at + i
			}
		}
	case integer:
		n = 0
		if n < len(b) && (b[n] == '-' || b[n] == '+') {
			n++
		}
		for n < len(b) && b[n]-'0' < 10 {
			n++
		}
	case quoted:
		for i := 0; ; i++ {
			j := bytes.IndexByte(b[i:], '"')
			if j < 0 {
				return -1
			}
			if i += j; !escapedAt(b, i) {
				n = i
				break
			}
		}
	case spaces:
		n -= len(bytes.TrimLeft(b, " "))
	case anything, whole:
		if p.literal != "" {
			n = strings.Index(asString(b), p.literal)
		}
	}
	if n < 0 || !strings.HasPrefix(asString(b[n:]), p.literal) {
		return -1
	}
	return at + n
}

// escapedAt reports whether a backslash escapes b[i]: an odd number of backslashes precedes it.
func escapedAt(b []byte, i int) bool {
	n := 0
	for n < i && b[i-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}
