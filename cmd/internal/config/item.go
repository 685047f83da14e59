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

// An item is a part of a configuration file that has keys and values: an input, an output, or the
// file itself. It finds the position of each fault, and suppresses faults that are a consequence of
// another one.
type item struct {
	node   conf.Node
	fields map[string]conf.Node // by key
	meant  []string             // known keys that resemble an unknown key
	faulty map[string]bool      // keys with a fault, without missing keys
	given  []*givenSetting      // in the order of the calls of [item.give]
}

// A givenSetting is a key and the setting read from its value.
type givenSetting struct {
	key       string
	s, unset  setting.Value // unset is the value of s without the key
	listItems []conf.Node   // the members of a list
}

// readItem reads the keys of v. known are the allowed keys.
func readItem(v conf.Node, known []string) *item {
	it := &item{node: v, fields: map[string]conf.Node{}, faulty: map[string]bool{}}
	it.meant = v.Fields(known, func(name string, field conf.Node) { it.fields[name] = field })
	return it
}

// has reports whether a key is present, possibly in a misspelled form.
func (it *item) has(key string) bool {
	_, ok := it.fields[key]
	return ok || slices.Contains(it.meant, key)
}

// doubtful reports whether the value of a key is unreliable: the key has a fault or may be
// misspelled.
func (it *item) doubtful(key string) bool { return it.faulty[key] || slices.Contains(it.meant, key) }

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

// wrong records a fault of a key.
func (it *item) wrong(key, format string, args ...any) {
	it.at(key).Faultf(format, args...)
	it.faulty[key] = true
}

// give sets s from the value of a key. s has its default value before the call. join is described
// at the function give.
func (it *item) give(key string, s setting.Value, join func(name, value string) string) {
	g := &givenSetting{key: key, s: s, unset: setting.CopySetting(s)}
	it.given = append(it.given, g)
	var sound bool
	if g.listItems, sound = give(it.fields[key], s, join); !sound {
		it.faulty[key] = true
		g.reset()
	}
}

func (g *givenSetting) reset() {
	reflect.ValueOf(g.s).Elem().Set(reflect.ValueOf(g.unset).Elem())
	g.listItems = nil
}

// without calls do while the setting has its default value, or lacks one member of its list, and
// then restores the setting.
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

// drop resets a setting to its default, or removes one member of a list.
func (g *givenSetting) drop(member int) {
	if l, ok := g.s.(*setting.List); ok && member >= 0 && member < len(g.listItems) && len(*l) > 1 {
		*l = slices.Delete(slices.Clone(*l), member, member+1)
		g.listItems = slices.Delete(g.listItems, member, member+1)
		return
	}
	g.reset()
}

// optionIn matches the names of options in an error.
var optionIn = lazy.Regexp(`(?:^|[\s(])--([a-z][a-z-]*[a-z])\b`)

// missingIn matches an error that reports a missing option.
var missingIn = lazy.Regexp(`^(?:[a-z.]\S* )?--[a-z-]+ is missing`)

// findFaults calls try until it returns no new error. It records each error at the keys whose
// options the error names. If it names none, findFaults looks for the key without which try returns
// another error. The settings of these keys are then reset, so that the next call can find another
// error. An error that involves a key with a known fault is ignored as a consequence of that fault.
// other is called for an error that involves no key; it reports whether to try again.
func (it *item) findFaults(try func() error, text func(error) string, other func(error) bool) {
	for range 2*len(it.given) + 100 {
		err := try()
		if err == nil {
			return
		}
		var about []*givenSetting
		follows := false
		for _, m := range optionIn().FindAllStringSubmatch(err.Error(), -1) {
			follows = follows || it.doubtful(m[1])
			if i := slices.IndexFunc(it.given, func(g *givenSetting) bool { return g.key == m[1] && g.isSet() }); i >= 0 {
				about = append(about, it.given[i])
			}
		}
		member := -1
		switch {
		case len(about) > 1:
			if !differs(try, err, about, -1) { // the error mentions these options only as a remedy
				about = nil
			}
		case missingIn().MatchString(err.Error()): // no key that is present causes the error
		default:
			about, member = it.cause(try, err, about)
		}
		switch {
		case len(about) == 0 && follows:
			return
		case len(about) == 0:
			if !other(err) {
				return
			}
			continue
		case !follows:
			key := about[0].key
			place := it.at(key)
			if member >= 0 && member < len(about[0].listItems) {
				place = about[0].listItems[member]
			}
			place.Faultf("%s", strings.TrimPrefix(text(err), key+": "))
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

// cause finds the setting without which try returns another error than err. For a list, member is
// the index of the responsible member. Only the settings in among are tried, or all settings if
// among is empty.
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

// differs reports whether try returns another error than err while the given settings are reset. If
// there is one setting with a list, only the given member is removed.
func differs(try func() error, err error, settings []*givenSetting, member int) (other bool) {
	if len(settings) == 0 {
		now := try()
		return now == nil || now.Error() != err.Error()
	}
	settings[0].without(member, func() { other = differs(try, err, settings[1:], -1) })
	return other
}

// give sets s from the value v. A list setting accepts several values. If join is not nil, it also
// accepts a mapping, and join converts each NAME: VALUE to a text. give returns the nodes of the
// list's members.
func give(v conf.Node, s setting.Value, join func(name, value string) string) (members []conf.Node, ok bool) {
	ok = true
	_, isList := s.(*setting.List)
	left := false // an empty member was skipped
	set := func(v conf.Node, text func(string) string) {
		if _, is := v.Text(); !is {
			ok = false
			return
		}
		v.Set(func(value string) error {
			if isList && text(value) == "" {
				left = true
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
				left = true
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
	return members, ok && !(left && len(members) == 0)
}
