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
// fields of the line, because a line may contain any value. Paths also lead into their groups.
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
	"log/slog"
	"sync/atomic"

	"github.com/forebay-log/forebay/cmd/internal/listen/syslog"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/redact"
)

// A Rule performs one action on the records that Where selects. Exactly one of the other fields is
// set.
type Rule struct {
	Where Where

	// Add adds fields. An existing field is not changed.
	Add []Setting
	// Set adds fields, or replaces their values.
	Set []Setting
	// Rename renames fields, all at the same time, so that two names can be swapped. If a record
	// already has a field with the new name, that field is removed. If the new path leads to the
	// same object, the field keeps its position in the object.
	Rename []Pair
	// Remove removes the fields with these names.
	Remove []string
	// Redact hides secrets.
	Redact *Redact
	// Sample drops all but a sample of the records.
	Sample *Sample
	// Limit drops records above a rate.
	Limit *Limit
	// Parse extracts fields from text.
	Parse *Parse
	// Decolorize removes ANSI escape sequences, such as colors. In JSON it removes them only from
	// the message.
	Decolorize bool
	// Drop drops the record.
	Drop bool
}

// A Setting is a field of Add or Set. Value is a string, a bool or a json.Number, and keeps this
// type in every format. If the first names in the path Name are existing objects, the field is
// added to the innermost of them.
type Setting struct {
	Name  string
	Value any
}

// A Pair is an old and a new name in Rename. In Parse.Types it is the name of a group and its type.
type Pair struct{ Name, Value string }

// Redact hides secrets, like forebay.RedactKeys and RedactPattern. It searches names, texts and
// numbers at any depth of the record, JSON within texts, and Event.More. docs/REDACTION.md lists
// the details.
type Redact struct {
	// Keys are names of fields whose values are hidden, whatever their type. Case is ignored. A
	// name may begin or end with *. A name with dots is a path: "card.number" matches the field
	// number in the object card. In a text line, only keys of JSON objects in the text are found.
	Keys []string
	// Patterns are regular expressions whose matches are hidden. In JSON, each name, text and
	// number is searched separately. In logfmt, the whole line is searched too.
	Patterns []string
	// Replacement replaces hidden values. Default "[redacted]".
	Replacement string
}

// Sample keeps one record in OneIn and drops the others.
type Sample struct {
	OneIn int
	// By is the name of a field, such as a trace id. All records with the same value are kept or
	// dropped together, in all processes. Of the records without the field, every OneIn-th one is
	// kept. Default (""): every OneIn-th record is kept.
	By string
}

// A Fault is an error in a rule or a Where.
type Fault struct {
	Rule    int    // index of the rule; -1 for a Where without a rule
	Field   string // such as "where[0].patterns[1]" or "redact.keys[0]"; "" for the rule
	Problem string // describes the error and the remedy
}

// Error returns the text of the fault with the number of its rule, counted from 1.
func (f *Fault) Error() string {
	s := f.Problem
	if f.Field != "" {
		s = f.Field + ": " + s
	}
	if f.Rule >= 0 {
		s = fmt.Sprintf("rule %d: %s", f.Rule+1, s)
	}
	return s
}

// Text returns the text of the fault without the number of its rule.
func (f *Fault) Text() string { return (&Fault{-1, f.Field, f.Problem}).Error() }

// A Chain applies rules to one record at a time. It is not safe for concurrent use. Each goroutine
// needs its own [Chain.Clone].
type Chain struct {
	rules  []rule // shared with clones
	parser record.Parser
	walker redact.Walker

	// The fields from lineChanged to text contain data about the current record.
	lineChanged bool         // the line was changed after level and time were last updated
	baseline    record.Event // the event before the first change of its line
	lineBefore  record.Event // level and time read from baseline.Line; the field Line is nil until they are read
	lineAfter   record.Event // level and time read from the changed line, or from the text that Parse reads
	moreCopied  bool         // Event.More was copied to the field more
	more        []slog.Attr  // copy of Event.More that rules may change
	bufs        [2][]byte    // buffers for changed lines, used alternately
	next        int          // index in bufs of the buffer for the next changed line
	found       []foundField // result of find
	edits       []edit       // changes that are not yet applied to the line
	text        []byte       // memory for the texts of edits

	reader record.Parser // copy of parser with another format; used by Parse
	values []value       // used by Parse
	syslog syslog.Parser // used by Parse
	parsed []byte        // texts that fields of the Event refer to
}

// A rule is a checked and compiled Rule.
type rule struct {
	Rule
	usesLevel bool // Where compares the level
	add, set  []field
	renames   []Pair // steps that have the effect of Rename
	redact    *redact.Rules
	parse     *parseRule
	limit     *limiter
	seen      atomic.Uint64 // number of records without the field Sample.By
}

// keptBytes is the maximum size of a buffer that is kept for the next record.
const keptBytes = 1 << 20

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

// updateLevelAndTime updates the level and the time of ev after the line was changed. If parsing
// the old and the new line gives the same value, the value of ev does not change, because the input
// may have set it.
func (c *Chain) updateLevelAndTime(ev *record.Event) {
	if !c.lineChanged {
		return
	}
	c.lineChanged = false
	c.parser.ParseAs(ev.Format, ev.Raw, len(ev.Line), &c.lineAfter)
	same := c.lineAfter.HasLevel == ev.HasLevel && c.lineAfter.Level == ev.Level && c.lineAfter.Time.Equal(ev.Time)
	if !same && c.lineBefore.Line == nil {
		c.parser.ParseAs(c.baseline.Format, c.baseline.Raw, len(c.baseline.Line), &c.lineBefore)
	}
	ev.Rewrite(&c.lineBefore, &c.lineAfter)
	c.lineBefore = c.lineAfter
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
