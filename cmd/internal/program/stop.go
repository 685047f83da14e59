package program

import (
	"context"
	"errors"
	"os"
	"time"
)

// Why delivery ended before everything was delivered.
var (
	errDeadline = errors.New("--drain-timeout passed")
	errForced   = errors.New("stopped by a second signal")
)

// sameSignal is how soon after the first signal one more of the same kind belongs to it:
// timeout(1) signals the process and then its group.
const sameSignal = 250 * time.Millisecond

// signals counts the signals that end a pipeline.
type signals struct {
	first os.Signal // nil: there was none
	at    time.Time
	count int
}

// second notes a signal and reports whether it is the second one. A repeated first signal
// is accepted once, within sameSignal.
func (g *signals) second(s os.Signal) bool {
	if g.count++; g.first == nil {
		g.first, g.at = s, time.Now()
		return false
	}
	return s != g.first || g.count > 2 || time.Since(g.at) >= sameSignal
}

// ending is how a pipeline comes to its end: first the input is stopped, from
// then on a deadline runs, and a second signal makes it pass at once. It belongs
// to the goroutine of pipeline.run.
type ending struct {
	in      interface{ stop() }
	timeout time.Duration

	base   context.Context
	force  context.CancelCauseFunc
	ctx    context.Context // base until begin; then with the deadline
	cancel context.CancelFunc
	begun  bool
	late   <-chan time.Time // nil until begin; then tells that little time is left

	onBegin func(deadline time.Time) // nil: nobody wants to know

	signals
}

func newEnding(in interface{ stop() }, timeout time.Duration) *ending {
	e := &ending{in: in, timeout: timeout}
	e.base, e.force = context.WithCancelCause(context.Background())
	e.ctx, e.cancel = e.base, func() {}
	return e
}

// begin stops the input and starts the clock; once.
func (e *ending) begin() {
	if !e.begun {
		e.begun = true
		e.in.stop()
		e.late = time.After(e.timeout - e.reserve())
		e.ctx, e.cancel = context.WithTimeoutCause(e.base, e.timeout, errDeadline)
		if e.onBegin != nil {
			deadline, _ := e.ctx.Deadline()
			e.onBegin(deadline)
		}
	}
}

// reserve is how much of the time is little time: outputs that hold up the reader are ended
// that much earlier, so that the others can deliver what the reader still holds, also on a
// busy machine.
func (e *ending) reserve() time.Duration { return min(e.timeout/4, time.Second) }

// signal takes a signal to end: the first begins, the second forces. That the
// input has ended is no signal: what kills a program and forebay behind it (Ctrl-C,
// a service manager) lets the end of the input arrive first at times.
func (e *ending) signal(s os.Signal) {
	if e.second(s) {
		e.force(errForced)
	} else {
		e.begin()
	}
}

// release frees the clock.
func (e *ending) release() {
	e.cancel()
	e.force(nil)
}
