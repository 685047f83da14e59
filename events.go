package forebay

import (
	"context"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
)

// eventQueue is the number of events that are queued while OnError is running. If the queue is
// full, an event is dropped and counted in Stats.EventsLost.
const eventQueue = 64

// A reporter passes events to one OnError function. A nil reporter drops them.
type reporter struct {
	run    *callback.Runner[batch.Event]
	stderr bool // events go to standard error, the default
}

// newReporter returns a reporter for fn. If fn is nil, events are written to standard error, so
// that a failing destination is noticed.
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

// postAndWait is like post, for an event after which the program may exit. If events go to standard
// error, it waits briefly until this event is written.
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
