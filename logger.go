package forebay

import (
	"context"
	"log/slog"

	"github.com/forebay-log/forebay/internal/wallclock"
)

// A Logger logs records with typed attributes to the outputs of a [Router], without
// allocating. It is immutable and safe for concurrent use. A nil Logger and the zero value
// discard all records.
//
// [New] and [Router.Logger] return a Logger. [Logger.Slog] converts it to a *slog.Logger with
// the same name, attributes and groups.
type Logger struct {
	h handler
}

// Debug logs at slog.LevelDebug. The caller may reuse attrs after the call.
func (l *Logger) Debug(msg string, attrs ...slog.Attr) {
	if l.mayAccept(slog.LevelDebug) {
		l.log(slog.LevelDebug, msg, attrs, nil)
	}
}

// Info logs at slog.LevelInfo. The caller may reuse attrs after the call.
func (l *Logger) Info(msg string, attrs ...slog.Attr) {
	if l.mayAccept(slog.LevelInfo) {
		l.log(slog.LevelInfo, msg, attrs, nil)
	}
}

// Warn logs at slog.LevelWarn. The caller may reuse attrs after the call.
func (l *Logger) Warn(msg string, attrs ...slog.Attr) {
	if l.mayAccept(slog.LevelWarn) {
		l.log(slog.LevelWarn, msg, attrs, nil)
	}
}

// Error logs at slog.LevelError. The caller may reuse attrs after the call.
func (l *Logger) Error(msg string, attrs ...slog.Attr) {
	if l.mayAccept(slog.LevelError) {
		l.log(slog.LevelError, msg, attrs, nil)
	}
}

// Log logs at the given level. The caller may reuse attrs after the call.
func (l *Logger) Log(level slog.Level, msg string, attrs ...slog.Attr) {
	if l.mayAccept(level) {
		l.log(level, msg, attrs, nil)
	}
}

// DebugContext is like Debug and adds the attributes of ctx; see [Context].
func (l *Logger) DebugContext(ctx context.Context, msg string, attrs ...slog.Attr) {
	if l.mayAccept(slog.LevelDebug) {
		l.log(slog.LevelDebug, msg, attrs, ctx)
	}
}

// InfoContext is like Info and adds the attributes of ctx; see [Context].
func (l *Logger) InfoContext(ctx context.Context, msg string, attrs ...slog.Attr) {
	if l.mayAccept(slog.LevelInfo) {
		l.log(slog.LevelInfo, msg, attrs, ctx)
	}
}

// WarnContext is like Warn and adds the attributes of ctx; see [Context].
func (l *Logger) WarnContext(ctx context.Context, msg string, attrs ...slog.Attr) {
	if l.mayAccept(slog.LevelWarn) {
		l.log(slog.LevelWarn, msg, attrs, ctx)
	}
}

// ErrorContext is like Error and adds the attributes of ctx; see [Context].
func (l *Logger) ErrorContext(ctx context.Context, msg string, attrs ...slog.Attr) {
	if l.mayAccept(slog.LevelError) {
		l.log(slog.LevelError, msg, attrs, ctx)
	}
}

// LogContext is like Log and adds the attributes of ctx; see [Context].
func (l *Logger) LogContext(ctx context.Context, level slog.Level, msg string, attrs ...slog.Attr) {
	if l.mayAccept(level) {
		l.log(level, msg, attrs, ctx)
	}
}

// mayAccept reports whether any output may accept a record of the level. It needs only one atomic
// load, because most calls at a disabled level end here.
func (l *Logger) mayAccept(level slog.Level) bool {
	return l != nil && l.h.levels != nil && level >= l.h.levels.floor.Level()
}

// Enabled reports whether any output accepts records of the given level.
func (l *Logger) Enabled(level slog.Level) bool { return l.mayAccept(level) && l.h.enabled(level) }

// With returns a Logger that adds attrs to every record. The attributes are encoded by With.
func (l *Logger) With(attrs ...slog.Attr) *Logger {
	if l == nil || l.h.core == nil || len(attrs) == 0 {
		return l
	}
	// attrs is copied, because an encoder may retain the slice.
	return &Logger{l.h.withAttrs(append([]slog.Attr(nil), attrs...))}
}

// WithGroup returns a Logger that puts all attributes added later into the named group.
func (l *Logger) WithGroup(name string) *Logger {
	if l == nil || l.h.core == nil || name == "" {
		return l
	}
	return &Logger{l.h.withGroup(name)}
}

// WithContext returns a Logger that adds the attributes of ctx to every record; see [Context]. It
// calls the functions given with that option once. The attributes are outside all groups.
func (l *Logger) WithContext(ctx context.Context) *Logger {
	if l == nil || l.h.core == nil || len(l.h.core.contexts) == 0 {
		return l
	}
	s := l.h.core.pool.get()
	defer l.h.core.pool.put(s)
	l.h.core.addContext(ctx, s)
	return &Logger{l.h.withTop(s.attrs)}
}

// loggerKey is the key of the attribute that contains the name given to [Logger.Named].
const loggerKey = "logger"

// Named returns a Logger whose records have the attribute "logger" with the given name, and whose
// level can be set by name at run time; see [Router.SetLevel]. Calling Named on a named Logger
// appends to the name: log.Named("db").Named("pool") is log.Named("db.pool"). The name "db.pool"
// inherits the level of "db" until a level is set for "db.pool".
//
// Names are retained for the lifetime of the Router. They should be constants, not taken from
// input.
func (l *Logger) Named(name string) *Logger {
	if l == nil || l.h.core == nil || name == "" {
		return l
	}
	n := l.h
	if n.levels.name != "" {
		name = n.levels.name + "." + name
	}
	n.levels = n.core.names.get(name)
	attr := slog.String(loggerKey, name)
	if len(n.top) > 0 && n.top[0].Key == loggerKey && l.h.levels.name != "" {
		n.top = append([]slog.Attr{attr}, n.top[1:]...)
	} else {
		n.top = append([]slog.Attr{attr}, n.top...)
	}
	return &Logger{n}
}

// WithCallerSkip returns a Logger for helper functions. The source position of its records is n
// callers further up the stack. This also applies to the result of [Logger.Slog].
func (l *Logger) WithCallerSkip(n int) *Logger {
	if l == nil || l.h.core == nil || n == 0 {
		return l
	}
	h := l.h
	h.skip += n
	return &Logger{h}
}

// Slog returns a *slog.Logger with the outputs, name, attributes and groups of l.
func (l *Logger) Slog() *slog.Logger {
	if l == nil || l.h.core == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(&l.h)
}

// log implements all logging methods. These methods must call log directly, because callerPC
// skips a fixed number of stack frames. ctx is nil for methods without a context.
func (l *Logger) log(level slog.Level, msg string, attrs []slog.Attr, ctx context.Context) {
	c := l.h.core
	if !c.exact && !l.h.enabled(level) {
		return
	}
	if c.closed.Load() {
		c.refuse()
		return
	}
	s := c.pool.get()
	s.rec.Time = wallclock.Now()
	s.rec.Level = level
	s.rec.Message = msg
	s.rec.PC = 0
	if c.needsPC {
		s.rec.PC = callerPC(l.h.skip)
	}
	if len(c.samples) > 0 && !l.h.passSampling(s) {
		c.pool.put(s)
		return
	}
	// attrs is copied into s, because storing attrs itself would move the caller's slice to the
	// heap.
	if len(l.h.top) > 0 || len(s.attrs) > 0 || ctx != nil && len(c.contexts) > 0 {
		l.logTop(ctx, s, attrs)
		return
	}
	s.attrs = append(s.attrs, attrs...)
	s.ownLevel = l.h.levels.own.Level()
	s.rec.Attrs = s.attrs
	l.h.emit(s)
	c.pool.put(s)
	if level >= c.syncLevel {
		c.sync()
	}
}

// logTop implements log for a record with attributes outside all groups. The record is logged even
// if a Context function calls runtime.Goexit.
func (l *Logger) logTop(ctx context.Context, s *scratch, attrs []slog.Attr) {
	s.attrs = append(s.attrs, l.h.top...)
	defer func() {
		top := len(s.attrs)
		s.attrs = append(s.attrs, attrs...)
		l.h.send(s, top)
		level := s.rec.Level
		l.h.core.pool.put(s)
		if level >= l.h.core.syncLevel {
			l.h.core.sync()
		}
	}()
	if ctx != nil {
		l.h.core.addContext(ctx, s)
	}
}

// Logger returns a Logger that logs to r.
func (r *Router) Logger() *Logger {
	if r.core() == nil {
		return nil
	}
	return &Logger{h: r.h}
}
