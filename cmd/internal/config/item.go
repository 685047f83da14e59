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

// An item is a part of a configuration file with keys and values: an input, an output, or the whole
// file. It finds the position of each fault. It suppresses faults that are a consequence of another
// fault.
type item struct {
	node      conf.Node
	fields    map[string]conf.Node // by key
	suggested []string             // known keys that are similar to an unknown key
	faulty    map[string]bool      // keys whose value has a fault
	given     []*givenSetting      // in the order of the calls of [item.readSetting]
}

// A givenSetting is a key and the setting read from its value.
type givenSetting struct {
	key       string
	s, unset  setting.Value // unset is a copy of s with its default value
	listItems []conf.Node   // the nodes of the members, if s is a list
}

// readItem reads the keys of v. known contains the allowed keys.
func readItem(v conf.Node, known []string) *item {
	it := &item{node: v, fields: map[string]conf.Node{}, faulty: map[string]bool{}}
	it.suggested = v.Fields(known, func(name string, field conf.Node) { it.fields[name] = field })
	return it
}

// has reports whether a key is present, possibly in a misspelled form.
func (it *item) has(key string) bool {
	_, ok := it.fields[key]
	return ok || slices.Contains(it.suggested, key)
}

// doubtful reports whether the value of a key is unreliable: the key has a fault or may be
// misspelled.
func (it *item) doubtful(key string) bool {
	return it.faulty[key] || slices.Contains(it.suggested, key)
}

// at returns the node of a key's value, or the node of the item if the key is missing.
func (it *item) at(key string) conf.Node {
	if v, ok := it.fields[key]; ok {
		return v
	}
	return it.node
}

// positions returns the positions of the values by key.
func (it *item) positions() dest.Positions {
	all := dest.Positions{}
	for key, v := range it.fields {
		line, column := v.Position()
		all[key] = fmt.Sprintf("%d:%d", line, column)
	}
	return all
}

// faultf records a fault of the value of a key.
func (it *item) faultf(key, format string, args ...any) {
	it.at(key).Faultf(format, args...)
	it.faulty[key] = true
}

// readSetting sets s, which has its default value, from the value of a key. join is described at
// the function setFrom.
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

// without resets the setting to its default or, if the setting is a list, removes the given member.
// Then it calls the function do and restores the setting.
func (g *givenSetting) without(member int, do func()) {
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

// drop removes the given member of a list, or resets the setting to its default.
func (g *givenSetting) drop(member int) {
	if l, ok := g.s.(*setting.List); ok && member >= 0 && member < len(g.listItems) && len(*l) > 1 {
		*l = slices.Delete(slices.Clone(*l), member, member+1)
		g.listItems = slices.Delete(g.listItems, member, member+1)
		return
	}
	g.reset()
}

// optionIn matches the name of an option in the text of an error.
var optionIn = lazy.Regexp(`(?:^|[\s(])--([a-z][a-z-]*[a-z])\b`)

// missingIn matches the text of an error about a missing option.
var missingIn = lazy.Regexp(`^(?:[a-z.]\S* )?--[a-z-]+ is missing`)

// findFaults calls the function try, which checks the settings of the item, until try returns no
// new error. It records each error as a fault of the keys whose options the error names. If the
// error names none, findFaults resets each setting in turn to find the key that causes the error.
//
// The settings of these keys are then reset, so that the next call of try can find another error.
// An error that names a key with a known fault is a consequence of that fault, and is not recorded.
// For an error that concerns no key, findFaults calls the function other, which reports whether to
// try again.
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
			if !differs(try, err, about, -1) { // resetting these options does not change the error: it names them only as a remedy
				about = nil
			}
		case missingIn().MatchString(err.Error()): // no existing key causes the error
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

// cause finds the setting that causes err: while it is reset, try returns a different error. cause
// examines only the settings in the list among, or all settings if the list is empty. If the
// setting is a list, member is the index of the member that causes err.
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

// differs reports whether try returns a different error than err while the given settings are
// reset. If the first setting is a list, only the given member is removed from it.
func differs(try func() error, err error, settings []*givenSetting, member int) (other bool) {
	if len(settings) == 0 {
		now := try()
		return now == nil || now.Error() != err.Error()
	}
	settings[0].without(member, func() { other = differs(try, err, settings[1:], -1) })
	return other
}

// setFrom sets s from the value v. If s is a list, v may have several values, and setFrom returns
// their nodes. If join is not nil, v may also be a mapping, and join converts each of its fields
// NAME: VALUE to a text.
func setFrom(v conf.Node, s setting.Value, join func(name, value string) string) (members []conf.Node, ok bool) {
	ok = true
	_, isList := s.(*setting.List)
	skipped := false // an empty member of the list was skipped
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
