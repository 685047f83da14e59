package program

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/forebay-log/forebay/slab"
)

// A setting is the value of an option. Every setting is also the value of a flag.
type setting interface {
	String() string
	Set(string) error
	Type() string // for help
}

// settings are the values of options by name. A method panics if the table has no option of that
// name and type.
type settings struct {
	values map[string]setting
	given  map[string]bool // the options that were set
}

// set sets an option. A list gets one more member.
func (s *settings) set(name, text string) error {
	s.given[name] = true
	return s.values[name].Set(text)
}

// clone returns a copy with separate values.
func (s settings) clone() settings {
	c := settings{values: map[string]setting{}, given: maps.Clone(s.given)}
	for name, v := range s.values {
		c.values[name] = copySetting(v)
	}
	return c
}

// text returns the value as it would be written.
func (s settings) text(name string) string { return s.values[name].String() }

func (s settings) on(name string) bool     { return bool(*s.values[name].(*toggle)) }
func (s settings) bytes(name string) int64 { return s.values[name].(*size).value }
func (s settings) count(name string) int   { return s.values[name].(*count).value }
func (s settings) list(name string) []string {
	return slices.Clone(*s.values[name].(*list))
}
func (s settings) duration(name string) time.Duration {
	return time.Duration(*s.values[name].(*duration))
}
func (s settings) whenFull() slab.WhenFull { return s.values["when-full"].(*whenFull).WhenFull }
func (s settings) level() *level           { return s.values["level"].(*level) }

// copySetting returns a setting with the same value.
func copySetting(s setting) setting {
	n := reflect.New(reflect.TypeOf(s).Elem())
	n.Elem().Set(reflect.ValueOf(s).Elem())
	return n.Interface().(setting)
}

func newText(s string) *text { return (*text)(&s) }

func newDuration(d time.Duration) *duration { return (*duration)(&d) }
