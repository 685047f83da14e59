package setting

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/forebay-log/forebay/slab"
)

// A Value is the value of an option. It implements pflag.Value.
type Value interface {
	String() string
	Set(string) error
	Type() string // name of the type, for --help
}

// Values contains the values of options by their names. Its methods panic if there is no option
// with the given name and type.
type Values struct {
	ByName map[string]Value
	Given  map[string]bool // names of the options that were set
}

// Set sets the named option. If the option is a list, Set appends text to the list.
func (s *Values) Set(name, text string) error {
	s.Given[name] = true
	return s.ByName[name].Set(text)
}

// Clone returns a copy that shares no values with s.
func (s Values) Clone() Values {
	c := Values{ByName: map[string]Value{}, Given: maps.Clone(s.Given)}
	for name, v := range s.ByName {
		c.ByName[name] = CopySetting(v)
	}
	return c
}

// Text returns the value of the named option as on the command line.
func (s Values) Text(name string) string { return s.ByName[name].String() }

// On, Bytes, Count, List, Duration, WhenFull and Level return the value of the named option, which
// must have the matching type.
func (s Values) On(name string) bool     { return bool(*s.ByName[name].(*Toggle)) }
func (s Values) Bytes(name string) int64 { return s.ByName[name].(*Size).Value }
func (s Values) Count(name string) int   { return s.ByName[name].(*Count).Value }
func (s Values) List(name string) []string {
	return slices.Clone(*s.ByName[name].(*List))
}
func (s Values) Duration(name string) time.Duration {
	return time.Duration(*s.ByName[name].(*Duration))
}
func (s Values) WhenFull() slab.WhenFull { return s.ByName["when-full"].(*whenFull).WhenFull }
func (s Values) Level() *Level           { return s.ByName["level"].(*Level) }

// New returns the options of outputs with their defaults.
func New() Values {
	v := Values{ByName: map[string]Value{}, Given: map[string]bool{}}
	for _, o := range Options {
		v.ByName[o.Name] = o.Initial()
	}
	return v
}

// CopySetting returns a copy of s that does not change when s is set.
func CopySetting(s Value) Value {
	n := reflect.New(reflect.TypeOf(s).Elem())
	n.Elem().Set(reflect.ValueOf(s).Elem())
	return n.Interface().(Value)
}

func newText(s string) *Text { return (*Text)(&s) }

func newDuration(d time.Duration) *Duration { return (*Duration)(&d) }
