package run

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/process"
)

// ErrDeadline is the cause if the drain timeout ends the delivery before everything is delivered.
var ErrDeadline = errors.New("--drain-timeout passed")

// An Ending ends a pipeline. Begin stops the inputs and sets a deadline; a second signal cancels
// Ctx. Only the goroutine of Pipeline.run uses it.
type Ending struct {
	in      interface{ Stop() }
	timeout time.Duration

	base   context.Context
	force  context.CancelCauseFunc
	Ctx    context.Context // base before Begin, then a context with the deadline
	cancel context.CancelFunc
	Begun  bool
	late   <-chan time.Time // receives shortly before the deadline; nil before Begin

	onBegin func(deadline time.Time) // may be nil

	process.Signals
}

// NewEnding returns an Ending that stops in and then allows timeout for delivery.
func NewEnding(in interface{ Stop() }, timeout time.Duration) *Ending {
	e := &Ending{in: in, timeout: timeout}
	e.base, e.force = context.WithCancelCause(context.Background())
	e.Ctx, e.cancel = e.base, func() {}
	return e
}

// Begin stops the inputs and sets the deadline. Only the first call has an effect.
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

// reserve returns how long before the deadline the outputs that block a reader are shut down. In
// this time the other outputs deliver the remaining lines.
func (e *Ending) reserve() time.Duration { return min(e.timeout/4, time.Second) }

// Signal handles a signal: the first one calls Begin, the second one cancels Ctx. The end of the
// input is not a signal, because Ctrl-C and service managers end forebay together with the program
// that writes its input, so the end of the input may arrive first.
func (e *Ending) Signal(s os.Signal) {
	if e.Second(s) {
		e.force(process.ErrForced)
	} else {
		e.Begin()
	}
}

// Release releases the contexts.
func (e *Ending) Release() {
	e.cancel()
	e.force(nil)
}
