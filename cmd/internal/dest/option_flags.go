package dest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// Given contains the options that were set with flags. They apply to all outputs.
type Given struct {
	Base    Spec                // defaults of the options
	texts   map[string][]string // values on the command line, by name of the option
	used    map[string]bool     // options that at least one output has
	schemes []string            // schemes of the outputs
}

// NewGiven returns a Given without options.
func NewGiven() Given {
	return Given{Base: NewSpec(), texts: map[string][]string{}, used: map[string]bool{}}
}

// A givenFlag is the flag of an option. It checks a value and stores the text of the value.
type givenFlag struct {
	setting.Value // only checks values
	name          string
	texts         map[string][]string
}

func (f givenFlag) Set(text string) error {
	if err := f.Value.Set(text); err != nil {
		return err
	}
	f.texts[f.name] = append(f.texts[f.name], text)
	return nil
}

// AnyOption selects all options of --to. OwnOption selects the options of a destination, such as
// --fallback, that receives the records of another output.
func AnyOption(*setting.Option) bool   { return true }
func OwnOption(o *setting.Option) bool { return !o.General }

// AddFlags adds flags to cmd for the options that filter selects.
func (g *Given) AddFlags(cmd *cobra.Command, filter func(*setting.Option) bool) {
	for _, o := range setting.Options {
		if o.KeyOnly || !filter(o) {
			continue
		}
		value := o.Initial()
		flag := cmd.Flags().VarPF(givenFlag{value, o.Name, g.texts}, o.Name, "", o.Usage)
		words := o.Words
		switch value := value.(type) {
		case *setting.Toggle:
			flag.NoOptDefVal = "true"
		case *setting.Choice:
			words = value.Of
		}
		if words != nil {
			setting.Complete(cmd, o.Name, words...)
		}
	}
}

// Output returns the Spec for an address. flag is the name of the flag that contains the address,
// for errors. Options in the query part of the address have precedence over the flags. Only options
// that filter selects are allowed.
func (g *Given) Output(dests []Destination, flag, address string, filter func(*setting.Option) bool) (*Spec, error) {
	d, at, query, err := Locate(dests, flag, address)
	if err != nil {
		return nil, exit.Config(err)
	}
	wrong := func(format string, args ...any) error {
		return exit.Usage(fmt.Errorf("%s %s: %w", flag, setting.Redact(address), fmt.Errorf(format, args...)))
	}
	own, err := setting.ParseQuery(d.Scheme(), query, filter)
	if err != nil {
		return nil, wrong("%w", err)
	}
	c := g.Base
	c.Values = g.Base.Clone()
	c.To, c.Name = at, setting.NameOf(at, own)
	g.schemes = append(g.schemes, d.Scheme())
	has := func(name string) bool { return own.Has(name) || g.texts[name] != nil }
	for _, o := range setting.Options {
		if g.texts[o.Name] == nil || !filter(o) || !o.IsFor(d.Scheme()) || o.Lacks(d.Scheme(), has) != nil {
			continue
		}
		g.used[o.Name] = true
		for _, text := range g.texts[o.Name] {
			if !own.Has(o.Name) && !(c.DryRun && o.Undelivered) {
				if err := c.Set(o.Name, text); err != nil {
					return nil, exit.Usage(fmt.Errorf("--%s: %w", o.Name, err)) // unreachable, because the flag has already checked the value
				}
			}
		}
	}
	for _, p := range own {
		if lacks := p.Option.Lacks(d.Scheme(), has); lacks != nil {
			return nil, wrong("%s needs %s", p.Option.Name, strings.Join(lacks, " or "))
		}
		if c.DryRun && p.Option.Undelivered {
			continue
		}
		if err := c.Set(p.Option.Name, p.Text); err != nil {
			return nil, wrong("%s: %w", p.Option.Name, err)
		}
	}
	if c.DryRun && c.spills() {
		c.ByName["when-full"] = setting.CopySetting(g.Base.ByName["when-full"])
	}
	if err := c.Check(); err != nil {
		if len(own) > 0 {
			return nil, wrong("%w", err)
		}
		return nil, exit.Usage(err)
	}
	return &c, nil
}

// Unused returns an error if a flag on the command line applies to no output.
func (g *Given) Unused() error {
	for _, o := range setting.Options {
		if g.texts[o.Name] == nil || g.used[o.Name] {
			continue
		}
		if slices.ContainsFunc(g.schemes, o.IsFor) {
			return exit.Usage(fmt.Errorf("--%s needs --%s", o.Name, strings.Join(o.Needs, " or --")))
		}
		return exit.Usage(fmt.Errorf("--%s is for %s, and no destination is of that kind", o.Name, o.Kinds()))
	}
	return nil
}
