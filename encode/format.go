package encode

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/internal/values"
)

// A TimeFormat says how times are written: one of the constants, or a layout as
// [time.Time.Format] takes it, such as TimeFormat(time.DateTime). Empty means the
// default of the form: [TimeRFC3339Nano] for JSON and logfmt, [TimeClock] for the
// console. So does a text that is neither, for which [TimeFormat.UnmarshalText]
// returns an error.
//
// The RFC 3339 formats have a fixed number of digits, so that lines sort by time.
// The Unix formats are integers, in JSON without quotes.
type TimeFormat string

// The fixed time formats.
const (
	TimeRFC3339Nano  TimeFormat = "rfc3339nano"  // 2026-11-20T13:44:10.123456789Z
	TimeRFC3339Micro TimeFormat = "rfc3339micro" // 2026-11-20T13:44:10.123456Z
	TimeRFC3339Milli TimeFormat = "rfc3339milli" // 2026-11-20T13:44:10.123Z
	TimeRFC3339      TimeFormat = "rfc3339"      // 2026-11-20T13:44:10Z
	TimeClock        TimeFormat = "clock"        // 13:44:10.123
	TimeUnix         TimeFormat = "unix"         // seconds since 1970-01-01 UTC
	TimeUnixMilli    TimeFormat = "unixmilli"    // milliseconds
	TimeUnixMicro    TimeFormat = "unixmicro"    // microseconds
	TimeUnixNano     TimeFormat = "unixnano"     // nanoseconds; beyond int64 too, never wrapped
)

var timeNames = [...]string{
	values.TimeNano: string(TimeRFC3339Nano), values.TimeMicro: string(TimeRFC3339Micro), values.TimeMilli: string(TimeRFC3339Milli),
	values.TimeSecond: string(TimeRFC3339), values.TimeClock: string(TimeClock), values.TimeUnix: string(TimeUnix), values.TimeUnixMilli: string(TimeUnixMilli),
	values.TimeUnixMicro: string(TimeUnixMicro), values.TimeUnixNano: string(TimeUnixNano),
}

// UnmarshalText reads the text of a constant, in capitals or not, or a layout. A
// layout in which nothing depends on the time is an error. Empty is the default.
func (f *TimeFormat) UnmarshalText(text []byte) error {
	s := string(text)
	if at := indexOf(s, timeNames[:]); at >= 0 {
		*f = TimeFormat(timeNames[at])
		return nil
	}
	if s != "" && !isLayout(s) {
		return fmt.Errorf("encode: cannot use time layout %q: it has no field of a time; "+
			"write it for the reference time, such as %q, or use one of %s", s, time.DateTime, quoted(timeNames[:]))
	}
	*f = TimeFormat(s)
	return nil
}

// isLayout reports whether times look different in that layout.
func isLayout(layout string) bool {
	a := time.Date(2001, 2, 3, 4, 5, 6, 789654321, time.UTC)
	b := time.Date(2022, 11, 28, 17, 49, 57, 123456789, time.UTC)
	return a.Format(layout) != b.Format(layout)
}

// spec returns how times of that format are written at loc.
func (f TimeFormat) spec(def values.TimeKind, loc *time.Location) values.TimeSpec {
	switch at := indexOf(string(f), timeNames[:]); {
	case at >= 0:
		return values.TimeSpec{Kind: values.TimeKind(at), Loc: loc}
	case isLayout(string(f)):
		return values.TimeSpec{Kind: values.TimeLayout, Layout: string(f), Loc: loc}
	}
	return values.TimeSpec{Kind: def, Loc: loc}
}

// A DurationFormat says how durations are written. Empty, or a text that is none of
// the constants, means as slog does: nanoseconds in JSON, text elsewhere.
type DurationFormat string

// The duration formats.
const (
	DurationNanos   DurationFormat = "ns"      // integer nanoseconds: 1500000000
	DurationText    DurationFormat = "text"    // as time.Duration.String: 1.5s
	DurationSeconds DurationFormat = "seconds" // seconds, with a fraction where needed: 1.5
)

var durationNames = []string{
	values.DurationNanos: string(DurationNanos), values.DurationText: string(DurationText), values.DurationSeconds: string(DurationSeconds),
}

// UnmarshalText reads ns, text or seconds; empty is the default.
func (f *DurationFormat) UnmarshalText(text []byte) error {
	return parse(f, "duration format", text, durationNames)
}

// A LevelFormat says how levels are written. Empty, "upper", or a text that is none of
// the constants, means as slog does: INFO, WARN+2.
type LevelFormat string

// The other level formats.
const (
	LevelLower  LevelFormat = "lower"  // info, warn+2
	LevelNumber LevelFormat = "number" // slog's integer: 0, 6
)

var levelNames = []string{values.LevelUpper: "upper", values.LevelLower: string(LevelLower), values.LevelNumber: string(LevelNumber)}

// UnmarshalText reads upper, lower or number; empty is the default.
func (f *LevelFormat) UnmarshalText(text []byte) error {
	return parse(f, "level format", text, levelNames)
}

// A CallerFormat says how source positions are written. Empty, or a text that is none
// of the constants, means CallerObject in JSON, CallerFull in logfmt and CallerShort on
// the console.
type CallerFormat string

// The caller formats.
const (
	CallerObject CallerFormat = "object" // as slog does in JSON: function, file and line as a group
	CallerFull   CallerFormat = "full"   // /path/to/dir/file.go:12
	CallerShort  CallerFormat = "short"  // dir/file.go:12
)

var callerNames = []string{values.CallerObject: string(CallerObject), values.CallerFull: string(CallerFull), values.CallerShort: string(CallerShort)}

// UnmarshalText reads object, full or short; empty is the default.
func (f *CallerFormat) UnmarshalText(text []byte) error {
	return parse(f, "caller format", text, callerNames)
}

// An ErrorFormat says how much of an error is written. In every format the
// attribute itself is the error's message, a string as slog writes it; what
// else there is to say stands beside it, under the attribute's key and a
// suffix, so that the attribute never changes its type.
//
// An error that implements [json.Marshaler] is written by that method in JSON,
// as slog does; none of this applies to it there.
//
// Empty, "chain", or a text that is none of the constants, adds, where there is one,
// the chain of wrapped and joined errors as "<key>.chain" and the stack an error of the
// chain carries as "<key>.stack". The chain leaves out the error itself; each branch of
// a joined error is a list of its own. The stack is that of the deepest error that
// carries one; of several, the first. One whose method returns nothing, or panics,
// carries none. (If no error does but one panicked, what it panicked with is written.)
//
// Each error of the chain is asked once for its message, once for what it wraps and at
// most once for its stack, each time the record is encoded: in a Router that is once per
// route, however many outputs the route has. An error that is reached by several ways
// is asked on each of them.
//
// An error carries a stack if it has a method Callers() []uintptr, or a method
// StackTrace() whose result is a string, a slice with elements of kind uintptr,
// []runtime.Frame or *runtime.Frames.
type ErrorFormat string

// The other error formats.
const (
	// ErrorText writes the message only, as slog does.
	ErrorText ErrorFormat = "text"

	// ErrorVerbose adds what fmt's %+v makes of an error that implements
	// [fmt.Formatter] as "<key>.verbose", and neither chain nor stack.
	ErrorVerbose ErrorFormat = "verbose"
)

var errorNames = []string{values.ErrorChain: "chain", values.ErrorText: string(ErrorText), values.ErrorVerbose: string(ErrorVerbose)}

// UnmarshalText reads chain, text or verbose; empty is the default.
func (f *ErrorFormat) UnmarshalText(text []byte) error {
	return parse(f, "error format", text, errorNames)
}

func parse[F ~string](f *F, what string, text []byte, names []string) error {
	at := indexOf(string(text), names)
	switch {
	case at >= 0:
		*f = F(names[at])
	case len(text) == 0:
		*f = ""
	default:
		return fmt.Errorf("encode: cannot use %s %q: it is none of %s", what, text, quoted(names))
	}
	return nil
}

// indexOf returns the index of name, or -1.
func indexOf(name string, names []string) int {
	return slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

func quoted(names []string) string {
	return `"` + strings.Join(names, `", "`) + `"`
}

// choice returns the choice that f names, or def.
func choice[F ~string, C ~uint8](f F, def C, names []string) C {
	if at := indexOf(string(f), names); at >= 0 {
		return C(at)
	}
	return def
}
