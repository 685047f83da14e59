package forebay

import (
	"context"
	"log/slog"
	"runtime"

	"github.com/forebay-log/forebay/internal/wallclock"
)

// A Logger is the shortest way into a [Router]: records with typed attributes, no
// context, no allocation. It is immutable and safe for concurrent use. A nil
// Logger discards everything, and so does the zero value.
//
// It is made by [Router.Logger]; [Logger.Slog] turns it into a *slog.Logger with
// the same attributes and groups.
type Logger struct {
	h     handler
	floor *slog.LevelVar // as in core: what is below, no output takes
}

// Debug logs at slog.LevelDebug. attrs may be reused after the call.
func (l *Logger) Debug(msg string, attrs ...slog.Attr) {
	if l.may(slog.LevelDebug) {
		l.log(slog.LevelDebug, msg, attrs)
	}
}

// Info logs at slog.LevelInfo. attrs may be reused after the call.
func (l *Logger) Info(msg string, attrs ...slog.Attr) {
	if l.may(slog.LevelInfo) {
		l.log(slog.LevelInfo, msg, attrs)
	}
}

// Warn logs at slog.LevelWarn. attrs may be reused after the call.
func (l *Logger) Warn(msg string, attrs ...slog.Attr) {
	if l.may(slog.LevelWarn) {
		l.log(slog.LevelWarn, msg, attrs)
	}
}

// Error logs at slog.LevelError. attrs may be reused after the call.
func (l *Logger) Error(msg string, attrs ...slog.Attr) {
	if l.may(slog.LevelError) {
		l.log(slog.LevelError, msg, attrs)
	}
}

// Log logs at any level. attrs may be reused after the call.
func (l *Logger) Log(level slog.Level, msg string, attrs ...slog.Attr) {
	if l.may(level) {
		l.log(level, msg, attrs)
	}
}

// may quickly turns away most calls at a disabled level.
func (l *Logger) may(level slog.Level) bool {
	return l != nil && l.floor != nil && level >= l.floor.Level()
}

// Enabled reports whether any output takes records of that level.
func (l *Logger) Enabled(level slog.Level) bool { return l.may(level) && l.h.enabled(level) }

// With returns a Logger that adds attrs, encoded now, to every record.
func (l *Logger) With(attrs ...slog.Attr) *Logger {
	if l == nil || len(attrs) == 0 {
		return l
	}
	// A copy: an encoder may keep the slice it is given.
	return &Logger{h: l.h.withAttrs(append([]slog.Attr(nil), attrs...)), floor: l.floor}
}

// WithGroup returns a Logger that puts all later attributes into a group.
func (l *Logger) WithGroup(name string) *Logger {
	if l == nil || name == "" {
		return l
	}
	return &Logger{h: l.h.withGroup(name), floor: l.floor}
}

// WithContext returns a Logger that adds the attributes that ctx carries
// (see [Context]), asked for and encoded now, to every record.
func (l *Logger) WithContext(ctx context.Context) *Logger {
	if l == nil || l.h.core == nil || len(l.h.core.contexts) == 0 {
		return l
	}
	s := l.h.core.pool.get()
	defer l.h.core.pool.put(s)
	l.h.core.addContext(ctx, s)
	return l.With(s.attrs...)
}

// Slog returns a *slog.Logger with the attributes and groups of l.
func (l *Logger) Slog() *slog.Logger {
	if l == nil || l.h.core == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(&l.h)
}

// log is behind every method that logs, so that the caller is two frames up.
func (l *Logger) log(level slog.Level, msg string, attrs []slog.Attr) {
	c := l.h.core
	if !c.exact && !l.h.enabled(level) {
		return
	}
	if c.closed.Load() {
		c.refused.Add(1)
		return
	}
	s := c.pool.get()
	s.rec.Time = wallclock.Now()
	s.rec.Level = level
	s.rec.Message = msg
	s.rec.PC = 0
	if c.needsPC {
		s.rec.PC = callerPC()
	}
	// A copy, so that the caller's slice need not be on the heap.
	s.attrs = append(s.attrs, attrs...)
	s.rec.Attrs = s.attrs
	l.h.emit(s)
	c.pool.put(s)
}

// callerPC returns where the method was called that called log.
func callerPC() uintptr {
	var pcs [1]uintptr
	runtime.Callers(4, pcs[:])
	return pcs[0]
}
