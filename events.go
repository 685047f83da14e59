package forebay

import (
	"context"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
)

// eventQueue is the number of events that are queued while OnError is busy. Further events are dropped
// and counted in Stats.EventsLost.
const eventQueue = 64

// A reporter passes events to one OnError function. A nil reporter drops them.
type reporter struct {
	run    *callback.Runner[batch.Event]
	stderr bool // OnError is the default
}

// newReporter returns the reporter for fn. If fn is nil, the reporter writes to standard
// error, so that a destination does not fail silently.
func newReporter(fn func(batch.Event)) *reporter {
	r := &reporter{stderr: fn == nil}
	if r.stderr {
		fn = callback.ToStderr[batch.Event]
	}
	r.run = callback.New(fn, eventQueue)
	return r
}

// post queues ev for OnError. It never blocks and may be called with locks held.
func (r *reporter) post(ev batch.Event) {
	if r != nil {
		r.run.Post(ev)
	}
}

// postAndWait is post for an event after which the program may exit. If OnError is the default, it waits
// briefly until the line is on standard error.
func (r *reporter) postAndWait(ev batch.Event) {
	r.post(ev)
	if r != nil && r.stderr {
		r.run.WaitBriefly(context.Background())
	}
}

// wait waits until OnError has returned for all queued events, or until ctx ends.
func (r *reporter) wait(ctx context.Context) {
	if r != nil {
		_ = r.run.Wait(ctx)
	}
}
