package transform

import (
	"fmt"
	"log/slog"
	"regexp"
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
// type in every format. Name may be a path. If the path begins with names of existing objects, the
// field is added to the innermost of them.
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

// Parse extracts fields from text. Exactly one of Regex and Format must be set.
//
// If the record is text, the fields are added to Event.More. In JSON and logfmt they are added to
// the line. A field named msg or message replaces the message. Fields named level and time set the
// level and the time of the record.
type Parse struct {
	// Regex is a regular expression in the syntax of package regexp. Each named group that has a
	// match becomes a field.
	Regex string
	// Format is the name of a format, one of [ParseFormats].
	Format string
	// Field is the field to parse. Default: the message, which for text is the line.
	Field string
	// Types sets the types of groups of Regex: int, float or bool. A value that is not valid for
	// its type remains text.
	Types []Pair
	// Time and Level are the names of the groups that contain the time and the level of the record.
	// Default: time and level.
	Time, Level string
	// TimeLayout is the layout of the time, in the syntax of package time. Default: the layouts
	// that package record recognizes.
	TimeLayout string
	// OnError is the action for text that does not match: keep (the default), drop, or tag. The
	// action tag keeps the record and adds the field parse_error, whose value is the name of the
	// format.
	OnError string
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

// A parseRule is a checked and compiled Parse. It is immutable and shared by all clones of a chain.
type parseRule struct {
	name   string // name of the format, the value of the field parse_error
	field  string
	re     *regexp.Regexp // regular expression; nil if a format is used
	groups []group        // groups of re by their numbers
	format
	layout  string
	onError string
	tag     []field
}

// A group is a part of a match. If it has a name, it becomes a field.
type group struct {
	name string // "" if it is not a field
	kind kind
}

// A value is the text of a group in a match.
type value struct {
	group
	text []byte
}

// A field is a Setting with its value encoded for each format.
type field struct {
	name, text   string
	json, logfmt []byte
	attr         slog.Value
}

// An edit replaces line[from:to] with text. The edits of a line do not overlap.
type edit struct {
	from, to int
	text     []byte
}

// A foundField is a field in the line of a record.
type foundField struct {
	record.Member
	obj      int    // start of the object that contains the field; 0 in logfmt
	name     string // name within the object obj
	from, to int    // range to remove if the field is removed: the field and one comma or space
}

// keptBytes is the maximum size of a buffer that is kept for the next record.
const keptBytes = 1 << 20

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
