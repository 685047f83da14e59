package callback

import (
	"context"
	"sync/atomic"

	"github.com/forebay-log/forebay/batch"
)

// A Reporter passes the events of a driver to the callback of its output. The driver is created
// before the output, so events posted before SetOutput are dropped. All methods are safe for
// concurrent use, and only Wait blocks.
type Reporter struct {
	output atomic.Pointer[reporterOutput]
}

type reporterOutput struct {
	name string
	run  *Runner[batch.Event]
}

// SetOutput sets the name of the output in events, and the function that receives them.
func (r *Reporter) SetOutput(name string, onError func(batch.Event)) {
	r.output.Store(&reporterOutput{name, New(onError, 0)})
}

// Post posts an event with the given error and count. It never blocks.
func (r *Reporter) Post(op string, err error, count uint64) {
	r.PostEvent(batch.Event{Op: op, Err: err, Count: count})
}

// PostEvent posts ev as an event of the output.
func (r *Reporter) PostEvent(ev batch.Event) {
	if o := r.output.Load(); o != nil {
		ev.Output = o.name
		o.run.Post(ev)
	}
}

// Wait waits until the function has received all events, but at most [Grace].
func (r *Reporter) Wait(ctx context.Context) {
	if o := r.output.Load(); o != nil {
		o.run.WaitBriefly(ctx)
	}
}
