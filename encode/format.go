package encode

import (
	"fmt"
	"strings"
	"time"
)

// A TimeFormat says how times are written. The zero value is the default of the
// form: [TimeRFC3339Nano] for JSON and logfmt, [TimeClock] for the console.
//
// It can be read from configuration with [TimeFormat.UnmarshalText], and so from
// flags with [flag.TextVar].
type TimeFormat struct {
	kind   timeKind
	layout string
}

type timeKind uint8

const (
	timeDefault timeKind = iota
	timeNano
	timeMicro
	timeMilli
	timeSecond
	timeClock
	timeUnix
	timeUnixMilli
	timeUnixMicro
	timeUnixNano
	timeLayout
)

// The fixed time formats. The RFC 3339 ones have a fixed number of digits, so
// that lines sort by time. The Unix ones are integers, in JSON without quotes.
var (
	TimeRFC3339Nano  = TimeFormat{kind: timeNano}      // 2026-11-20T13:44:10.123456789Z
	TimeRFC3339Micro = TimeFormat{kind: timeMicro}     // 2026-11-20T13:44:10.123456Z
	TimeRFC3339Milli = TimeFormat{kind: timeMilli}     // 2026-11-20T13:44:10.123Z
	TimeRFC3339      = TimeFormat{kind: timeSecond}    // 2026-11-20T13:44:10Z
	TimeClock        = TimeFormat{kind: timeClock}     // 13:44:10.123
	TimeUnix         = TimeFormat{kind: timeUnix}      // seconds since 1970-01-01 UTC
	TimeUnixMilli    = TimeFormat{kind: timeUnixMilli} // milliseconds
	TimeUnixMicro    = TimeFormat{kind: timeUnixMicro} // microseconds
	TimeUnixNano     = TimeFormat{kind: timeUnixNano}  // nanoseconds; beyond int64 too, never wrapped
)

var timeNames = [...]string{
	timeDefault: "", timeNano: "rfc3339nano", timeMicro: "rfc3339micro", timeMilli: "rfc3339milli",
	timeSecond: "rfc3339", timeClock: "clock", timeUnix: "unix", timeUnixMilli: "unixmilli",
	timeUnixMicro: "unixmicro", timeUnixNano: "unixnano",
}

func (f TimeFormat) or(def TimeFormat) TimeFormat {
	if f.kind == timeDefault {
		return def
	}
	return f
}

// TimeLayout returns the format of a layout as [time.Time.Format] takes it. A
// layout in which nothing depends on the time is an error.
func TimeLayout(layout string) (TimeFormat, error) {
	a := time.Date(2001, 2, 3, 4, 5, 6, 789654321, time.UTC)
	b := time.Date(2022, 11, 28, 17, 49, 57, 123456789, time.UTC)
	if a.Format(layout) == b.Format(layout) {
		return TimeFormat{}, fmt.Errorf("encode: cannot use time layout %q: it has no field of a time; "+
			"write it for the reference time, such as %q, or use one of %s", layout, time.DateTime, quoted(timeNames[1:]))
	}
	return TimeFormat{kind: timeLayout, layout: layout}, nil
}

// String returns the format's name, or its layout.
func (f TimeFormat) String() string {
	if f.kind == timeLayout {
		return f.layout
	}
	return timeNames[f.kind]
}

// MarshalText returns what UnmarshalText reads.
func (f TimeFormat) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads a name (rfc3339nano, rfc3339micro, rfc3339milli, rfc3339,
// clock, unix, unixmilli, unixmicro, unixnano; empty: the default) or a layout,
// see [TimeLayout].
func (f *TimeFormat) UnmarshalText(text []byte) error {
	s := string(text)
	for k, name := range timeNames {
		if strings.EqualFold(s, name) {
			*f = TimeFormat{kind: timeKind(k)}
			return nil
		}
	}
	t, err := TimeLayout(s)
	if err == nil {
		*f = t
	}
	return err
}

// A DurationFormat says how durations are written.
type DurationFormat uint8

// The duration formats. Values other than these mean DurationDefault.
const (
	DurationDefault DurationFormat = iota // as slog does: nanoseconds in JSON, text elsewhere
	DurationNanos                         // integer nanoseconds: 1500000000
	DurationText                          // as time.Duration.String: 1.5s
	DurationSeconds                       // seconds, with a fraction where needed: 1.5
)

var durationNames = [...]string{"", "ns", "text", "seconds"}

// String returns the format's name.
func (f DurationFormat) String() string { return name(f, durationNames[:]) }

// MarshalText returns what UnmarshalText reads.
func (f DurationFormat) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads ns, text or seconds; empty is the default.
func (f *DurationFormat) UnmarshalText(text []byte) error {
	return parse(f, "duration format", text, durationNames[:])
}

// A LevelFormat says how levels are written.
type LevelFormat uint8

// The level formats. Values other than these mean LevelDefault.
const (
	LevelDefault LevelFormat = iota // LevelUpper
	LevelUpper                      // as slog does: INFO, WARN+2
	LevelLower                      // info, warn+2
	LevelNumber                     // slog's integer: 0, 6
)

var levelNames = [...]string{"", "upper", "lower", "number"}

// String returns the format's name.
func (f LevelFormat) String() string { return name(f, levelNames[:]) }

// MarshalText returns what UnmarshalText reads.
func (f LevelFormat) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads upper, lower or number; empty is the default.
func (f *LevelFormat) UnmarshalText(text []byte) error {
	return parse(f, "level format", text, levelNames[:])
}

// A CallerFormat says how source positions are written.
type CallerFormat uint8

// The caller formats. Values other than these mean CallerDefault.
const (
	CallerDefault CallerFormat = iota // CallerObject in JSON, CallerFull in logfmt, CallerShort on the console
	CallerObject                      // as slog does in JSON: function, file and line as a group
	CallerFull                        // /path/to/dir/file.go:12
	CallerShort                       // dir/file.go:12
)

var callerNames = [...]string{"", "object", "full", "short"}

// String returns the format's name.
func (f CallerFormat) String() string { return name(f, callerNames[:]) }

// MarshalText returns what UnmarshalText reads.
func (f CallerFormat) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads object, full or short; empty is the default.
func (f *CallerFormat) UnmarshalText(text []byte) error {
	return parse(f, "caller format", text, callerNames[:])
}

// An ErrorFormat says how much of an error is written. In every format the
// attribute itself is the error's message, a string as slog writes it; what
// else there is to say stands beside it, under the attribute's key and a
// suffix, so that the attribute never changes its type.
//
// An error that implements [json.Marshaler] is written by that method in JSON,
// as slog does; none of this applies to it there.
type ErrorFormat uint8

// The error formats. Values other than these mean ErrorDefault.
const (
	ErrorDefault ErrorFormat = iota // ErrorChain

	// ErrorChain adds, where there is one, the chain of wrapped and joined
	// errors as "<key>.chain" and the stack an error of the chain carries as
	// "<key>.stack". The chain leaves out the error itself; each branch of a
	// joined error is a list of its own. The stack is that of the deepest
	// error that carries one; of several, the first. One whose method returns
	// nothing, or panics, carries none. (If no error does but one panicked, what
	// it panicked with is written.)
	//
	// Each error of the chain is asked once for its message, once for what it
	// wraps and at most once for its stack, each time the record is encoded: in a
	// Router that is once per route, however many outputs the route has. An
	// error that is reached by several ways is asked on each of them.
	//
	// An error carries a stack if it has a method Callers() []uintptr, or a
	// method StackTrace() whose result is a string, a slice with elements of
	// kind uintptr, []runtime.Frame or *runtime.Frames.
	ErrorChain

	// ErrorText writes the message only, as slog does.
	ErrorText

	// ErrorVerbose adds what fmt's %+v makes of an error that implements
	// [fmt.Formatter] as "<key>.verbose", and neither chain nor stack.
	ErrorVerbose
)

var errorNames = [...]string{"", "chain", "text", "verbose"}

// String returns the format's name.
func (f ErrorFormat) String() string { return name(f, errorNames[:]) }

// MarshalText returns what UnmarshalText reads.
func (f ErrorFormat) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads chain, text or verbose; empty is the default.
func (f *ErrorFormat) UnmarshalText(text []byte) error {
	return parse(f, "error format", text, errorNames[:])
}

func name[F ~uint8](f F, names []string) string {
	if int(f) < len(names) {
		return names[f]
	}
	return ""
}

func parse[F ~uint8](f *F, what string, text []byte, names []string) error {
	for i, n := range names {
		if strings.EqualFold(string(text), n) {
			*f = F(i)
			return nil
		}
	}
	return fmt.Errorf("encode: cannot use %s %q: it is none of %s", what, text, quoted(names[1:]))
}

func quoted(names []string) string {
	return `"` + strings.Join(names, `", "`) + `"`
}

// or returns f, or def if f is the default or no constant at all.
func or[F ~uint8](f, def F, names []string) F {
	if f == 0 || int(f) >= len(names) {
		return def
	}
	return f
}
