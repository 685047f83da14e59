// Package values writes attributes and their values, in a [Style]: for the encoders of
// package encode, and for those of destinations that arrange records in their own way.
// A [Walker] writes the attributes of a record, [Values] single ones.
package values

import (
	"log/slog"
	"slices"
	"strconv"
	"strings"
)

// A form is one of the three wire forms. They share how attributes, groups and
// values are walked, and differ in how each is written.
type form uint8

const (
	FormJSON form = iota
	FormLogfmt
	FormConsole
)

// A Style is how attributes and their values are written. It is immutable.
type Style struct {
	Form     form
	Color    bool // of the console
	Time     TimeSpec
	Duration durationForm
	Level    levelForm
	Caller   callerForm
	Errors   errorForm
	Replace  func(groups []string, a slog.Attr) slog.Attr
	typed    bool // what lies in values is what it is by itself, see tree
}

// The formats of package encode.
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
	ErrorObject    // of Values.AppendError only
	ErrorException // likewise
)

// ErrorForms are the texts of the forms of errors, in options and configurations.
var ErrorForms = []string{
	ErrorText: "text", ErrorChain: "chain", ErrorVerbose: "verbose", ErrorObject: "object", ErrorException: "exception",
}

// ErrorForm returns the form of a text, ErrorText if it names none.
func ErrorForm(text string) errorForm { return errorForm(max(0, slices.Index(ErrorForms, text))) }

// What is added to the key of an error for what stands beside it.
const (
	chainSuffix   = "_chain"
	stackSuffix   = "_stack"
	verboseSuffix = "_verbose"
)

// LevelText returns l as f has it. LevelNumber is text here too.
func LevelText(l slog.Level, f levelForm) string {
	switch f {
	case LevelNumber:
		return strconv.Itoa(int(l))
	case LevelLower:
		return strings.ToLower(l.String())
	}
	return l.String()
}

// The escape sequences of the console.
const (
	ColorOff   = "\x1b[0m"
	ColorFaint = "\x1b[2m"
	ColorRed   = "\x1b[31m"
	ColorGreen = "\x1b[32m"
	ColorAmber = "\x1b[33m"
	ColorBlue  = "\x1b[34m"
)
