// Package redact takes out of attributes what rules forbid, before anything encodes
// them: by key, by path, by pattern and by function.
//
// [New] makes [Rules] of a [Config]. A [Walker] applies them to one record, a [Place]
// says in which groups the attributes of a record lie.
package redact

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// Text stands in place of what was taken out, unless Config.Text says otherwise.
const Text = "[redacted]"

// A Func is the function of slog.HandlerOptions.ReplaceAttr.
type Func = func(groups []string, a slog.Attr) slog.Attr

// Config says what is to be taken out.
type Config struct {
	Keys     []string
	Paths    []string
	Patterns []*regexp.Regexp
	Funcs    []Func

	// Text stands in place of what was taken out of values, names and texts. Default: the
	// constant Text.
	Text string
}

// Rules are what a Config comes to. They are immutable and safe for concurrent use.
type Rules struct {
	// Keys of one part: folded, with a bit of lens for each length of one that is
	// ASCII, 63 for those that are longer.
	keys map[string]bool
	lens uint64
	// globs are keys of one part that begin or end with *.
	globs []glob

	paths  *node           // from the outermost group on; nil: there are none
	floats *node           // keys of several parts, which begin anywhere; nil: none
	lasts  map[string]bool // the last part of each path that is not "*", folded
	stars  bool            // a path ends in "*"
	every  bool            // a path consists of "*" alone

	patterns []*regexp.Regexp
	funcs    []Func

	text   string // stands in place of what was taken out
	quoted string // the same, as JSON has it
	hidden any    // the same, as a value

	plans    sync.Map // reflect.Type → *plan
	planning sync.Mutex
}

// A node is a place in the tree of paths.
type node struct {
	next map[string]*node // by the next part, folded
	star *node            // any next part
	end  bool             // a path ends here
}

// New returns the rules of c, nil if c is empty, or all its faults.
func New(c Config) (*Rules, []error) {
	r := &Rules{keys: map[string]bool{}, lasts: map[string]bool{}, patterns: c.Patterns, funcs: c.Funcs, text: c.Text}
	if r.text == "" {
		r.text = Text
	}
	r.quoted, r.hidden = string(jsontext.AppendString(nil, r.text)), r.text
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for _, key := range c.Keys {
		if g, ok := globOf(key); ok {
			r.globs = append(r.globs, g)
			continue
		}
		parts, err := split(key)
		switch {
		case err != nil:
			fault("RedactKeys: %q: %w", key, err)
		case slices.Contains(parts, "*"):
			fault("RedactKeys: %q: a * for a whole name; use RedactPaths", key)
		case len(parts) == 1:
			r.key(parts[0])
		default:
			r.floats = r.floats.add(parts)
			r.last(parts)
		}
	}
	for _, path := range c.Paths {
		parts, err := split(path)
		if err != nil {
			fault("RedactPaths: %q: %w", path, err)
			continue
		}
		r.paths = r.paths.add(parts)
		r.last(parts)
	}
	for i, re := range c.Patterns {
		switch {
		case re == nil:
			fault("RedactPattern: expression %d is nil", i+1)
		case re.MatchString(""):
			fault("RedactPattern: %q matches the empty text; write an expression for at least one character", re)
		}
	}
	for i, fn := range c.Funcs {
		if fn == nil {
			fault("ReplaceAttr: function %d is nil", i+1)
		}
	}
	if len(c.Keys)+len(c.Paths)+len(c.Patterns)+len(c.Funcs) == 0 || len(faults) > 0 {
		return nil, faults
	}
	return r, nil
}

// split returns the parts of a path, folded.
func split(path string) ([]string, error) {
	if path == "" {
		return nil, errors.New("it is empty; leave it out")
	}
	var parts []string
	for part := range strings.SplitSeq(path, ".") {
		switch {
		case part == "":
			return nil, errors.New("a part of it is empty; leave out the dot")
		case part != "*" && strings.Contains(part, "*"):
			return nil, errors.New("a * within a name; RedactKeys takes one at the beginning or end of a key without dots, as in *token")
		}
		parts = append(parts, string(fold(nil, part)))
	}
	return parts, nil
}

// A glob is a key that stands for all names which begin with it, end with it or have it in
// them.
type glob struct {
	text          []byte // folded
	before, after bool   // a name may have more there
}

// globOf returns the glob of a key such as "*token", "token*" or "*token*".
func globOf(key string) (g glob, ok bool) {
	text, before := strings.CutPrefix(key, "*")
	text, after := strings.CutSuffix(text, "*")
	if text == "" || !before && !after || strings.ContainsAny(text, "*.") {
		return g, false
	}
	return glob{fold(nil, text), before, after}, true
}

// hits reports whether g stands for a name.
func (g *glob) hits(folded []byte) bool {
	switch {
	case g.before && g.after:
		return bytes.Contains(folded, g.text)
	case g.before:
		return bytes.HasSuffix(folded, g.text)
	}
	return bytes.HasPrefix(folded, g.text)
}

// key notes a key of one part.
func (r *Rules) key(folded string) {
	r.keys[folded] = true
	r.lens |= 1 << min(len(folded), 63)
}

// last notes the last part of a path, for texts of which the rest is not known.
func (r *Rules) last(parts []string) {
	if parts[len(parts)-1] == "*" {
		r.stars = true
	}
	for _, part := range slices.Backward(parts) {
		if part != "*" {
			r.lasts[part] = true
			return
		}
	}
	r.every = true
}

// named reports whether there are rules that go by names.
func (r *Rules) named() bool { return len(r.keys)+len(r.globs) > 0 || r.tree() }

// tree reports whether there are rules of several parts.
func (r *Rules) tree() bool { return r.paths != nil || r.floats != nil }

// values reports whether there are rules that hold within values.
func (r *Rules) values() bool { return r.named() || len(r.patterns) > 0 }

// add adds a path to the tree.
func (n *node) add(parts []string) *node {
	if n == nil {
		n = &node{}
	}
	at := n
	for _, part := range parts {
		if part == "*" {
			if at.star == nil {
				at.star = &node{}
			}
			at = at.star
			continue
		}
		if at.next == nil {
			at.next = map[string]*node{}
		}
		if at.next[part] == nil {
			at.next[part] = &node{}
		}
		at = at.next[part]
	}
	at.end = true
	return n
}

// fold appends s such that what differs in capitals only is the same.
func fold(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= utf8.RuneSelf {
			for _, r := range s[i:] {
				dst = utf8.AppendRune(dst, unicode.ToLower(unicode.ToUpper(r)))
			}
			return dst
		}
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}

// hits reports whether one of the keys is that part of a name.
func (r *Rules) hits(folded []byte) bool {
	if r.lens>>min(len(folded), 63)&1 != 0 && r.keys[string(folded)] {
		return true
	}
	for i := range r.globs {
		if r.globs[i].hits(folded) {
			return true
		}
	}
	return false
}

// may reports whether a rule can end at a name: those for which it cannot are not
// looked for in the types of values.
func (r *Rules) may(name string) bool {
	for part := range strings.SplitSeq(name, ".") {
		f := fold(nil, part)
		if r.hits(f) || r.stars || r.lasts[string(f)] {
			return true
		}
	}
	return false
}

// plan returns what is known of a type under these rules.
func (r *Rules) plan(t reflect.Type) *plan {
	if p, ok := r.plans.Load(t); ok {
		return p.(*plan)
	}
	return r.makePlan(t)
}
