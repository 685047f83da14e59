// Package transform changes records on their way from an input to the outputs: it adds, replaces,
// renames, removes and redacts fields, and drops records.
//
// A [Chain] applies its rules to a [record.Event] in order. Each rule performs one action on the
// records that its [Where] selects. A Where is also used without a rule, to select the records of
// an output.
//
// # Fields
//
// A field is identified by its name, or by a path of names separated by dots, which leads into JSON
// objects. A name that contains the dots has priority: "http.status" is the member "http.status" or
// else the member "status" of the object "http". Paths do not lead into lists. If a name occurs
// several times, a Where uses the last one, as most readers of JSON do, and rules change all of
// them.
//
// Fields from the input (Event.More: a tag, labels, a pod) have priority over fields of the line,
// because a line may contain any value. Paths lead into their groups.
//
// # Lines
//
// A line keeps its format and its end. In JSON and logfmt a rule changes only the affected bytes:
// the order of the fields, spaces, digits and escapes stay. Text has no fields except msg, which is
// the line, and level and time, if known. Set and Add add fields to Event.More, Rename and Remove
// also look there, and Redact works on the text.
//
// Level and time of the Event follow the line: if a rule changes them in the line, they change in
// the Event. Otherwise they keep the values from the input, which may be more accurate than the
// line. In text they change if a rule changes the field level or time.
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
	// Rename renames fields, all at the same time, so that two can be swapped. If a record already
	// has a field with the new name, that field is removed. A field keeps its position in its
	// object if the new path leads to the same object.
	Rename []Pair
	// Remove removes fields.
	Remove []string
	// Redact hides secrets.
	Redact *Redact
	// Sample keeps some records and drops the others.
	Sample *Sample
	// Limit drops records above a rate.
	Limit *Limit
	// Parse extracts fields from text.
	Parse *Parse
	// Decolorize removes ANSI escape sequences, for example those for colors, from the message.
	Decolorize bool
	// Drop drops the record.
	Drop bool
}

// A Setting is a field of Add or Set. Value is a string, a bool or a json.Number. It keeps this
// type in every format. If Name is a path whose first names lead to existing objects, the field is
// added to the innermost of these objects, with the rest of the path as its name.
type Setting struct {
	Name  string
	Value any
}

// A Pair is a name and a value. In Rename these are the old and the new name. In Types they are a
// group and its type.
type Pair struct{ Name, Value string }

// Redact hides secrets like forebay.RedactKeys and RedactPattern. docs/REDACTION.md lists the
// values that are searched. Names, texts and numbers at any depth of a record are searched, also
// JSON within a text, and Event.More.
type Redact struct {
	// Keys are names of fields whose values are hidden, whatever their type. Case is ignored. A
	// name may begin or end with *. A name with dots is a path: "card.number" matches the field
	// number in the object card. In text, only the names in JSON are found.
	Keys []string
	// Patterns are regular expressions whose matches are hidden. In JSON each name, text and number
	// is searched separately; in logfmt the whole line is searched too.
	Patterns []string
	// Replacement replaces hidden values. Default "[redacted]".
	Replacement string
}

// Sample keeps one in OneIn records.
type Sample struct {
	OneIn int
	// By, if set, is the name of a field. Records with the same value of the field are kept or
	// dropped together, in all processes; for example, all records of a trace. Of the records
	// without the field, every OneIn-th one is kept.
	By string
}

// A Fault is an error in a rule or a Where.
type Fault struct {
	Rule    int    // index of the rule; -1 for a Where without a rule
	Field   string // such as "where[0].patterns[1]" or "redact.keys[0]"; "" for the rule
	Problem string // the problem and its remedy
}

// Error returns the fault with the number of its rule, counted from 1.
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

// Text returns the fault without the number of its rule.
func (f *Fault) Text() string { return (&Fault{-1, f.Field, f.Problem}).Error() }

// A Chain applies rules to one record at a time. It is not safe for concurrent use. Other
// goroutines use clones.
type Chain struct {
	rules  []rule // shared by clones
	parser record.Parser
	walker redact.Walker

	// The fields from lineChanged to text describe the current record.
	lineChanged bool         // the line was changed, and level and time were not updated since
	baseline    record.Event // the event before the first change of its line
	lineBefore  record.Event // level and time read from baseline.Line; its Line is nil until baseline.Line is parsed
	lineAfter   record.Event // level and time read from the changed line; Parse also stores the result of reader here
	moreCopied  bool         // Event.More is the copy in the field more
	more        []slog.Attr  // copy of Event.More that rules may change
	bufs        [2][]byte    // buffers for changed lines, used alternately
	next        int          // index in bufs of the next line
	found       []foundField // result of find
	edits       []edit       // changes of the line that were not written
	text        []byte       // texts of edits

	reader record.Parser // used by Parse: parser with another format
	values []value       // used by Parse
	syslog syslog.Parser // used by Parse
	parsed []byte        // texts that values of the Event refer to
}

// A rule is a checked Rule.
type rule struct {
	Rule
	usesLevel bool // Where has a condition for the level
	add, set  []field
	renames   []Pair // Rename as successive steps
	redact    *redact.Rules
	parse     *parseRule
	limit     *limiter
	seen      atomic.Uint64 // number of records without the field Sample.By
}

// keptBytes is the size above which a buffer is not kept for the next record.
const keptBytes = 1 << 20

// New returns a chain of rules. If rules have faults, it returns all of them, each a *[Fault]. The
// chain parses lines with a copy of p; nil means the zero Parser. The caller must not modify rules
// afterwards.
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

// Clone returns a chain for another goroutine. It has the same rules, and shares the counters of
// Sample and Limit with c.
func (c *Chain) Clone() *Chain { return &Chain{rules: c.rules, parser: c.parser} }

// An Outcome is the decision of a Chain about a record.
type Outcome uint8

const (
	Kept    Outcome = iota
	Removed         // by Drop, Sample or Parse
	Limited         // by Limit
)

// Apply applies the rules to ev. Slices that it stores in ev are valid until the next call. It does
// not modify the memory to which ev refers.
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

// updateLevelAndTime updates the level and the time of ev if the line was changed. A value is
// updated only if it differs between the line before and after the change.
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

// admits reports whether Sample keeps the record.
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

// hash returns a hash of text with a good distribution: FNV-1a with the finalizer of MurmurHash3.
// The hash is the same in each process.
func hash(text []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range text {
		h = (h ^ uint64(b)) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
