package run

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/process"
)

// ErrDeadline ends delivery before everything was delivered.
var ErrDeadline = errors.New("--drain-timeout passed")

// Ending is how a pipeline comes to its end: first the input is stopped, from
// then on a deadline runs, and a second signal makes it pass at once. It belongs
// to the goroutine of pipeline.run.
type Ending struct {
	in      interface{ Stop() }
	timeout time.Duration

	base   context.Context
	force  context.CancelCauseFunc
	Ctx    context.Context // base until begin; then with the deadline
	cancel context.CancelFunc
	Begun  bool
	late   <-chan time.Time // nil until begin; then tells that little time is left

	onBegin func(deadline time.Time) // nil: none

	process.Signals
}

func NewEnding(in interface{ Stop() }, timeout time.Duration) *Ending {
	e := &Ending{in: in, timeout: timeout}
	e.base, e.force = context.WithCancelCause(context.Background())
	e.Ctx, e.cancel = e.base, func() {}
	return e
}

// Begin stops the input and starts the clock; once.
func (e *Ending) Begin() {
	if !e.Begun {
		e.Begun = true
		e.in.Stop()
		e.late = time.After(e.timeout - e.reserve())
		e.Ctx, e.cancel = context.WithTimeoutCause(e.base, e.timeout, ErrDeadline)
		if e.onBegin != nil {
			deadline, _ := e.Ctx.Deadline()
			e.onBegin(deadline)
		}
	}
}

// reserve is how much of the time is little time: outputs that hold up the reader are ended
// that much earlier, so that the others can deliver what the reader still holds, also on a
// busy machine.
func (e *Ending) reserve() time.Duration { return min(e.timeout/4, time.Second) }

// Signal takes a signal to end: the first begins, the second forces. That the
// input has ended is no signal: what kills a program and forebay behind it (Ctrl-C,
// a service manager) lets the end of the input arrive first at times.
func (e *Ending) Signal(s os.Signal) {
	if e.Second(s) {
		e.force(process.ErrForced)
	} else {
		e.Begin()
	}
}

// Release frees the clock.
func (e *Ending) Release() {
	e.cancel()
	e.force(nil)
}
