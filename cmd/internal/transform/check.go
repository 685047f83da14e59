package transform

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/forebay-log/forebay/internal/redact"
)

// check validates and compiles the rule. It calls the function fault for each error.
func (r *rule) check(fault func(field, format string, args ...any)) {
	for _, err := range r.Where.Check() {
		f := err.(*Fault)
		fault(f.Field, "%s", f.Problem)
	}
	r.usesLevel = slices.ContainsFunc(r.Where, func(c Condition) bool { return c.Field == levelField })
	n := 0
	for _, set := range []bool{r.Add != nil, r.Set != nil, r.Rename != nil, r.Remove != nil, r.Redact != nil, r.Sample != nil,
		r.Limit != nil, r.Parse != nil, r.Decolorize, r.Drop} {
		if set {
			n++
		}
	}
	switch {
	case n == 0:
		fault("", "it has no action: use one of add, set, rename, remove, redact, parse, decolorize, sample, limit and drop")
	case n > 1:
		fault("", "it has %d actions, which have no order: write a separate item for each", n)
	}
	checkNames := func(field string, given bool, n int, name func(i int) string) {
		if given && n == 0 {
			fault(field, "it is empty; name a field, or leave the rule out")
		}
		for i := range n {
			if name(i) == "" {
				fault(fmt.Sprintf("%s[%d]", field, i), "the name of a field is empty")
			}
		}
	}
	checkNames("add", r.Add != nil, len(r.Add), func(i int) string { return r.Add[i].Name })
	checkNames("set", r.Set != nil, len(r.Set), func(i int) string { return r.Set[i].Name })
	checkNames("rename", r.Rename != nil, len(r.Rename), func(i int) string { return r.Rename[i].Name })
	checkNames("remove", r.Remove != nil, len(r.Remove), func(i int) string { return r.Remove[i] })
	r.add, r.set = fieldsOf(r.Add), fieldsOf(r.Set)
	for i, p := range r.Rename {
		if p.Value == "" {
			fault(fmt.Sprintf("rename[%d]", i), "%s has no new name; to remove it, use remove", p.Name)
		} else if p.Value == p.Name {
			fault(fmt.Sprintf("rename[%d]", i), "%s already has that name", p.Name)
		}
	}
	r.renames = renames(r.Rename)
	if r.Sample != nil && r.Sample.OneIn < 1 {
		fault("sample.one_in", "%d: use 1 or more; 10 keeps one record in ten", r.Sample.OneIn)
	}
	if r.Limit != nil {
		r.limit = r.Limit.check(fault)
	}
	if r.Parse != nil {
		r.parse = r.Parse.check(fault)
	}
	if r.Redact != nil {
		r.redact = r.Redact.check(fault)
	}
}

// check validates r and returns its redaction rules. If a key is invalid, it returns nil. It calls
// the function fault for each error.
func (r *Redact) check(fault func(field, format string, args ...any)) *redact.Rules {
	if len(r.Keys)+len(r.Patterns) == 0 {
		fault("redact", "it hides nothing: add keys or patterns")
	}
	c := redact.Config{Keys: r.Keys, Text: r.Replacement}
	valid := true
	for i, key := range r.Keys {
		field := fmt.Sprintf("redact.keys[%d]", i)
		if slices.Contains(strings.Split(key, "."), "*") {
			fault(field, "%q: * alone hides everything there; add a part of the name, as in *token", key)
			valid = false
			continue
		}
		_, errs := redact.New(redact.Config{Keys: []string{key}})
		for _, err := range errs {
			fault(field, "%s", strings.TrimPrefix(err.Error(), "RedactKeys: "))
			valid = false
		}
	}
	for i, text := range r.Patterns {
		field := fmt.Sprintf("redact.patterns[%d]", i)
		re, err := regexp.Compile(text)
		switch {
		case err != nil:
			fault(field, "%s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		case re.MatchString(""):
			fault(field, "%q matches the empty text; write an expression for at least one character", text)
		default:
			c.Patterns = append(c.Patterns, re)
		}
	}
	if strings.ContainsFunc(r.Replacement, unicode.IsControl) {
		fault("redact.replacement", "%q has control characters; leave them out", r.Replacement)
	}
	if !valid {
		return nil
	}
	rules, _ := redact.New(c)
	return rules
}
