package main

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/forebay/internal/units"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/slab"
)

// The types below are flags (pflag.Value) that say what they take.

// choice is a flag with a few possible values.
type choice struct {
	value string
	of    []string
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return strings.Join(c.of, "|") }
func (c *choice) Set(s string) error {
	if !slices.Contains(c.of, s) {
		return fmt.Errorf("%q is not one of %s", s, strings.Join(c.of, ", "))
	}
	c.value = s
	return nil
}

// add defines the flag and its completion.
func (c *choice) add(cmd *cobra.Command, name, short, usage string) {
	cmd.Flags().VarP(c, name, short, usage)
	complete(cmd, name, c.of...)
}

// complete offers values for a flag to the shell.
func complete(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // no such flag: a mistake in this program, seen by every test
	}
}

// size is a flag in bytes, within bounds.
type size struct {
	value    int64
	min, max int64 // max 0: none
}

func (s *size) String() string { return units.FlagSize(s.value) }
func (*size) Type() string     { return "SIZE" }
func (s *size) Set(text string) error {
	n, err := units.ParseSize(text)
	if err != nil {
		return err
	}
	switch {
	case n < s.min && s.max == 0:
		return fmt.Errorf("%s is out of range, which is %s or more", text, units.FlagSize(s.min))
	case n < s.min || s.max > 0 && n > s.max:
		return fmt.Errorf("%s is out of range, which is %s to %s", text, units.FlagSize(s.min), units.FlagSize(s.max))
	}
	s.value = n
	return nil
}

// rate is a flag in records per second.
type rate float64

func (r *rate) String() string { return strconv.FormatFloat(float64(*r), 'f', -1, 64) + "/s" }
func (*rate) Type() string     { return "RATE" }
func (r *rate) Set(text string) error {
	v, err := units.ParseRate(text)
	*r = rate(v)
	return err
}

// duration is a flag that also takes days.
type duration time.Duration

func (d *duration) String() string {
	if *d == 0 {
		return "0" // which --help leaves out
	}
	text := time.Duration(*d).String()
	for _, unit := range []string{"s", "m"} { // 24h, not 24h0m0s
		if short := strings.TrimSuffix(text, "0"+unit); short != text && strings.ContainsAny(short[len(short)-1:], "hm") {
			text = short
		}
	}
	return text
}
func (*duration) Type() string { return "DURATION" }
func (d *duration) Set(text string) error {
	v, err := units.ParseDuration(text)
	*d = duration(v)
	return err
}

// level is a flag; unset it admits everything.
type level struct {
	slog.Level
	set bool
}

func (l *level) String() string {
	if !l.set {
		return ""
	}
	return strings.ToLower(l.Level.String())
}
func (*level) Type() string { return "LEVEL" }
func (l *level) Set(text string) (err error) {
	l.Level, err = record.ParseLevel(text)
	l.set = err == nil
	return err
}

// whenFull is the flag of a slab.WhenFull.
type whenFull struct{ slab.WhenFull }

func (*whenFull) Type() string { return "POLICY" }
func (w *whenFull) Set(text string) error {
	v, err := slab.ParseWhenFull(text)
	if err != nil {
		return fmt.Errorf("%q is not one of block, block-for=DURATION (such as block-for=250ms), drop-newest, drop-oldest, spill", text)
	}
	w.WhenFull = v
	return nil
}
