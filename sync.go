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

// syncTimeout limits the time a caller waits for the delivery of its record.
const syncTimeout = 250 * time.Millisecond

// sync waits until the records logged so far are delivered, for at most syncTimeout. It returns
// no error, because the remaining records are delivered later. It does not probe a destination
// whose circuit breaker is open.
func (c *core) sync() {
	ctx, cancel := context.WithTimeout(breaker.WithoutProbe(context.Background()), syncTimeout)
	defer cancel()
	_ = c.router.Flush(ctx)
}

// lastSync is like sync, for a program that is about to exit. The remaining records may be lost, so
// lastSync writes their number to standard error.
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
		if ctx.Err() == nil { // Flush failed at once, because the circuit breaker is open
			why = "at once: " + r.err.Error()
		}
		fmt.Fprintf(os.Stderr, "forebay: output %s: the program may exit now; %s not delivered %s\n", o.name, plural.Records(n), why)
	}
}

// nonFatal caches the positions of log calls that are neither log.Fatal nor log.Panic. There are 8
// entries (64 bytes) for each hash of a position.
var nonFatal [512][8]atomic.Uintptr

// endsProgram reports whether the current record comes from log.Fatal or log.Panic. slog.SetDefault
// and slog.NewLogLogger pass on the lines of these functions like all other lines, so only the
// stack shows the difference. pc is the position of the record. The stack is searched once for each
// pc. By default package log writes no positions, and pc is 0.
func endsProgram(pc uintptr) bool {
	positions := &nonFatal[(pc^pc>>9)%uintptr(len(nonFatal))]
	if pc != 0 {
		for i := range positions {
			if positions[i].Load() == pc {
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
		positions[rand.IntN(len(positions))].Store(pc)
	}
	return false
}

// Recover logs a panic at slog.LevelError with its stack, waits at most 250 ms until the
// outputs have delivered their records, and panics again. The number of undelivered records is
// written to standard error. Use it in a defer statement at the top of main and of goroutines:
//
//	defer log.Recover()
//
// Recover also works on a nil Logger, which logs nothing.
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
