// Package redact removes sensitive data from attributes before they are encoded, according
// to rules: by key, by path, by pattern and by function.
//
// [New] makes [Rules] from a [Config]. A [Walker] applies them to one record; a [Place]
// describes the groups that enclose the record's attributes.
package redact

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/values"
)

// Text is the default replacement for redacted values.
const Text = "[redacted]"

// A Func has the same meaning as slog.HandlerOptions.ReplaceAttr.
type Func = func(groups []string, a slog.Attr) slog.Attr

// Config specifies which data to redact.
type Config struct {
	Keys     []string
	Paths    []string
	Patterns []*regexp.Regexp
	Funcs    []Func

	// Text replaces redacted values, names and texts. Default: the constant Text.
	Text string
}

// Rules are a compiled Config. They are immutable and safe for concurrent use.
type Rules struct {
	// keys are keys of one part, folded. lens has a bit for the length of each ASCII key;
	// bit 63 represents longer ones.
	keys map[string]bool
	lens uint64
	// globs are keys of one part that begin or end with *.
	globs []glob

	paths  *node           // from the outermost group; nil: none
	floats *node           // keys of several parts, which may match at any depth; nil: none
	lasts  map[string]bool // the last part of each path that is not "*", folded
	stars  bool            // a path ends in "*"
	every  bool            // a path is just "*"

	patterns []*regexp.Regexp
	funcs    []Func

	text   string // replaces redacted data
	quoted string // text as a JSON string

	matchable sync.Map // *values.Shape → bool, see mayMatch
}

// A node is a node in the tree of paths.
type node struct {
	next map[string]*node // by next part, folded
	star *node            // any next part
	end  bool             // a path ends at this node
}

// New returns the rules of c, or nil if c is empty, or every error in c.
func New(c Config) (*Rules, []error) {
	r := &Rules{keys: map[string]bool{}, lasts: map[string]bool{}, patterns: c.Patterns, funcs: c.Funcs, text: c.Text}
	if r.text == "" {
		r.text = Text
	}
	r.quoted = string(jsontext.AppendString(nil, r.text))
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
			fault("RedactKeys: %q: only RedactPaths allows a * for a whole name", key)
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
			return nil, errors.New("a * within a name; RedactKeys accepts one at the beginning or end of a key without dots, as in *token")
		}
		parts = append(parts, string(fold(nil, part)))
	}
	return parts, nil
}

// A glob is a key that matches all names that begin with, end with or contain its text.
type glob struct {
	text          []byte // folded
	before, after bool   // further text may precede or follow
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

// hits reports whether g matches a name.
func (g *glob) hits(folded []byte) bool {
	switch {
	case g.before && g.after:
		return bytes.Contains(folded, g.text)
	case g.before:
		return bytes.HasSuffix(folded, g.text)
	}
	return bytes.HasPrefix(folded, g.text)
}

// key adds a key of one part.
func (r *Rules) key(folded string) {
	r.keys[folded] = true
	r.lens |= 1 << min(len(folded), 63)
}

// last records the last part of a path, for texts whose enclosing path is unknown.
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

// named reports whether any rule matches names.
func (r *Rules) named() bool { return len(r.keys)+len(r.globs) > 0 || r.tree() }

// tree reports whether any rule has several parts.
func (r *Rules) tree() bool { return r.paths != nil || r.floats != nil }

// values reports whether any rule applies within values.
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

// fold appends s in a form that is equal for strings that differ only in case.
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

// hits reports whether a key matches the folded part of a name.
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

// mayMatch reports whether a rule may match in a value of a type. It is false for types that
// consist of fields of other names and of kinds that no rule matches.
func (r *Rules) mayMatch(s *values.Shape) bool {
	if known, ok := r.matchable.Load(s); ok {
		return known.(bool)
	}
	mayMatch := r.searchTypes(s, map[*values.Shape]bool{})
	r.matchable.Store(s, mayMatch)
	return mayMatch
}

// searchTypes is mayMatch for a type that is not in seen.
func (r *Rules) searchTypes(s *values.Shape, seen map[*values.Shape]bool) bool {
	if seen[s] {
		return false
	}
	seen[s] = true
	if !r.values() { // functions see attributes only
		return s.Methods&values.HasAppendAttrs != 0
	}
	if s.ByAddr != 0 && s.Kind != values.Pointer {
		return true
	}
	switch s.Kind {
	case values.Int, values.Uint, values.Float, values.Complex, values.Number, values.UUID:
		return len(r.patterns) > 0
	case values.Bool, values.Time, values.Duration, values.Level, values.Unsupported:
		return false
	case values.Pointer:
		return r.searchTypes(s.Elem, seen)
	case values.List:
		return r.stars || r.searchTypes(s.Elem, seen)
	case values.Struct:
		return slices.ContainsFunc(s.Fields, func(f values.Field) bool {
			return slices.ContainsFunc(f.Names, r.mayEndAt) || r.searchTypes(f.Shape, seen)
		})
	}
	return true
}

// mayEndAt reports whether a rule can end at a name.
func (r *Rules) mayEndAt(name string) bool {
	for part := range strings.SplitSeq(name, ".") {
		f := fold(nil, part)
		if r.hits(f) || r.stars || r.lasts[string(f)] {
			return true
		}
	}
	return false
}
