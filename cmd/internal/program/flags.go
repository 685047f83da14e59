package program

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/internal/values"
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
	return strings.ToLower(values.LevelName(l.Level))
}
func (*level) Type() string { return "LEVEL" }
func (l *level) Set(text string) (err error) {
	l.Level, err = record.ParseLevel(text)
	l.set = err == nil
	return err
}

// admits reports whether a line of that level is delivered. One without a level is.
func (l *level) admits(ev *record.Event) bool {
	return !l.set || !ev.HasLevel || ev.Level >= l.Level
}

// zone is a flag with the name of a time zone, or its distance from UTC. Nil is the
// system's.
type zone struct{ *time.Location }

func (z *zone) String() string {
	if z.Location == nil {
		return ""
	}
	return z.Location.String()
}
func (*zone) Type() string { return "ZONE" }
func (z *zone) Set(text string) error {
	if at, err := time.Parse("-07:00", text); err == nil {
		_, offset := at.Zone()
		z.Location = time.FixedZone(text, offset)
		return nil
	}
	loc, err := time.LoadLocation(text)
	if text == "" || err != nil {
		return fmt.Errorf("%q is no time zone that is known here: use a name such as Europe/Berlin, Local, UTC, or a distance such as +02:00", text)
	}
	z.Location = loc
	return nil
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

// count is a flag with a number, within bounds.
type count struct {
	value    int
	min, max int    // max 0: none
	why      string // of min
}

func (c *count) String() string { return strconv.Itoa(c.value) }
func (*count) Type() string     { return "int" }
func (c *count) Set(text string) error {
	n, err := strconv.Atoi(text)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return fmt.Errorf("%q is no whole number", text)
	case (err != nil || n < c.min) && c.max == 0:
		return fmt.Errorf("%s is out of range: use %d%s or more", text, c.min, c.why)
	case err != nil || n < c.min || c.max > 0 && n > c.max:
		return fmt.Errorf("%s is out of range: use %d%s to %d", text, c.min, c.why, c.max)
	}
	c.value = n
	return nil
}

// text is a flag with any text.
type text string

func (t *text) String() string     { return string(*t) }
func (*text) Type() string         { return "string" }
func (t *text) Set(s string) error { *t = text(s); return nil }

// path is a flag with the name of something, which is not empty.
type path string

func (p *path) String() string { return string(*p) }
func (*path) Type() string     { return "string" }
func (p *path) Set(s string) error {
	if s == "" {
		return errors.New("it is empty")
	}
	*p = path(s)
	return nil
}

// toggle is a flag that needs no value.
type toggle bool

func (t *toggle) String() string { return strconv.FormatBool(bool(*t)) }
func (*toggle) Type() string     { return "bool" }
func (*toggle) IsBoolFlag() bool { return true }
func (t *toggle) Set(s string) error {
	on, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", s)
	}
	*t = toggle(on)
	return nil
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string     { return strings.Join(*l, ", ") }
func (*list) Type() string         { return "string" }
func (l *list) Set(s string) error { *l = append(slices.Clip(*l), s); return nil }
