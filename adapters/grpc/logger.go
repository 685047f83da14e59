// Package forebaygrpc sends the messages that gRPC itself logs to the outputs of a forebay.Logger.
// For logging RPCs see docs/ADAPTERS.md.
//
//	grpclog.SetLoggerV2(forebaygrpc.New(log.Named("grpc")))
//
//	gRPC ─▶ grpclog.LoggerV2 ─▶ forebay.Logger ─▶ outputs
package forebaygrpc

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"google.golang.org/grpc/grpclog"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/internal/values"
)

// lastTimeout limits how long a fatal message delays gRPC's exit of the program. It equals the
// limit of forebay.SyncLevel.
const lastTimeout = 250 * time.Millisecond

// New returns a grpclog.LoggerV2, for grpclog.SetLoggerV2. It passes messages to the given Logger.
//
//   - Info, Warning and Error have the levels of slog. Fatal has slog.LevelError+4. A call of Fatal
//     waits until the message is delivered, at most 250 ms, because gRPC then exits the program.
//   - gRPC logs many messages at Info: use a named logger, whose level forebay.Router.SetLevel sets.
//   - The component of gRPC that logs, such as core or transport, is the attribute "component".
//   - The source position is the position of the call in gRPC.
//   - V(0) is true. Higher verbosities report whether the logger is enabled at slog.LevelDebug.
//
// The result is safe for concurrent use. A nil Logger discards all messages.
func New(log *forebay.Logger) grpclog.LoggerV2 {
	return &logger{log: log, handler: log.Slog().Handler()}
}

// A logger implements grpclog.DepthLoggerV2. It is immutable and safe for concurrent use.
type logger struct {
	log     *forebay.Logger // for Flush; nil discards all messages
	handler slog.Handler    // handler of log
}

var _ grpclog.DepthLoggerV2 = (*logger)(nil)

// fatal is the level of messages after which gRPC exits the program.
const fatal = slog.LevelError + 4

// enabled reports whether any output writes records of the level.
func (l *logger) enabled(level slog.Level) bool {
	return l.handler.Enabled(context.Background(), level)
}

// write logs a message. depth is the number of stack frames between the logged position and the
// function of package grpclog that was called.
func (l *logger) write(level slog.Level, depth int, component, msg string) {
	var pcs [1]uintptr
	// The skipped frames are Callers, write, the method that calls write, and the function of
	// grpclog.
	runtime.Callers(depth+4, pcs[:])
	rec := slog.NewRecord(time.Now(), level, strings.TrimSuffix(msg, "\n"), pcs[0])
	if component != "" {
		rec.AddAttrs(slog.String("component", component))
	}
	_ = l.handler.Handle(context.Background(), rec) // the Router counts errors and reports them
	if level == fatal {
		l.flush()
	}
}

// flush waits until all records are delivered, but at most lastTimeout.
func (l *logger) flush() {
	if r := l.log.Router(); r != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lastTimeout)
		defer cancel()
		_ = r.Flush(ctx)
	}
}

// text formats a message. If fmt panics, the text of the panic becomes the message. That is rare:
// fmt recovers a panic in a method of an argument, but then formats the panic's value, which may
// panic again.
func text(format func(...any) string, args []any) (s string) {
	defer func() {
		if p := recover(); p != nil {
			s = values.PanicText(p)
		}
	}()
	return format(args...)
}

// print formats args like fmt.Sprint. It formats nothing if the level is not enabled.
func (l *logger) print(level slog.Level, args []any) {
	if l.enabled(level) {
		l.write(level, 1, "", text(fmt.Sprint, args))
	}
}

// println formats args like fmt.Sprintln.
func (l *logger) println(level slog.Level, args []any) {
	if l.enabled(level) {
		l.write(level, 1, "", text(fmt.Sprintln, args))
	}
}

// printf formats args like fmt.Sprintf.
func (l *logger) printf(level slog.Level, format string, args []any) {
	if l.enabled(level) {
		l.write(level, 1, "", text(func(args ...any) string { return fmt.Sprintf(format, args...) }, args))
	}
}

// printDepth implements the methods for gRPC components, whose first argument is the component's
// name in brackets.
func (l *logger) printDepth(level slog.Level, depth int, args []any) {
	if !l.enabled(level) {
		return
	}
	component := ""
	if len(args) > 0 {
		if s, ok := args[0].(string); ok && len(s) > 2 && s[0] == '[' && s[len(s)-1] == ']' {
			component, args = s[1:len(s)-1], args[1:]
		}
	}
	l.write(level, depth+1, component, text(fmt.Sprintln, args))
}

func (l *logger) Info(args ...any)                    { l.print(slog.LevelInfo, args) }
func (l *logger) Infoln(args ...any)                  { l.println(slog.LevelInfo, args) }
func (l *logger) Infof(format string, args ...any)    { l.printf(slog.LevelInfo, format, args) }
func (l *logger) InfoDepth(depth int, args ...any)    { l.printDepth(slog.LevelInfo, depth, args) }
func (l *logger) Warning(args ...any)                 { l.print(slog.LevelWarn, args) }
func (l *logger) Warningln(args ...any)               { l.println(slog.LevelWarn, args) }
func (l *logger) Warningf(format string, args ...any) { l.printf(slog.LevelWarn, format, args) }
func (l *logger) WarningDepth(depth int, args ...any) { l.printDepth(slog.LevelWarn, depth, args) }
func (l *logger) Error(args ...any)                   { l.print(slog.LevelError, args) }
func (l *logger) Errorln(args ...any)                 { l.println(slog.LevelError, args) }
func (l *logger) Errorf(format string, args ...any)   { l.printf(slog.LevelError, format, args) }
func (l *logger) ErrorDepth(depth int, args ...any)   { l.printDepth(slog.LevelError, depth, args) }
func (l *logger) Fatal(args ...any)                   { l.print(fatal, args) }
func (l *logger) Fatalln(args ...any)                 { l.println(fatal, args) }
func (l *logger) Fatalf(format string, args ...any)   { l.printf(fatal, format, args) }
func (l *logger) FatalDepth(depth int, args ...any)   { l.printDepth(fatal, depth, args) }

// V reports whether gRPC should log messages of the given verbosity.
func (l *logger) V(verbosity int) bool { return verbosity <= 0 || l.enabled(slog.LevelDebug) }
