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

// An Ending ends a pipeline: Begin stops the input and sets a deadline, and a second signal cancels
// Ctx at once. It is used by the goroutine of Pipeline.run only.
type Ending struct {
	in      interface{ Stop() }
	timeout time.Duration

	base   context.Context
	force  context.CancelCauseFunc
	Ctx    context.Context // base until Begin, then with the deadline
	cancel context.CancelFunc
	Begun  bool
	late   <-chan time.Time // nil until Begin; receives shortly before the deadline

	onBegin func(deadline time.Time) // nil: none

	process.Signals
}

func NewEnding(in interface{ Stop() }, timeout time.Duration) *Ending {
	e := &Ending{in: in, timeout: timeout}
	e.base, e.force = context.WithCancelCause(context.Background())
	e.Ctx, e.cancel = e.base, func() {}
	return e
}

// Begin stops the input and sets the deadline. Only the first call has an effect.
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

// reserve returns the time before the deadline at which outputs that block the reader are shut down,
// so that the other outputs can deliver the remaining lines of the reader.
func (e *Ending) reserve() time.Duration { return min(e.timeout/4, time.Second) }

// Signal handles a signal: the first calls Begin, the second cancels Ctx. The end of the input does
// not count as a signal. Ctrl-C and service managers end forebay together with the program that
// writes its input, and then the end of the input may arrive before the signal.
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
