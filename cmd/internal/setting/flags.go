package setting

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

// The following types are values of flags. They implement pflag.Value.

// A Choice is a flag whose value is one of the texts in Of.
type Choice struct {
	Value string
	Of    []string
}

func (c *Choice) String() string { return c.Value }
func (c *Choice) Type() string   { return strings.Join(c.Of, "|") }
func (c *Choice) Set(s string) error {
	if !slices.Contains(c.Of, s) {
		return fmt.Errorf("%q is not one of %s", s, strings.Join(c.Of, ", "))
	}
	c.Value = s
	return nil
}

// Add adds the flag and its shell completion to cmd.
func (c *Choice) Add(cmd *cobra.Command, name, short, usage string) {
	cmd.Flags().VarP(c, name, short, usage)
	Complete(cmd, name, c.Of...)
}

// Complete adds values to the shell completion of a flag.
func Complete(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // a programming error: cmd has no such flag
	}
}

// A Size is a flag whose value is a number of bytes from Min to Max.
type Size struct {
	Value    int64
	Min, Max int64 // Max is 0 if there is no maximum
}

// SizeBetween returns a Size with the default value. A max of 0 means that there is no maximum.
func SizeBetween(value, min, max int64) *Size { return &Size{value, min, max} }

func (s *Size) String() string { return units.FlagSize(s.Value) }
func (*Size) Type() string     { return "SIZE" }
func (s *Size) Set(text string) error {
	n, err := units.ParseSize(text)
	if err != nil {
		return err
	}
	switch {
	case n < s.Min && s.Max == 0:
		return fmt.Errorf("%s is out of range: use %s or more", text, units.FlagSize(s.Min))
	case n < s.Min || s.Max > 0 && n > s.Max:
		return fmt.Errorf("%s is out of range: use %s to %s", text, units.FlagSize(s.Min), units.FlagSize(s.Max))
	}
	s.Value = n
	return nil
}

// A Rate is a flag whose value is a number of records per second.
type Rate float64

func (r *Rate) String() string { return strconv.FormatFloat(float64(*r), 'f', -1, 64) + "/s" }
func (*Rate) Type() string     { return "RATE" }
func (r *Rate) Set(text string) error {
	v, err := units.ParseRate(text)
	*r = Rate(v)
	return err
}

// A Duration is a flag whose value is a duration. It accepts days as a unit.
type Duration time.Duration

func (d *Duration) String() string {
	if *d == 0 {
		return "0" // for the value 0, --help prints no default
	}
	text := time.Duration(*d).String()
	for _, unit := range []string{"s", "m"} { // remove zero units: 24h instead of 24h0m0s
		if short := strings.TrimSuffix(text, "0"+unit); short != text && strings.ContainsAny(short[len(short)-1:], "hm") {
			text = short
		}
	}
	return text
}
func (*Duration) Type() string { return "DURATION" }
func (d *Duration) Set(text string) error {
	v, err := units.ParseDuration(text)
	*d = Duration(v)
	return err
}

// A Level is a flag whose value is a log level.
type Level struct {
	slog.Level
	Given bool // the flag was set; if it is not set, all levels are delivered
}

func (l *Level) String() string {
	if !l.Given {
		return ""
	}
	return strings.ToLower(values.LevelName(l.Level))
}
func (*Level) Type() string { return "LEVEL" }
func (l *Level) Set(text string) (err error) {
	l.Level, err = record.ParseLevel(text)
	l.Given = err == nil
	return err
}

// Admits reports whether ev has the level of l or a higher one. A line without a level is always
// admitted.
func (l *Level) Admits(ev *record.Event) bool {
	return !l.Given || !ev.HasLevel || ev.Level >= l.Level
}

// Words returns the level for messages.
func (l *Level) Words() string {
	if !l.Given {
		return "none"
	}
	return l.String()
}

// A Zone is a flag whose value is a time zone: a name or an offset from UTC. If Location is nil,
// the time zone of the system applies.
type Zone struct{ *time.Location }

func (z *Zone) String() string {
	if z.Location == nil {
		return ""
	}
	return z.Location.String()
}
func (*Zone) Type() string { return "ZONE" }
func (z *Zone) Set(text string) error {
	if at, err := time.Parse("-07:00", text); err == nil {
		_, offset := at.Zone()
		z.Location = time.FixedZone(text, offset)
		return nil
	}
	loc, err := time.LoadLocation(text)
	if text == "" || err != nil {
		return fmt.Errorf("%q is not a known time zone: use a name such as Europe/Berlin, Local, UTC, or an offset such as +02:00", text)
	}
	z.Location = loc
	return nil
}

// whenFull is a flag whose value is a when-full policy of package slab.
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

// A Count is a flag whose value is a number from min to max.
type Count struct {
	Value    int
	min, max int    // max is 0 if there is no maximum
	why      string // reason for min, for errors; may be empty
}

// CountBetween returns a Count with the default value. A max of 0 means that there is no maximum.
func CountBetween(value, min, max int) *Count { return &Count{Value: value, min: min, max: max} }

func (c *Count) String() string { return strconv.Itoa(c.Value) }
func (*Count) Type() string     { return "int" }
func (c *Count) Set(text string) error {
	n, err := strconv.Atoi(text)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return fmt.Errorf("%q is not a whole number", text)
	case (err != nil || n < c.min) && c.max == 0:
		return fmt.Errorf("%s is out of range: use %d%s or more", text, c.min, c.why)
	case err != nil || n < c.min || c.max > 0 && n > c.max:
		return fmt.Errorf("%s is out of range: use %d%s to %d", text, c.min, c.why, c.max)
	}
	c.Value = n
	return nil
}

// A Text is a flag whose value is any text.
type Text string

func (t *Text) String() string     { return string(*t) }
func (*Text) Type() string         { return "string" }
func (t *Text) Set(s string) error { *t = Text(s); return nil }

// A Path is a flag whose value is the name of a file or directory. The name must not be empty.
type Path string

func (p *Path) String() string { return string(*p) }
func (*Path) Type() string     { return "string" }
func (p *Path) Set(s string) error {
	if s == "" {
		return errors.New("it is empty")
	}
	*p = Path(s)
	return nil
}

// A Toggle is a flag that is on or off. On the command line, the flag alone means on.
type Toggle bool

func (t *Toggle) String() string { return strconv.FormatBool(bool(*t)) }
func (*Toggle) Type() string     { return "bool" }
func (*Toggle) IsBoolFlag() bool { return true }
func (t *Toggle) Set(s string) error {
	on, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", s)
	}
	*t = Toggle(on)
	return nil
}

// A List is a flag that may be repeated.
type List []string

func (l *List) String() string     { return strings.Join(*l, ", ") }
func (*List) Type() string         { return "string" }
func (l *List) Set(s string) error { *l = append(slices.Clip(*l), s); return nil }
