package encode

import (
	"log/slog"
	"time"
)

// Options are the options of [JSON], [Logfmt] and [Console]. The zero value writes
// JSON as [slog.JSONHandler] does and logfmt as [slog.TextHandler] does, except where
// that is not valid or not useful: see there.
//
// The formats are texts, in capitals or not. A text that names no format means the
// default, and forebay.NewRouter returns it as an error.
type Options struct {
	// Time is the format of all times, also within structs, maps and lists: a layout as [time.Time.Format] takes it,
	// such as [time.DateTime], or one of
	//
	//	rfc3339nano   2026-11-20T13:44:10.123456789Z
	//	rfc3339micro  2026-11-20T13:44:10.123456Z
	//	rfc3339milli  2026-11-20T13:44:10.123Z
	//	rfc3339       2026-11-20T13:44:10Z
	//	clock         13:44:10.123
	//	unix          seconds since 1970-01-01 UTC
	//	unixmilli     milliseconds
	//	unixmicro     microseconds
	//	unixnano      nanoseconds, also beyond the range of an int64
	//
	// The RFC 3339 formats have a fixed number of digits, so that lines sort by time.
	// The Unix formats are integers, in JSON without quotes. Default: rfc3339nano;
	// on the console clock.
	Time string
	// Location is the time zone of all times. Default: UTC; on the console local time.
	Location *time.Location
	// OwnLocation leaves each time in its own location, as slog does.
	// Location is then ignored. Default: false.
	OwnLocation bool
	// Duration is the format of all durations: ns (1500000000), text (1.5s) or seconds
	// (1.5). Default, as in slog: ns in JSON, elsewhere text.
	Duration string
	// Level is the format of levels: upper (INFO, WARN+2), lower (info, warn+2) or
	// number (0, 6). Default: upper.
	Level string
	// AddSource adds the source position of the log call. Default: false.
	AddSource bool
	// Caller is the format of source positions: object (function, file and line as a
	// group, as slog does in JSON), full (/path/to/dir/file.go:12) or short
	// (dir/file.go:12). The console writes object as full. Default: object in JSON,
	// full in logfmt, short on the console.
	Caller string

	// Errors says how much of an error is written: text, chain or verbose. The
	// attribute itself is always the message of the error, a string as slog writes
	// it. Whatever is added stands beside it, in the same group, under the key of the
	// attribute and a suffix. So the attribute never changes its type, and no key
	// continues that of a string with a dot, which Elasticsearch would refuse.
	//
	//   - text adds nothing, as slog does.
	//   - chain adds the wrapped and joined errors as "<key>_chain", and the stack of
	//     an error in the chain as "<key>_stack". The console writes a stack of calls
	//     on lines of its own.
	//   - verbose adds the %+v of an error that implements [fmt.Formatter] as
	//     "<key>_verbose".
	//
	// An error that is a [slog.LogValuer] or an [AttrAppender] is what these say. Other
	// methods, such as MarshalJSON, do not count.
	//
	// The chain leaves out the error itself. Each branch of a joined error is a list
	// of its own. An error carries a stack if it has a method Callers() []uintptr, or
	// a method StackTrace() whose result is a string, a slice with elements of kind
	// uintptr, []runtime.Frame or *runtime.Frames. A method that returns nothing, or
	// panics, brings no stack. Of several stacks the deepest is written; of several
	// at that depth, the first. If no error brings a stack but a method panicked, the
	// panic is written instead.
	//
	// Each error of the chain is asked once for its message, once for the errors it
	// wraps and at most once for its stack, each time a record is encoded. A Router
	// encodes a record once for each route, however many outputs the route has. An
	// error that is reached in several ways is asked on each of them. Default: text.
	Errors string

	// TimeKey, LevelKey, MessageKey and SourceKey are the keys of the built-in
	// attributes. "-" leaves the attribute out. They should differ from each other;
	// nothing checks this. The console writes no keys and always the message; there
	// "-" leaves out the time, the level or the source. Default: time, level, msg
	// and source.
	TimeKey, LevelKey, MessageKey, SourceKey string

	// Color allows the console escape sequences for colours. It should be set only
	// for a terminal: see [ColorTerminal]. Default: false.
	Color bool

	// ReplaceAttr rewrites or removes attributes of this encoder; secrets are kept out of
	// all outputs by forebay.RedactKeys and the options beside it. It is called with the
	// arguments and at the time that [slog.HandlerOptions] states. The built-in attributes come under the keys
	// above; on the console they keep their places under any key. ReplaceAttr is
	// not offered the chain of an error, nor the fields of structs and the members of
	// maps. It is offered the attributes of an [AttrAppender] like the members of a group, and
	// the attributes of LogValuers and AttrAppenders within other values like members of the
	// group around the attribute. It may be called from several goroutines at once. If it
	// panics, the value of the attribute is replaced by the text of the panic.
	// Default: nil, attributes are unchanged.
	ReplaceAttr func(groups []string, a slog.Attr) slog.Attr
}
