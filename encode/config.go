package encode

import (
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// A form is one of the three wire forms. They share how attributes, groups and
// values are walked, and differ in how each is written.
type form uint8

const (
	formJSON form = iota
	formLogfmt
	formConsole
)

// config is what the options of the three forms come to.
type config struct {
	form     form
	color    bool
	source   bool
	time     timeSpec
	duration DurationFormat
	level    LevelFormat
	caller   CallerFormat
	errors   ErrorFormat
	replace  func(groups []string, a slog.Attr) slog.Attr
	typed    bool // what lies in values is what it is by itself, see tree

	timeKey, levelKey, messageKey, sourceKey string // "-": left out
}

// omitted is the key of a built-in attribute that is left out.
const omitted = "-"

func key(name, def string) string {
	if name == "" {
		return def
	}
	return name
}

func (c *config) location(loc *time.Location, own bool) *time.Location {
	switch {
	case own:
		return nil
	case loc != nil:
		return loc
	case c.form == formConsole:
		return time.Local
	}
	return time.UTC
}

// levelText returns l as f has it. [LevelNumber] is text here too.
func levelText(l slog.Level, f LevelFormat) string {
	switch f {
	case LevelNumber:
		return strconv.Itoa(int(l))
	case LevelLower:
		return strings.ToLower(l.String())
	}
	return l.String()
}
