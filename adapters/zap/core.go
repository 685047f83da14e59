// Package forebayzap sends the entries of a zap.Logger to the outputs of a forebay.Logger, as
// records with typed attributes.
//
//	logger := zap.New(forebayzap.New(log), zap.AddCaller())
//
//	zap.Logger ─▶ zapcore.Core ─▶ forebay.Logger ─▶ outputs
//
// Levels, redaction, attributes and formats are determined by the forebay.Logger.
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
	// syncTimeout limits how long Sync waits.
	syncTimeout = 5 * time.Second

	// lastTimeout limits how long zap is delayed by an entry after which it may exit the program.
	// It equals the limit of forebay.SyncLevel.
	lastTimeout = 250 * time.Millisecond
)

// above is the slog level of the zap levels above zapcore.ErrorLevel: DPanic, Panic and Fatal.
const above = slog.LevelError + 4

// New returns a zapcore.Core that passes entries to the given Logger. The levels of the Logger and
// its outputs apply.
//
//   - Fields become attributes of the same type, objects and namespaces become groups, and arrays
//     become lists. A field added by zap.Error keeps the error value, and each output formats it;
//     see encode.Options.
//   - zap.DebugLevel, InfoLevel, WarnLevel and ErrorLevel are the levels of slog. Higher levels
//     become slog.LevelError+4. Such a call waits until the entry is delivered, at most 250 ms,
//     because zap may then exit the program.
//   - The name of a zap logger works like a name given to forebay.Logger.Named, so
//     forebay.Router.SetLevel applies to it. zapcore.Core.Enabled does not receive the name, so it
//     returns true if a logger of any name is enabled. Check uses the level set for the name.
//   - The caller of zap.AddCaller is the attribute "caller", such as dir/file.go:12. If an output
//     has AddSource, it is the source position of the record instead, in the format of that output.
//     The stack of zap.AddStacktrace is the attribute "stack". Caller and stack are outside all
//     namespaces.
//   - If a method of a value, such as MarshalLogObject, panics, the text "!PANIC: …" replaces the
//     value.
//   - Sync waits until all entries are delivered, at most 5 s. It does not close the Logger.
//   - Errors of outputs are counted and reported by the forebay.Router, not returned to zap.
//
// The Core is safe for concurrent use. A nil Logger discards all entries.
func New(log *forebay.Logger) zapcore.Core {
	if log.Router() == nil {
		return zapcore.NewNopCore()
	}
	return newCore(log)
}

// callerKey and stackKey are attribute keys. zap's standard configurations use similar ones.
const (
	callerKey = "caller"
	stackKey  = "stack"
)

// A router is the handler of a forebay.Logger, with the methods that it has in addition to
// slog.Handler.
type router interface {
	slog.Handler
	// EnabledForAny reports whether a logger of any name is enabled at a level.
	EnabledForAny(slog.Level) bool
	// NeedsPC reports whether an output writes the source position itself.
	NeedsPC() bool
	// HandleTop is like Handle, but also adds attributes outside of all groups.
	HandleTop(ctx context.Context, rec slog.Record, top ...slog.Attr) error
}

// A core is a zapcore.Core. Its forebay.Logger contains the attributes added by With. A core is
// immutable except for its cache of routers.
type core struct {
	log     *forebay.Logger
	handler router   // handler of log
	named   sync.Map // cache of the routers of log.Named, by name
}

// newCore returns a core for log, which is not nil.
func newCore(log *forebay.Logger) *core {
	return &core{log: log, handler: log.Slog().Handler().(router)}
}

// handlerOf returns the handler for loggers with the given name.
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

// levelOf returns the slog level of a zap level. zap's levels are 1 apart, and slog's levels 4.
func levelOf(l zapcore.Level) slog.Level {
	if l > zapcore.ErrorLevel {
		return above
	}
	return slog.Level(l) * 4
}

// Enabled reports whether a logger of any name accepts entries of level l. Check is more precise,
// because Check knows the name.
func (c *core) Enabled(l zapcore.Level) bool {
	return c.handler.EnabledForAny(levelOf(l))
}

// Level returns the level of a logger without a name, for zapcore.LevelOf.
func (c *core) Level() zapcore.Level {
	for l := zapcore.DebugLevel; l <= zapcore.FatalLevel; l++ {
		if c.handler.Enabled(context.Background(), levelOf(l)) {
			return l
		}
	}
	return zapcore.InvalidLevel
}

// With returns a core that adds fields to all entries. The fields are encoded once. Fields that
// follow a zap.Namespace, and fields of later calls, belong to its group.
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

// Check adds c to ce if an output accepts ent, judged by its level and logger name.
func (c *core) Check(ent zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.handlerOf(ent.LoggerName).Enabled(context.Background(), levelOf(ent.Level)) {
		return ce.AddCore(ent, c)
	}
	return ce
}

// objects is the pool of objects used by Write.
var objects = sync.Pool{New: func() any { return new(object) }}

// Write logs the entry. The values of fields are copied or encoded before Write returns. Its error
// is always nil.
func (c *core) Write(ent zapcore.Entry, fields []zapcore.Field) error {
	rec := slog.NewRecord(ent.Time, levelOf(ent.Level), ent.Message, 0)
	if ent.Caller.Defined && ent.Caller.PC != 0 {
		// zap uses the address of the call, and slog the return address.
		rec.PC = ent.Caller.PC + 1
	}
	o := objects.Get().(*object)
	o.add(fields)
	rec.AddAttrs(o.group()...)
	h := c.handlerOf(ent.LoggerName)
	top := o.top[:0]
	// The caller becomes an attribute, unless an output writes it as its source position.
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

// Sync waits until all logged entries are delivered, at most 5 s.
func (c *core) Sync() error { return c.flush(syncTimeout) }

// flush waits until all records are delivered, but at most d.
func (c *core) flush(d time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return c.log.Router().Flush(ctx)
}
