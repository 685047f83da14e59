package run

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/process"
)

// ErrDeadline is the cause of contexts that are canceled because --drain-timeout is over. The
// delivery ends a little earlier, because error handlers and the disk need the rest of the time.
var ErrDeadline = errors.New("the delivery time of --drain-timeout is over")

// An Ending controls the end of a pipeline. The method Begin stops the inputs and sets a deadline.
// A second signal cancels Ctx. Only the goroutine of Pipeline.run uses an Ending.
type Ending struct {
	in      interface{ Stop() }
	timeout time.Duration

	base         context.Context
	force        context.CancelCauseFunc
	Ctx          context.Context // context for the delivery; it has a deadline after Begin was called
	cancel       context.CancelFunc
	Begun        bool
	nearDeadline <-chan time.Time // receives a value shortly before the deadline; nil until Begin is called

	onBegin func(deadline time.Time) // if not nil, called by Begin

	process.Signals
}

// NewEnding returns an Ending. Its method Begin calls in.Stop, and sets a deadline for the
// delivery: the current time plus timeout.
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
		e.nearDeadline = time.After(e.timeout - e.reserve())
		e.Ctx, e.cancel = context.WithTimeoutCause(e.base, e.timeout, ErrDeadline)
		if e.onBegin != nil {
			deadline, _ := e.Ctx.Deadline()
			e.onBegin(deadline)
		}
	}
}

// reserve returns the time before the deadline at which outputs that block a reader are shut down.
// In this time, the other outputs deliver the remaining lines.
func (e *Ending) reserve() time.Duration { return min(e.timeout/4, time.Second) }

// Signal handles a signal. The first signal calls Begin, and the second one cancels Ctx. The end of
// the input does not count as a signal, because Ctrl-C and service managers also end the program
// that writes the input.
func (e *Ending) Signal(s os.Signal) {
	if e.Second(s) {
		e.force(process.ErrForced)
	} else {
		e.Begin()
	}
}

// Release releases the resources of the contexts.
func (e *Ending) Release() {
	e.cancel()
	e.force(nil)
}
