package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/conf"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/cmd/internal/transform"
)

// RuleNames contains the names of the actions in transforms, in the order of docs/CONFIG.md.
var RuleNames = []string{"add", "set", "rename", "remove", "redact", "parse", "decolorize", "sample", "limit", "drop"}

// addRules reads the section transforms.
func (c *Pipeline) addRules(v conf.Node) {
	for _, item := range v.Items() {
		if rule, ok := readRule(item); ok {
			c.Rules = append(c.Rules, rule)
		}
	}
}

// positions contains the YAML nodes of a rule. Its keys have the form of [transform.Fault.Field].
type positions map[string]conf.Node

// readRule reads one transform.
func readRule(v conf.Node) (rule transform.Rule, ok bool) {
	hasAction, before := false, v.Count()
	at := positions{"": v}
	suggested := v.Fields(append([]string{"where"}, RuleNames...), func(name string, v conf.Node) {
		hasAction = hasAction || name != "where"
		at[name] = v
		switch name {
		case "where":
			rule.Where = readWhere(v)
		case "add":
			rule.Add = at.readSettings(name, v)
		case "set":
			rule.Set = at.readSettings(name, v)
		case "rename":
			rule.Rename = at.readPairs(name, v)
		case "remove":
			rule.Remove = append([]string{}, at.readTexts(name, v)...)
		case "redact":
			rule.Redact = at.readRedact(v)
		case "sample":
			rule.Sample = readSample(v)
		case "limit":
			rule.Limit = at.readLimit(v)
		case "parse":
			rule.Parse = at.readParse(v)
		case "decolorize":
			v.Set((*setting.Toggle)(&rule.Decolorize).Set)
			if !rule.Decolorize {
				v.Faultf("write decolorize: true, or leave the rule out")
				rule.Decolorize = true
			}
		case "drop":
			v.Set((*setting.Toggle)(&rule.Drop).Set)
			if !rule.Drop {
				v.Faultf("write drop: true, or leave the rule out")
				rule.Drop = true // make the rule valid, to avoid a second fault
			}
		}
	})
	if !hasAction {
		if len(suggested) == 0 && v.Count() == before {
			v.Faultf("it has no action: use one of %s", console.InWords(RuleNames, "or"))
		}
		return rule, false
	}
	_, faults := transform.New([]transform.Rule{rule}, nil)
	for _, err := range faults {
		var f *transform.Fault
		if !errors.As(err, &f) || strings.HasPrefix(f.Field, "where") { // readWhere has already reported the faults of conditions
			continue
		}
		part := at[f.Field]
		if !part.Exists() {
			part = v
		}
		if !part.Faulty() || strings.Contains(f.Field, "[") || f.Field == "" {
			part.Faultf("%s", f.Problem)
		}
	}
	return rule, v.Count() == before
}

// readWhere reads conditions of the form FIELD: PATTERN or FIELD: [PATTERN, PATTERN].
func readWhere(v conf.Node) (where transform.Where) {
	if !v.IsMap() || v.Empty() {
		v.Faultf("the field is missing: write {FIELD: PATTERN}, such as {level: warn} or {tag: \"app.*\"}")
		return nil
	}
	v.Fields(nil, func(name string, v conf.Node) {
		at := positions{}
		c := transform.Condition{Field: name, Patterns: at.readTexts("where[0].patterns", v)}
		where = append(where, c)
		for _, err := range (transform.Where{c}).Check() {
			var f *transform.Fault
			switch {
			case !errors.As(err, &f):
			case at[f.Field].Exists():
				at[f.Field].Faultf("%s", f.Problem)
			case !v.Faulty():
				v.Faultf("%s", f.Problem)
			}
		}
	})
	return where
}

// readSettings reads a mapping of names to scalar values.
func (at positions) readSettings(field string, v conf.Node) (settings []transform.Setting) {
	settings = []transform.Setting{}
	if !v.IsMap() {
		v.Faultf("the field is missing: write {NAME: VALUE}")
		return settings
	}
	v.Fields(nil, func(name string, v conf.Node) {
		if value, ok := v.Scalar(); ok {
			at[fmt.Sprintf("%s[%d]", field, len(settings))] = v
			settings = append(settings, transform.Setting{Name: name, Value: value})
		}
	})
	return settings
}

// readPairs reads a mapping of names to texts.
func (at positions) readPairs(field string, v conf.Node) (pairs []transform.Pair) {
	pairs = []transform.Pair{}
	if !v.IsMap() {
		v.Faultf("the field is missing: write {NAME: TEXT}")
		return pairs
	}
	v.Fields(nil, func(name string, v conf.Node) {
		v.Set(func(text string) error {
			at[fmt.Sprintf("%s[%d]", field, len(pairs))] = v
			pairs = append(pairs, transform.Pair{Name: name, Value: text})
			return nil
		})
	})
	return pairs
}

// readTexts reads a text or a list of texts.
func (at positions) readTexts(field string, v conf.Node) (texts []string) {
	for _, item := range v.Items() {
		item.Set(func(text string) error {
			at[fmt.Sprintf("%s[%d]", field, len(texts))] = item
			texts = append(texts, text)
			return nil
		})
	}
	return texts
}

func (at positions) readRedact(v conf.Node) *transform.Redact {
	r := &transform.Redact{}
	v.Fields([]string{"keys", "patterns", "replacement"}, func(name string, v conf.Node) {
		at["redact."+name] = v
		switch name {
		case "keys":
			r.Keys = at.readTexts("redact.keys", v)
		case "patterns":
			r.Patterns = at.readTexts("redact.patterns", v)
		case "replacement":
			v.Set((*setting.Text)(&r.Replacement).Set)
		}
	})
	return r
}

// readSample reads a sample rule: N, or {one-in: N, by: FIELD}.
func readSample(v conf.Node) *transform.Sample {
	n := setting.CountBetween(1, 1, 0)
	s := &transform.Sample{}
	if !v.IsMap() {
		v.Set(n.Set)
	} else {
		given, before := false, v.Count()
		v.Fields([]string{"one-in", "by"}, func(name string, v conf.Node) {
			if name == "by" {
				v.Set((*setting.Text)(&s.By).Set)
				return
			}
			given = true
			v.Set(n.Set)
		})
		if !given && v.Count() == before {
			v.Faultf("one-in is missing: 10 keeps one record in ten")
		}
	}
	s.OneIn = n.Value // 1 if the value has a fault
	return s
}

// readLimit reads a limit rule: N, or {per-second: N, burst: N, by: FIELD}.
func (at positions) readLimit(v conf.Node) *transform.Limit {
	l := &transform.Limit{}
	rate := func(text string) (err error) {
		if l.PerSecond, err = strconv.ParseFloat(text, 64); err != nil {
			return fmt.Errorf("%q is not a number of records per second", text)
		}
		return nil
	}
	at["limit.per_second"] = v
	if !v.IsMap() {
		v.Set(rate)
		return l
	}
	v.Fields([]string{"per-second", "burst", "by"}, func(name string, v conf.Node) {
		at["limit."+strings.ReplaceAll(name, "-", "_")] = v
		switch name {
		case "per-second":
			v.Set(rate)
		case "burst":
			n := setting.CountBetween(1, 1, 0)
			v.Set(n.Set)
			l.Burst = n.Value
		case "by":
			v.Set((*setting.Text)(&l.By).Set)
		}
	})
	return l
}

// readParse reads a parse rule: the name of a format, or a mapping with the options.
func (at positions) readParse(v conf.Node) *transform.Parse {
	p := &transform.Parse{}
	at["parse"], at["parse.format"] = v, v
	if !v.IsMap() {
		v.Set((*setting.Text)(&p.Format).Set)
		return p
	}
	texts := map[string]*string{
		"regex": &p.Regex, "format": &p.Format, "field": &p.Field, "time": &p.Time, "time-layout": &p.TimeLayout,
		"level": &p.Level, "on-error": &p.OnError,
	}
	v.Fields([]string{"format", "regex", "field", "types", "time", "time-layout", "level", "on-error"}, func(name string, v conf.Node) {
		key := "parse." + strings.ReplaceAll(name, "-", "_")
		at[key] = v
		if name == "types" {
			p.Types = at.readPairs(key, v)
			return
		}
		v.Set((*setting.Text)(texts[name]).Set)
	})
	return p
}

// SameRules reports whether a and b have the same transforms.
func SameRules(a, b *Pipeline) bool {
	return slices.EqualFunc(a.Rules, b.Rules, func(x, y transform.Rule) bool { return reflect.DeepEqual(x, y) })
}
