// Package transform changes records on their way from an input to the outputs: it adds, replaces,
// renames, removes and redacts fields, and drops records.
//
// A [Chain] applies its rules to a [record.Event] in order. Each rule performs one action on the
// records that its [Where] selects. A Where is also used without a rule, to select the records of
// an output.
//
// # Fields
//
// A field is identified by its name, or by a path: names of nested JSON objects and a field,
// separated by dots. A name that contains dots has priority over a path: "http.status" is the
// member "http.status" if the line has one, and the member "status" of the object "http" if not.
// Paths do not lead into lists. If a name occurs several times, a Where uses the last field, as most
// readers of JSON do, and rules change all of them.
//
// Fields from the input, such as a tag, labels or a pod, are in Event.More. They have priority over
// fields of the line, because a line may contain any value. Paths also lead into groups among these
// fields.
//
// # Lines
//
// A line keeps its format and its end. In JSON and logfmt, a rule changes only the affected bytes:
// the order of the fields, spaces, digits and escapes do not change. A text line has only the field
// msg, which is the line, and the fields level and time if they are known. For text, rules add other
// fields to Event.More.
//
// If a rule changes the level or the time in a line, the Event gets the new value. If no rule does,
// the Event keeps the values from the input, which may be more accurate than those in the line.
package transform

import (
	"fmt"

	"github.com/forebay-log/forebay/internal/record"
)

// New returns a chain of rules. If rules are invalid, it returns all faults, each a *[Fault]. The
// chain parses changed lines with a copy of p; nil means the zero Parser. The caller must not
// modify rules afterwards.
func New(rules []Rule, p *record.Parser) (*Chain, []error) {
	c := &Chain{rules: make([]rule, len(rules))}
	if p != nil {
		c.parser = *p
	}
	var faults []error
	for i := range rules {
		r := &c.rules[i]
		r.Rule = rules[i]
		r.check(func(field, format string, args ...any) {
			faults = append(faults, &Fault{Rule: i, Field: field, Problem: fmt.Sprintf(format, args...)})
		})
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return c, nil
}

// Clone returns a chain with the same rules for another goroutine. The counters of Sample and Limit
// are shared with c.
func (c *Chain) Clone() *Chain { return &Chain{rules: c.rules, parser: c.parser} }

// An Outcome is the decision of a Chain about a record.
type Outcome uint8

const (
	Kept    Outcome = iota
	Removed         // dropped by Drop, Sample or Parse
	Limited         // dropped by Limit
)

// Apply applies the rules to ev. The slices that Apply stores in ev are valid until the next call.
// It does not modify the memory that ev refers to.
func (c *Chain) Apply(ev *record.Event) Outcome {
	c.begin(ev)
	for i := range c.rules {
		r := &c.rules[i]
		if r.usesLevel {
			c.updateLevelAndTime(ev)
		}
		if !r.Where.Matches(ev) {
			continue
		}
		switch {
		case r.Drop:
			return Removed
		case r.Sample != nil:
			if !r.admits(ev) {
				return Removed
			}
		case r.limit != nil:
			if !r.limit.admits(ev) {
				return Limited
			}
		case r.parse != nil:
			if !c.parse(ev, r.parse) {
				return Removed
			}
		case r.Decolorize:
			c.decolorize(ev)
		case r.redact != nil:
			c.redactEvent(ev, r.redact)
		}
		for i := range r.add {
			if f := &r.add[i]; !c.has(ev, f.name) {
				c.add(ev, f)
			}
		}
		for i := range r.set {
			c.set(ev, &r.set[i])
		}
		for _, p := range r.renames {
			c.rename(ev, p.Name, p.Value)
		}
		for _, name := range r.Remove {
			c.remove(ev, name)
		}
	}
	c.updateLevelAndTime(ev)
	return Kept
}

// begin resets the fields that describe the previous record.
func (c *Chain) begin(ev *record.Event) {
	c.lineChanged, c.moreCopied = false, false
	c.baseline, c.lineBefore, c.lineAfter = *ev, record.Event{}, record.Event{}
	clear(c.more)
	c.more = c.more[:0]
	clear(c.edits)
	c.edits = c.edits[:0]
	c.walker.Reset()
	clear(c.values)
	c.parsed = c.parsed[:0]
	for _, buf := range []*[]byte{&c.bufs[0], &c.bufs[1], &c.text, &c.parsed} {
		if cap(*buf) > keptBytes {
			*buf = nil
		}
	}
	if cap(c.found) > keptBytes/64 {
		c.found, c.edits = nil, nil
	}
}

// admits reports whether Sample keeps ev.
func (r *rule) admits(ev *record.Event) bool {
	n := uint64(r.Sample.OneIn)
	if r.Sample.By != "" {
		var buf [64]byte
		if text, ok := fieldText(ev, r.Sample.By, buf[:0]); ok {
			return hash(text)%n == 0
		}
	}
	return (r.seen.Add(1)-1)%n == 0
}

// hash returns a hash of text that is the same in all processes: FNV-1a with the finalizer of
// MurmurHash3, which distributes the values evenly.
func hash(text []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range text {
		h = (h ^ uint64(b)) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
