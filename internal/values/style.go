// Package values writes attributes and their values in a [Style], for the encoders of
// package encode and of destinations with a different record layout. A [Walker]
// writes the attributes of a record, [Values] single ones.
//
// A [Walk] passes a Go value of any type to an [Emitter], of which each output format has one. The
// Walk handles cycles, limits, panics in methods and nil pointers for all formats:
//
//	value ─▶ ShapeOf(type) ─▶ Walk ─▶ Emitter ─▶ JSON | MessagePack | OTLP
//	                                  └▶ redact.filter ─▶ Emitter
package values

import (
	"log/slog"
	"slices"
	"strconv"
	"strings"
)

// A form is one of the three record formats of package encode. All three process attributes, groups
// and values in the same way; only the output differs.
type form uint8

const (
	FormJSON form = iota
	FormLogfmt
	FormConsole
)

// A Style specifies how attributes and their values are written. It is immutable.
type Style struct {
	Form     form
	Color    bool // only for FormConsole
	Time     TimeSpec
	Duration durationForm
	Level    levelForm
	Caller   callerForm
	Errors   errorForm
	Replace  func(groups []string, a slog.Attr) slog.Attr
	Labels   *Labels // logfmt only; may be nil
}

// Labels are the rules for the logfmt lines of package loki. Values other than errors have the same
// text as in a label of Loki, and duplicate keys are renamed.
type Labels struct {
	Values *Values                       // its AppendText returns the text of a value
	Rename func(key string) string       // returns another name for a key
	Level  func(level slog.Level) string // returns the text of a level; nil: as in Style
}

// Formats of durations, levels, callers and errors, as in package encode.
type (
	durationForm uint8
	levelForm    uint8
	callerForm   uint8
	errorForm    uint8
)

const (
	DurationNanos durationForm = iota
	DurationText
	DurationSeconds
)

// DurationForms are the names of the formats of durations in options.
var DurationForms = []string{DurationNanos: "ns", DurationText: "text", DurationSeconds: "seconds"}

// DurationForm returns the format with the given name, or DurationNanos if there is none.
func DurationForm(name string) durationForm {
	return durationForm(max(0, slices.Index(DurationForms, name)))
}

const (
	LevelUpper levelForm = iota
	LevelLower
	LevelNumber
)

const (
	CallerObject callerForm = iota
	CallerFull
	CallerShort
)

const (
	ErrorText errorForm = iota
	ErrorChain
	ErrorVerbose
	ErrorObject    // only for Values.AppendError
	ErrorException // only for Values.AppendError
)

// ErrorForms are the names of the error formats in options and configurations.
var ErrorForms = []string{
	ErrorText: "text", ErrorChain: "chain", ErrorVerbose: "verbose", ErrorObject: "object", ErrorException: "exception",
}

// ErrorForm returns the error format with the given name, or ErrorText if there is none.
func ErrorForm(text string) errorForm { return errorForm(max(0, slices.Index(ErrorForms, text))) }

// Suffixes of the additional keys of an error.
const (
	chainSuffix   = "_chain"
	stackSuffix   = "_stack"
	verboseSuffix = "_verbose"
)

// LevelText returns the level l as text in the format f, including LevelNumber.
func LevelText(l slog.Level, f levelForm) string {
	switch f {
	case LevelNumber:
		return strconv.Itoa(int(l))
	case LevelLower:
		return strings.ToLower(l.String())
	}
	return l.String()
}

// Escape sequences for the colors of the console.
const (
	ColorOff   = "\x1b[0m"
	ColorFaint = "\x1b[2m"
	ColorRed   = "\x1b[31m"
	ColorGreen = "\x1b[32m"
	ColorAmber = "\x1b[33m"
	ColorBlue  = "\x1b[34m"
)
