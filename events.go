package forebay

import (
	"context"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
)

// eventQueue is how many events wait for an OnError that is busy.
const eventQueue = 64

// A reporter hands events to one OnError. A nil reporter drops them.
type reporter struct {
	run *callback.Runner[batch.Event]
}

// newReporter returns the reporter for fn, or one to standard error if fn is
// nil: a destination that fails in silence would be worse.
func newReporter(fn func(batch.Event)) *reporter {
	if fn == nil {
		fn = callback.ToStderr[batch.Event]
	}
	return &reporter{run: callback.New(fn, eventQueue)}
}

// post never blocks and may be called with locks held.
func (r *reporter) post(ev batch.Event) {
	if r != nil {
		r.run.Post(ev)
	}
}

func (r *reporter) wait(ctx context.Context) {
	if r != nil {
		_ = r.run.Wait(ctx)
	}
}
