package encode

import (
	"log/slog"
	"time"
)

// Options configures [JSON], [Logfmt] and [Console]. With the zero value, JSON has the format of
// [slog.JSONHandler], and logfmt has the format of [slog.TextHandler]. The few differences are
// documented at JSON and Logfmt.
//
// Format names are not case-sensitive. An unknown name selects the default, and
// forebay.NewRouter returns an error for it.
type Options struct {
	// Time is the format of all times, including those within structs, maps and lists: a
	// layout of [time.Time.Format], such as [time.DateTime], or one of
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
	// The RFC 3339 formats have a fixed number of digits, so that lines sort by time. The
	// Unix formats are integers, without quotes in JSON. Default: rfc3339nano; for Console
	// clock.
	Time string
	// Location is the time zone of all times. Default: UTC; for Console local time.
	Location *time.Location
	// OwnLocation keeps the location of each time, as slog does, and ignores Location.
	// Default: false.
	OwnLocation bool
	// Duration is the format of all durations: ns (1500000000), text (1.5s) or seconds
	// (1.5). Default: the format set with forebay.Durations, or ns, as in slog's JSON; for
	// Console text.
	Duration string
	// Level is the format of levels: upper (INFO, WARN+2), lower (info, warn+2) or
	// number (0, 6). Default: upper.
	Level string
	// AddSource adds the source position of the log call. Default: false.
	AddSource bool
	// Caller is the format of source positions: object (a group of function, file and
	// line, as in slog's JSON), full (/path/to/dir/file.go:12) or short (dir/file.go:12).
	// Console writes object as full. Default: object in JSON, full in logfmt, short for
	// Console.
	Caller string

	// Errors is the amount of detail written for an error: text, chain or verbose. The
	// attribute itself is always the message of the error, a string as in slog. Additional
	// details are separate attributes in the same group, with the key of the attribute and
	// a suffix. The attribute therefore never changes its type, and there is never
	// a key err.x next to a string err, which Elasticsearch would reject.
	//
	//   - text adds nothing, as in slog.
	//   - chain adds the wrapped and joined errors as "<key>_chain", and the stack of an
	//     error in the chain as "<key>_stack". Console writes a stack of calls on separate
	//     lines.
	//   - verbose adds the %+v of an error that implements [fmt.Formatter] as
	//     "<key>_verbose".
	//
	// An error that is a [slog.LogValuer] or an [AttrAppender] is written as the result of
	// that method. Other methods, such as MarshalJSON, are ignored.
	//
	// The chain does not include the error itself. Each branch of a joined error is a
	// separate list. An error has a stack if it has a method Callers() []uintptr, or a
	// method StackTrace() whose result is a string, a slice with elements of kind uintptr,
	// []runtime.Frame or *runtime.Frames. If the method returns nothing or panics, there is
	// no stack. If several errors have a stack, that of the innermost error in the chain is
	// written; at equal depth, the first. If no error provides a stack but a method
	// panicked, the panic is written instead.
	//
	// Each time a record is encoded, each error in the chain is asked once for its
	// message, once for the errors it wraps, and at most once for its stack. A Router
	// encodes a record once per route, independent of the number of outputs. The methods
	// of an error that is reachable on several paths are called once for each path.
	// Default: text.
	Errors string

	// TimeKey, LevelKey, MessageKey and SourceKey are the keys of the built-in attributes.
	// "-" omits the attribute. The keys should be distinct, which is not checked. Console
	// writes no keys and always writes the message; there "-" omits the time, the level or
	// the source. Default: time, level, msg and source.
	TimeKey, LevelKey, MessageKey, SourceKey string

	// Color enables escape sequences for colors in Console. Set it only for a terminal, see
	// [ColorTerminal]. Default: false.
	Color bool

	// ReplaceAttr rewrites or removes attributes for this encoder. To remove secrets from all
	// outputs, use forebay.RedactKeys and related options. ReplaceAttr has the arguments and the
	// rules of [slog.HandlerOptions]. The built-in attributes have the keys above; in Console their
	// positions on the line do not depend on the keys. The attributes of an [AttrAppender] are
	// passed to ReplaceAttr like the members of a group. If a LogValuer or AttrAppender is part of
	// another value, its attributes are passed like members of the enclosing group. ReplaceAttr is
	// not called for the chain of an error, the fields of structs and the members of maps. It may
	// be called from multiple goroutines concurrently. If it panics, the value of the attribute is
	// replaced by the text of the panic. Default: nil, attributes are unchanged.
	ReplaceAttr func(groups []string, a slog.Attr) slog.Attr
}
