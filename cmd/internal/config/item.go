package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/conf"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/internal/lazy"
)

// An item is a part of a configuration file: an input, an output, or the whole file. It records
// faults at the positions of their values. A fault that is a consequence of another fault is not
// recorded.
type item struct {
	node      conf.Node
	fields    map[string]conf.Node // values by key
	suggested []string             // known keys that were suggested in place of unknown ones
	faulty    map[string]bool      // keys whose values have a fault
	given     []*givenSetting      // settings in the order in which they were read
}

// A givenSetting is a setting that was read from the value of a key.
type givenSetting struct {
	key       string
	s, unset  setting.Value // unset is a copy of s before it was read
	listItems []conf.Node   // members of the value if s is a list
}

// readItem reads the keys of v. known contains the valid keys.
func readItem(v conf.Node, known []string) *item {
	it := &item{node: v, fields: map[string]conf.Node{}, faulty: map[string]bool{}}
	it.suggested = v.Fields(known, func(name string, field conf.Node) { it.fields[name] = field })
	return it
}

// has reports whether the key is present, possibly misspelled.
func (it *item) has(key string) bool {
	_, ok := it.fields[key]
	return ok || slices.Contains(it.suggested, key)
}

// doubtful reports whether the value of the key is not reliable: it has a fault, or the key may be
// misspelled.
func (it *item) doubtful(key string) bool {
	return it.faulty[key] || slices.Contains(it.suggested, key)
}

// at returns the value of the key, or the whole item if the key is missing.
func (it *item) at(key string) conf.Node {
	if v, ok := it.fields[key]; ok {
		return v
	}
	return it.node
}

// positions returns the positions of all values by their keys.
func (it *item) positions() dest.Positions {
	all := dest.Positions{}
	for key, v := range it.fields {
		line, column := v.Position()
		all[key] = fmt.Sprintf("%d:%d", line, column)
	}
	return all
}

// faultf reports a fault of the key's value.
func (it *item) faultf(key, format string, args ...any) {
	it.at(key).Faultf(format, args...)
	it.faulty[key] = true
}

// readSetting sets s from the value of the key. Before the call, s has its default value. The
// parameter join is the same as in setFrom.
func (it *item) readSetting(key string, s setting.Value, join func(name, value string) string) {
	g := &givenSetting{key: key, s: s, unset: setting.CopySetting(s)}
	it.given = append(it.given, g)
	var valid bool
	if g.listItems, valid = setFrom(it.fields[key], s, join); !valid {
		it.faulty[key] = true
		g.reset()
	}
}

func (g *givenSetting) reset() {
	reflect.ValueOf(g.s).Elem().Set(reflect.ValueOf(g.unset).Elem())
	g.listItems = nil
}

// withDefault sets the setting to its default, calls the function do, and restores the setting. If
// the setting is a list, only the given member is removed during the call.
func (g *givenSetting) withDefault(member int, do func()) {
	was := reflect.ValueOf(g.s).Elem()
	value := reflect.New(was.Type()).Elem()
	value.Set(was)
	if l, ok := g.s.(*setting.List); ok && member >= 0 && member < len(g.listItems) && len(*l) > 1 {
		*l = slices.Delete(slices.Clone(*l), member, member+1)
	} else {
		was.Set(reflect.ValueOf(g.unset).Elem())
	}
	do()
	was.Set(value)
}

// drop resets the setting to its default. If the setting is a list with several members, it only
// removes the given member.
func (g *givenSetting) drop(member int) {
	if l, ok := g.s.(*setting.List); ok && member >= 0 && member < len(g.listItems) && len(*l) > 1 {
		*l = slices.Delete(slices.Clone(*l), member, member+1)
		g.listItems = slices.Delete(g.listItems, member, member+1)
		return
	}
	g.reset()
}

// optionIn matches the name of an option in an error.
var optionIn = lazy.Regexp(`(?:^|[\s(])--([a-z][a-z-]*[a-z])\b`)

// missingIn matches an error about a missing option.
var missingIn = lazy.Regexp(`^(?:[a-z.]\S* )?--[a-z-]+ is missing`)

// findFaults finds all faults of the item. It calls the function try, which checks the settings,
// until try returns no new error. Each error is stored as a fault of a key: the key of the option
// that the error names. If the error names no option, findFaults finds the setting that causes the
// error by resetting each setting in turn.
//
// After each error, findFaults resets the settings that caused it, so that try can find other
// errors. If an error names a key that already has a fault, the error is a consequence and is not
// recorded. If an error concerns no key, findFaults calls the function other, which reports whether
// to continue.
func (it *item) findFaults(try func() error, text func(error) string, other func(error) bool) {
	for range 2*len(it.given) + 100 {
		err := try()
		if err == nil {
			return
		}
		var about []*givenSetting
		isConsequence := false
		for _, m := range optionIn().FindAllStringSubmatch(err.Error(), -1) {
			isConsequence = isConsequence || it.doubtful(m[1])
			if i := slices.IndexFunc(it.given, func(g *givenSetting) bool { return g.key == m[1] && g.isSet() }); i >= 0 {
				about = append(about, it.given[i])
			}
		}
		member := -1
		switch {
		case len(about) > 1:
			if !differs(try, err, about, -1) { // err remains when these options are reset, so it names them only as a remedy
				about = nil
			}
		case missingIn().MatchString(err.Error()): // no setting causes the error
		default:
			about, member = it.cause(try, err, about)
		}
		switch {
		case len(about) == 0 && isConsequence:
			return
		case len(about) == 0:
			if !other(err) {
				return
			}
			continue
		case !isConsequence:
			key := about[0].key
			node := it.at(key)
			if member >= 0 && member < len(about[0].listItems) {
				node = about[0].listItems[member]
			}
			node.Faultf("%s", strings.TrimPrefix(text(err), key+": "))
		}
		for _, g := range about {
			if g.drop(member); !g.isSet() {
				it.faulty[g.key] = true
			}
		}
	}
}

// isSet reports whether the setting differs from its default.
func (g *givenSetting) isSet() bool { return !reflect.DeepEqual(g.s, g.unset) }

// cause finds the setting that causes err. If this setting is reset, the function try returns
// another error or none. The list among contains the settings to examine; if it is empty, cause
// examines all. If the setting is a list, member is the index of the member that causes err.
func (it *item) cause(try func() error, err error, among []*givenSetting) (found []*givenSetting, member int) {
	if len(among) == 0 {
		among = it.given
	}
	for _, g := range among {
		for k := range max(1, len(g.listItems)) {
			if one := []*givenSetting{g}; g.isSet() && differs(try, err, one, k) {
				return one, k
			}
		}
	}
	return nil, -1
}

// differs resets the given settings temporarily, and reports whether the function try then returns
// another error than err, or none. If the first setting is a list, only the given member is
// removed.
func differs(try func() error, err error, settings []*givenSetting, member int) (other bool) {
	if len(settings) == 0 {
		now := try()
		return now == nil || now.Error() != err.Error()
	}
	settings[0].withDefault(member, func() { other = differs(try, err, settings[1:], -1) })
	return other
}

// setFrom sets s from v. If s is a list, v may have several values, and members contains their
// nodes. If the function join is not nil, v may also be a mapping. The function converts each name
// and value in v to a text.
func setFrom(v conf.Node, s setting.Value, join func(name, value string) string) (members []conf.Node, ok bool) {
	ok = true
	_, isList := s.(*setting.List)
	skipped := false // an empty member was not added to the list
	set := func(v conf.Node, text func(string) string) {
		if _, is := v.Text(); !is {
			ok = false
			return
		}
		v.Set(func(value string) error {
			if isList && text(value) == "" {
				skipped = true
				return errors.New("it is empty: give a value, or remove the key")
			}
			err := s.Set(text(value))
			if err != nil {
				ok = false
				return errors.New(WithoutFlags(err.Error()))
			}
			members = append(members, v)
			return nil
		})
	}
	same := func(text string) string { return text }
	switch {
	case !isList:
		set(v, same)
		return nil, ok
	case join != nil && v.IsMap():
		v.Fields(nil, func(name string, value conf.Node) {
			if name == "" {
				skipped = true
				value.Faultf("its name is empty")
				return
			}
			set(value, func(text string) string { return join(name, text) })
		})
	default:
		for _, item := range v.Items() {
			set(item, same)
		}
	}
	return members, ok && !(skipped && len(members) == 0)
}
