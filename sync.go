package forebay

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/internal/breaker"
	"github.com/forebay-log/forebay/internal/plural"
)

// syncTimeout bounds how long a caller waits for its record to be delivered.
const syncTimeout = 250 * time.Millisecond

// sync waits until what was logged is delivered, or syncTimeout. What could not be
// delivered in time is not lost by that, so the error is nobody's.
func (c *core) sync() {
	ctx, cancel := context.WithTimeout(breaker.WithoutProbe(context.Background()), syncTimeout)
	defer cancel()
	_ = c.router.Flush(ctx)
}

// lastSync is sync for a program that is about to end. What is not delivered then may be
// lost, so it is told on standard error.
func (c *core) lastSync() {
	if c.closed.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), syncTimeout)
	defer cancel()
	for i, r := range c.flushAll(ctx) {
		o := c.outputs[i]
		p := o.stats(slog.LevelInfo).Pending
		n := p.Slab + p.Inflight
		if r.err == nil || n == 0 {
			continue
		}
		why := "after " + syncTimeout.String()
		if ctx.Err() == nil { // nobody waits for it
			why = "at once: " + r.err.Error()
		}
		fmt.Fprintf(os.Stderr, "forebay: output %s: the program may end now, and %s not delivered %s\n", o.name, plural.Records(n), why)
	}
}

// harmless remembers positions of calls that do not end the program, 64 bytes for each
// hash of them.
var harmless [512][8]atomic.Uintptr

// endsProgram reports whether the record in hand is that of a log.Fatal or log.Panic,
// which slog.SetDefault and slog.NewLogLogger hand on as any other line. Only the stack
// tells. pc is that of the record: 0 where package log has been told to write no
// positions, as it is by default; else the stack is looked at once for each position.
func endsProgram(pc uintptr) bool {
	known := &harmless[(pc^pc>>9)%uintptr(len(harmless))]
	if pc != 0 {
		for i := range known {
			if known[i].Load() == pc {
				return false
			}
		}
	}
	var pcs [24]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if name, ok := strings.CutPrefix(f.Function, "log."); ok {
			name = strings.TrimPrefix(name, "(*Logger).")
			if strings.HasPrefix(name, "Fatal") || strings.HasPrefix(name, "Panic") {
				return true
			}
		}
		if !more {
			break
		}
	}
	if pc != 0 {
		known[rand.IntN(len(known))].Store(pc)
	}
	return false
}

// Recover logs a panic at slog.LevelError with its stack, waits until the outputs have
// delivered what they hold, at most 250 ms, and lets the panic go on. Records that are not
// delivered then are counted on standard error. It is for a defer statement at the top of
// main and of goroutines:
//
//	defer log.Recover()
//
// It works on a nil Logger, too, which logs nothing.
func (l *Logger) Recover() {
	p := recover()
	if p == nil {
		return
	}
	if l != nil && l.h.core != nil {
		l.Error("panic", slog.String("panic", describe(p)), slog.String("stack", string(debug.Stack())))
		l.h.core.lastSync()
	}
	panic(p)
}
