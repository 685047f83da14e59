package transform

import (
	"fmt"
	"log/slog"
	"strings"
	"unicode/utf8"

	"github.com/forebay-log/forebay/internal/record"
)

// A Where selects records for which all its conditions hold. The zero Where selects all records. It
// is safe for concurrent use.
type Where []Condition

// A Condition compares a field with patterns. A "!" before a pattern negates it. The condition holds
// if at least one pattern matches the field and no negated pattern does. If all patterns are
// negated, the condition also holds for records without the field.
//
// A pattern must match the whole value: * matches any text, ? matches any character, and other
// characters match themselves. Case matters. Numbers and booleans are compared as written, lists and
// objects as JSON. The pattern "*" matches every value, so "!*" selects records without the field.
//
// Two fields are special. The patterns of "level" are names of levels. A name matches records of
// this level or a higher one, so "!warn" selects the levels below warn. A record whose level is
// unknown has no field "level". The field "msg" is the message, whatever its key; for text it is the
// line.
type Condition struct {
	Field    string
	Patterns []string
}

// Check returns the faults of w. Each is a *[Fault].
func (w Where) Check() (faults []error) {
	fault := func(field, format string, args ...any) {
		faults = append(faults, &Fault{Rule: -1, Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	for i, c := range w {
		if c.Field == "" {
			fault(fmt.Sprintf("where[%d].field", i), "it is empty; name a field, or level or msg")
		}
		if len(c.Patterns) == 0 {
			fault(fmt.Sprintf("where[%d].patterns", i), "%s has no pattern; * matches every value, !* matches records without the field", c.Field)
		}
		for k, pattern := range c.Patterns {
			name, _ := strings.CutPrefix(pattern, "!")
			if c.Field != levelField || name == "*" {
				continue
			}
			if _, err := record.ParseLevel(name); err != nil {
				fault(fmt.Sprintf("where[%d].patterns[%d]", i, k), "level: %s", err)
			}
		}
	}
	return faults
}

// Matches reports whether w selects the record. If w has faults, the result is undefined.
func (w Where) Matches(ev *record.Event) bool {
	for i := range w {
		if !w[i].holds(ev) {
			return false
		}
	}
	return true
}

// holds reports whether the condition holds for ev.
func (c *Condition) holds(ev *record.Event) bool {
	var buf [64]byte
	var text []byte
	found := ev.HasLevel
	level := c.Field == levelField
	if !level {
		text, found = fieldText(ev, c.Field, buf[:0])
	}
	wanted, hit := false, false
	for _, pattern := range c.Patterns {
		name, not := strings.CutPrefix(pattern, "!")
		wanted = wanted || !not
		if !found || hit && !not {
			continue
		}
		if level && atLeast(ev.Level, name) || !level && glob(name, text) {
			if not {
				return false
			}
			hit = true
		}
	}
	return hit || !wanted
}

// atLeast reports whether l is the named level or a higher one. For the name "*", it returns true.
func atLeast(l slog.Level, name string) bool {
	if name == "*" {
		return true
	}
	least, err := record.ParseLevel(name)
	return err == nil && l >= least
}

// glob reports whether pattern matches all of text. Its running time is at most proportional to the
// product of the two lengths.
func glob(pattern string, text []byte) bool {
	p, t := 0, 0
	star, from := -1, 0 // index of the last *, and index of the text after the part that the * matches
	for t < len(text) {
		if p < len(pattern) {
			switch pattern[p] {
			case '*':
				star, from = p, t
				p++
				continue
			case '?':
				_, n := utf8.DecodeRune(text[t:])
				t += n
				p++
				continue
			case text[t]:
				t++
				p++
				continue
			}
		}
		if star < 0 {
			return false
		}
		_, n := utf8.DecodeRune(text[from:])
		from += n
		p, t = star+1, from
	}
	return strings.Trim(pattern[p:], "*") == ""
}
