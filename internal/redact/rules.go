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
	// keys contains the keys without dots, in folded case. Bit n of lens is set if there is a key
	// of n bytes in folded case; bit 63 means 63 bytes or more.
	keys map[string]bool
	lens uint64
	// globs are made from the keys without dots that begin or end with *.
	globs []glob

	paths     *node           // tree of the paths, which begin at the outermost group; nil if there are none
	anywhere  *node           // tree of the keys with dots, which match at any depth; nil if there are none
	lastNames map[string]bool // the last name of each path, unless it is "*", in folded case
	stars     bool            // a path ends in "*"
	every     bool            // there is a path that consists only of "*"

	patterns []*regexp.Regexp
	funcs    []Func

	text   string // the text that replaces redacted data
	quoted string // text as a JSON string

	matchable sync.Map // from *values.Shape to bool: cached results of mayMatch
}

// A node is one name of a path. Paths with the same first names share these nodes, so the nodes
// form a tree.
type node struct {
	next map[string]*node // children by the next name, in folded case
	star *node            // child for the name *, which matches any name
	end  bool             // a path ends here: the value is redacted
}

// New returns the rules of c, or nil if c is empty. It also returns all errors in c.
func New(c Config) (*Rules, []error) {
	r := &Rules{keys: map[string]bool{}, lastNames: map[string]bool{}, patterns: c.Patterns, funcs: c.Funcs, text: c.Text}
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
			r.addKey(parts[0])
		default:
			r.anywhere = r.anywhere.add(parts)
			r.addLast(parts)
		}
	}
	for _, path := range c.Paths {
		parts, err := split(path)
		if err != nil {
			fault("RedactPaths: %q: %w", path, err)
			continue
		}
		r.paths = r.paths.add(parts)
		r.addLast(parts)
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

// split returns the names of a path, in folded case.
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
	text          []byte // the text without *, in folded case
	before, after bool   // further text may precede, or follow, the field text
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

// matches reports whether g matches a name in folded case.
func (g *glob) matches(folded []byte) bool {
	switch {
	case g.before && g.after:
		return bytes.Contains(folded, g.text)
	case g.before:
		return bytes.HasSuffix(folded, g.text)
	}
	return bytes.HasPrefix(folded, g.text)
}

// addKey adds a key without dots, in folded case.
func (r *Rules) addKey(folded string) {
	r.keys[folded] = true
	r.lens |= 1 << min(len(folded), 63)
}

// addLast stores the last name of a path. Last names are matched in texts whose enclosing groups
// are unknown.
func (r *Rules) addLast(parts []string) {
	if parts[len(parts)-1] == "*" {
		r.stars = true
	}
	for _, part := range slices.Backward(parts) {
		if part != "*" {
			r.lastNames[part] = true
			return
		}
	}
	r.every = true
}

// matchesNames reports whether there are rules that match names.
func (r *Rules) matchesNames() bool { return len(r.keys)+len(r.globs) > 0 || r.hasPaths() }

// hasPaths reports whether a rule has a path, such as user.name, or a key with dots.
func (r *Rules) hasPaths() bool { return r.paths != nil || r.anywhere != nil }

// values reports whether there are rules that apply within values.
func (r *Rules) values() bool { return r.matchesNames() || len(r.patterns) > 0 }

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

// fold appends s in folded case. Strings that differ only in case have the same result.
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

// matches reports whether a key of the rules matches a name without dots, which is in folded case.
func (r *Rules) matches(folded []byte) bool {
	if r.lens>>min(len(folded), 63)&1 != 0 && r.keys[string(folded)] {
		return true
	}
	for i := range r.globs {
		if r.globs[i].matches(folded) {
			return true
		}
	}
	return false
}

// mayMatch reports whether a rule may match in a value with the Shape s. It considers the names of
// the fields and the kinds of the values.
func (r *Rules) mayMatch(s *values.Shape) bool {
	if known, ok := r.matchable.Load(s); ok {
		return known.(bool)
	}
	mayMatch := r.searchTypes(s, map[*values.Shape]bool{})
	r.matchable.Store(s, mayMatch)
	return mayMatch
}

// searchTypes implements mayMatch. seen contains the types that it has already examined.
func (r *Rules) searchTypes(s *values.Shape, seen map[*values.Shape]bool) bool {
	if seen[s] {
		return false
	}
	seen[s] = true
	if !r.values() { // functions are called for attributes only
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

// mayEndAt reports whether some rule may match a value with the given name, in any group.
func (r *Rules) mayEndAt(name string) bool {
	w := Walker{rules: r}
	return r.stars || w.mayEndAt(name)
}
