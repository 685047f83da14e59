package program

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// givenOptions are the options that flags say for all outputs.
type givenOptions struct {
	base    outputConfig        // the defaults
	texts   map[string][]string // what was given, by the name of the option
	heeded  map[string]bool     // what an output heeds, by the name of the option
	schemes []string            // the kinds of the outputs
}

func newGivenOptions() givenOptions {
	return givenOptions{base: newOutputConfig(), texts: map[string][]string{}, heeded: map[string]bool{}}
}

// A givenFlag is the flag of an option: it checks a text, and keeps it for the outputs
// that heed it.
type givenFlag struct {
	setting // checks, and belongs to no output
	name    string
	texts   map[string][]string
}

func (f givenFlag) Set(text string) error {
	if err := f.setting.Set(text); err != nil {
		return err
	}
	f.texts[f.name] = append(f.texts[f.name], text)
	return nil
}

// Which options there are: behind --to, and where lines come from elsewhere, as those of
// --fallback do.
func anyOption(*option) bool   { return true }
func ownOption(o *option) bool { return !o.way }

// addFlags defines the flags of the options that some picks.
func (g *givenOptions) addFlags(cmd *cobra.Command, some func(*option) bool) {
	for _, o := range options {
		if o.keyOnly || !some(o) {
			continue
		}
		value := o.initial()
		flag := cmd.Flags().VarPF(givenFlag{value, o.name, g.texts}, o.name, "", o.usage)
		words := o.words
		switch value := value.(type) {
		case *toggle:
			flag.NoOptDefVal = "true"
		case *choice:
			words = value.of
		}
		if words != nil {
			complete(cmd, o.name, words...)
		}
	}
}

// output returns what the output of a destination is told: by the flags that are for it,
// and by its own query, which wins. some picks the options that there are. flag is the
// one that names the destination.
func (g *givenOptions) output(dests []destination, flag, to string, some func(*option) bool) (*outputConfig, error) {
	d, at, query, err := locate(dests, flag, to)
	if err != nil {
		return nil, configError(err)
	}
	wrong := func(format string, args ...any) error {
		return usageError(fmt.Errorf("%s %s: %w", flag, redact(to), fmt.Errorf(format, args...)))
	}
	own, err := parseQuery(d.Scheme(), query, some)
	if err != nil {
		return nil, wrong("%w", err)
	}
	c := g.base
	c.settings = g.base.clone()
	c.To, c.name = at, nameOf(at, own)
	g.schemes = append(g.schemes, d.Scheme())
	has := func(name string) bool { return own.has(name) || g.texts[name] != nil }
	for _, o := range options {
		if g.texts[o.name] == nil || !some(o) || !o.isFor(d.Scheme()) || o.lacks(d.Scheme(), has) != nil {
			continue
		}
		g.heeded[o.name] = true
		for _, text := range g.texts[o.name] {
			if !own.has(o.name) && !(c.dryRun && o.keeps) {
				if err := c.set(o.name, text); err != nil {
					return nil, usageError(fmt.Errorf("--%s: %w", o.name, err)) // the flag took it
				}
			}
		}
	}
	for _, p := range own {
		if lacks := p.o.lacks(d.Scheme(), has); lacks != nil {
			return nil, wrong("%s needs %s", p.o.name, strings.Join(lacks, " or "))
		}
		if c.dryRun && p.o.keeps {
			continue
		}
		if err := c.set(p.o.name, p.text); err != nil {
			return nil, wrong("%s: %w", p.o.name, err)
		}
	}
	if c.dryRun && c.spills() {
		c.values["when-full"] = copySetting(g.base.values["when-full"])
	}
	if err := c.check(); err != nil {
		if len(own) > 0 {
			return nil, wrong("%w", err)
		}
		return nil, usageError(err)
	}
	return &c, nil
}

// unheeded returns an error if a flag was given that no output heeds.
func (g *givenOptions) unheeded() error {
	for _, o := range options {
		if g.texts[o.name] == nil || g.heeded[o.name] {
			continue
		}
		if slices.ContainsFunc(g.schemes, o.isFor) {
			return usageError(fmt.Errorf("--%s needs --%s", o.name, strings.Join(o.needs, " or --")))
		}
		return usageError(fmt.Errorf("--%s is for %s, and no destination is of that kind", o.name, o.kinds()))
	}
	return nil
}
