package deliver

import (
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
)

// events reports transitions to an operator. Posting never blocks; the callback
// runs on a separate goroutine.
type events struct {
	name string
	run  *callback.Runner[batch.Event]
}

// newEvents returns events for onError, by default a line on standard error.
func newEvents(name string, onError func(batch.Event)) *events {
	if name == "" {
		name = "deliver"
	}
	if onError == nil {
		onError = callback.ToStderr[batch.Event]
	}
	return &events{name: name, run: callback.New(onError, 0)}
}

// post reports a transition. A nil e reports nothing.
func (e *events) post(op string, err error, count uint64) {
	if e == nil {
		return
	}
	e.run.Post(batch.Event{Output: e.name, Op: op, Err: err, Count: count})
}

// An episode is a state of failure that is reported once when it begins and once when it ends. It has no
// lock.
type episode struct{ on bool }

// begin reports whether the episode begins now.
func (e *episode) begin() bool {
	was := e.on
	e.on = true
	return !was
}

// end reports whether the episode ends now.
func (e *episode) end() bool {
	was := e.on
	e.on = false
	return was
}
