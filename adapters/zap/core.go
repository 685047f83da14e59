// Package forebayzap sends what a zap.Logger logs to the outputs of a forebay.Logger, as
// records and not as bytes.
//
//	logger := zap.New(forebayzap.New(log), zap.AddCaller())
//
// Levels, redaction, attributes and forms are those of the forebay.Logger.
package forebayzap

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/internal/values"
)

const (
	// syncTimeout bounds Sync.
	syncTimeout = 5 * time.Second

	// lastTimeout bounds the wait for an entry after which zap may end the program. It
	// is that of forebay.SyncLevel.
	lastTimeout = 250 * time.Millisecond
)

// above is the level of all zap levels above zapcore.ErrorLevel.
const above = slog.LevelError + 4

// New returns a zapcore.Core that logs to log, with the levels of log and of its outputs.
//
//   - Fields become attributes of the same type, objects and namespaces groups, arrays
//     lists. A field made by zap.Error is the error itself, and is written in the form of
//     the outputs: see encode.Options.
//   - zap.DebugLevel, InfoLevel, WarnLevel and ErrorLevel are those of slog. Levels above
//     are slog.LevelError+4, and the call waits until the entry is delivered, at most
//     250 ms, since zap may then end the program.
//   - zap's name of a logger is that of forebay.Logger.Named, so forebay.Router.SetLevel
//     holds for it. zapcore.Core.Enabled, which is not told the name, answers for all
//     names; Check for the one.
//   - The caller of zap.AddCaller is the attribute "caller", such as dir/file.go:12. If an
//     output has AddSource, it is instead the source position of the record, in the form
//     of that output. The stack of zap.AddStacktrace is the attribute "stack". Both are
//     outside of all namespaces.
//   - A panic in a method of a value, such as MarshalLogObject, becomes the text of the
//     value, "!PANIC: …".
//   - Sync waits until everything is delivered, at most 5 s. It does not close log.
//   - What an output cannot take is counted and told by the forebay.Router. zap is not
//     told.
//
// A nil log discards everything.
func New(log *forebay.Logger) zapcore.Core {
	if log.Router() == nil {
		return zapcore.NewNopCore()
	}
	return newCore(log)
}

// callerKey and stackKey are the keys that zap's own configurations use, or nearly.
const (
	callerKey = "caller"
	stackKey  = "stack"
)

// A router is the handler of a Logger.
type router interface {
	slog.Handler
	EnabledForAny(slog.Level) bool
	NeedsPC() bool
	HandleTop(ctx context.Context, rec slog.Record, top ...slog.Attr) error
}

// core is a Logger with the attributes of With. It is immutable but for its cache.
type core struct {
	log     *forebay.Logger
	handler router   // of log
	named   sync.Map // handlers of log.Named, by the name that zap gives
}

func newCore(log *forebay.Logger) *core {
	return &core{log: log, handler: log.Slog().Handler().(router)}
}

// handlerOf returns the handler for a logger of that name.
func (c *core) handlerOf(name string) router {
	if name == "" {
		return c.handler
	}
	if h, ok := c.named.Load(name); ok {
		return h.(router)
	}
	h, _ := c.named.LoadOrStore(name, c.log.Named(name).Slog().Handler())
	return h.(router)
}

func levelOf(l zapcore.Level) slog.Level {
	if l > zapcore.ErrorLevel {
		return above
	}
	return slog.Level(l) * 4
}

// Enabled reports whether a logger of any name takes entries of that level.
func (c *core) Enabled(l zapcore.Level) bool {
	return c.handler.EnabledForAny(levelOf(l))
}

// Level is the answer of zapcore.LevelOf for a logger without a name.
func (c *core) Level() zapcore.Level {
	for l := zapcore.DebugLevel; l <= zapcore.FatalLevel; l++ {
		if c.handler.Enabled(context.Background(), levelOf(l)) {
			return l
		}
	}
	return zapcore.InvalidLevel
}

// With adds fields to all entries. Those behind a zap.Namespace lie in its group.
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	var o object
	o.add(fields)
	log := c.log
	from := 0
	for _, s := range o.spaces {
		log = log.With(o.attrs[from:s.from]...).WithGroup(s.key)
		from = s.from
	}
	return newCore(log.With(o.attrs[from:]...))
}

// Check adds c to ce if an output takes the entry.
func (c *core) Check(ent zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.handlerOf(ent.LoggerName).Enabled(context.Background(), levelOf(ent.Level)) {
		return ce.AddCore(ent, c)
	}
	return ce
}

var objects = sync.Pool{New: func() any { return new(object) }}

// Write logs the entry. Its error is always nil.
func (c *core) Write(ent zapcore.Entry, fields []zapcore.Field) error {
	rec := slog.NewRecord(ent.Time, levelOf(ent.Level), ent.Message, 0)
	if ent.Caller.Defined && ent.Caller.PC != 0 {
		rec.PC = ent.Caller.PC + 1 // zap has the call's, slog where it returns to
	}
	o := objects.Get().(*object)
	o.add(fields)
	rec.AddAttrs(o.group()...)
	h := c.handlerOf(ent.LoggerName)
	top := o.top[:0]
	switch {
	case !ent.Caller.Defined || h.NeedsPC():
	case rec.PC != 0:
		top = append(top, slog.String(callerKey, values.FrameOf(rec.PC).Short))
	default:
		top = append(top, slog.String(callerKey, ent.Caller.TrimmedPath()))
	}
	if ent.Stack != "" {
		top = append(top, slog.String(stackKey, ent.Stack))
	}
	_ = h.HandleTop(context.Background(), rec, top...)
	o.reset()
	objects.Put(o)
	if ent.Level > zapcore.ErrorLevel {
		_ = c.flush(lastTimeout)
	}
	return nil
}

// Sync waits until what was logged is delivered.
func (c *core) Sync() error { return c.flush(syncTimeout) }

func (c *core) flush(d time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return c.log.Router().Flush(ctx)
}
