package config

import (
	"os"
	"slices"
	"strings"

	"github.com/forebay-log/forebay/cmd/internal/conf"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/internal/record"
)

// addInput reads the configuration of one input. An input with faults is added as well, because
// checkConflicts compares all inputs and outputs.
func (c *Pipeline) addInput(name string, v conf.Node, stdin *os.File) {
	checkName(name, v)
	c.declared = append(c.declared, name)
	var names []string
	for _, o := range input.Options {
		names = append(names, o.Name)
	}
	if setting.UnsupportedHint(textOf(v, "type")) != "" && !slices.Contains(input.Types, textOf(v, "type")) {
		names = nil // this program does not know the options of the type, which needs forebay-all
	}
	it := readItem(v, names)
	in := &input.Config{Name: name, Values: input.NewValues()}
	c.items[in] = it
	c.Inputs = append(c.Inputs, in)
	s := &in.Values
	if _, ok := it.fields["type"]; ok {
		it.readSetting("type", s.ByName["type"], nil)
		it.given = nil // assume that type is valid, so that findFaults does not blame it for an error about another option
	} else if !it.has("type") && !v.WrongType() {
		v.Faultf("type is missing: use %s", strings.Join(input.Types, ", "))
	}
	kind := s.Text("type")
	for _, o := range input.Options {
		_, ok := it.fields[o.Name]
		switch {
		case !ok || o.Name == "type":
		case kind != "" && o.Of != nil && !slices.Contains(o.Of, kind):
			it.faultf(o.Name, "it is for inputs of type %s; inputs of type %s have %s", console.InWords(o.Of, "and"), kind, strings.Join(input.InputOptionsOf(kind), ", "))
		default:
			it.readSetting(o.Name, s.ByName[o.Name], nil)
		}
	}
	in.Format, _ = record.ParseFormat(s.Text("format"))
	in.Zone, in.Times = *s.ByName["zone"].(*setting.Zone), intake.ParseTimes(s.Text("time"))
	if kind == "" {
		return
	}
	it.findFaults(func() (err error) {
		in.Kind, err = input.KindOf(s, "inputs."+name, stdin)
		return err
	}, func(err error) string {
		return WithoutFlags(strings.TrimPrefix(err.Error(), "inputs."+name+" "))
	}, func(err error) bool {
		v.Faultf("%s", WithoutFlags(strings.TrimPrefix(err.Error(), "inputs."+name+" ")))
		return false
	})
	var files []string
	for _, o := range input.Options {
		if o.OfFile {
			files = append(files, s.Text(o.Name))
		}
	}
	in.Secrets = checksumOf(files...)
}
