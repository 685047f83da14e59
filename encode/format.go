package encode

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/internal/values"
)

// The names of the formats, documented at [Options].
var (
	timeNames = []string{
		values.TimeNano: "rfc3339nano", values.TimeMicro: "rfc3339micro", values.TimeMilli: "rfc3339milli",
		values.TimeSecond: "rfc3339", values.TimeClock: "clock", values.TimeUnix: "unix", values.TimeUnixMilli: "unixmilli",
		values.TimeUnixMicro: "unixmicro", values.TimeUnixNano: "unixnano",
	}
	levelNames  = []string{values.LevelUpper: "upper", values.LevelLower: "lower", values.LevelNumber: "number"}
	callerNames = []string{values.CallerObject: "object", values.CallerFull: "full", values.CallerShort: "short"}
	errorNames  = values.ErrorForms[:values.ErrorVerbose+1]
)

// config returns the config for the options o. def are the defaults of the encoder.
func (o *Options) config(def values.Style) config {
	if o == nil {
		o = new(Options)
	}
	var faults []error
	c := config{
		Style: values.Style{
			Form:     def.Form,
			Color:    o.Color && def.Form == values.FormConsole,
			Time:     timeSpec(&faults, o.Time, def.Time),
			Duration: choice(&faults, "Duration", o.Duration, def.Duration, values.DurationForms),
			Level:    choice(&faults, "Level", o.Level, def.Level, levelNames),
			Caller:   choice(&faults, "Caller", o.Caller, def.Caller, callerNames),
			Errors:   choice(&faults, "Errors", o.Errors, def.Errors, errorNames),
			Replace:  o.ReplaceAttr,
		},
		ownDuration: o.Duration != "",
		source:      o.AddSource && o.SourceKey != omitted,
		timeKey:     cmp.Or(o.TimeKey, slog.TimeKey),
		levelKey:    cmp.Or(o.LevelKey, slog.LevelKey),
		messageKey:  cmp.Or(o.MessageKey, slog.MessageKey),
		sourceKey:   cmp.Or(o.SourceKey, slog.SourceKey),
	}
	switch {
	case o.OwnLocation:
		c.Time.Loc = nil
	case o.Location != nil:
		c.Time.Loc = o.Location
	}
	c.fault = errors.Join(faults...)
	return c
}

// timeSpec returns the time format with the given name: one of timeNames, or a layout. An empty
// name means def. An unknown name also means def, and adds an error to faults.
func timeSpec(faults *[]error, text string, def values.TimeSpec) values.TimeSpec {
	if text == "" {
		return def
	}
	if at := indexOf(text, timeNames); at >= 0 {
		return values.TimeSpec{Kind: values.TimeKind(at), Loc: def.Loc}
	}
	if isLayout(text) {
		return values.TimeSpec{Kind: values.TimeLayout, Layout: text, Loc: def.Loc}
	}
	*faults = append(*faults, fmt.Errorf("encode: cannot use Time %q: it is not a layout with a time field; "+
		"write the layout for the reference time, such as %q, or use one of %s", text, time.DateTime, quotedNames(timeNames)))
	return def
}

// isLayout reports whether layout contains a time field, by formatting two different times.
func isLayout(layout string) bool {
	a := time.Date(2001, 2, 3, 4, 5, 6, 789654321, time.UTC)
	b := time.Date(2022, 11, 28, 17, 49, 57, 123456789, time.UTC)
	return a.Format(layout) != b.Format(layout)
}

// choice returns the format with the given name, which is one of names. An empty name means def. An
// unknown name also means def, and adds an error about the field to faults.
func choice[C ~uint8](faults *[]error, field, text string, def C, names []string) C {
	if text == "" {
		return def
	}
	if at := indexOf(text, names); at >= 0 {
		return C(at)
	}
	*faults = append(*faults, fmt.Errorf("encode: cannot use %s %q: it is not one of %s", field, text, quotedNames(names)))
	return def
}

// indexOf returns the index of name, or -1. Case is ignored.
func indexOf(name string, names []string) int {
	return slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

// quotedNames returns the names in quotes, separated by commas.
func quotedNames(names []string) string {
	return `"` + strings.Join(names, `", "`) + `"`
}
