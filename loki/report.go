package loki

import (
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
)

// reports calls Config.OnError for changes that a Pusher makes to records before sending
// them. Posting never blocks.
type reports struct {
	name string
	run  *callback.Runner[batch.Event]
}

func newReports(c *Config) *reports {
	onError := c.OnError
	if onError == nil {
		onError = callback.ToStderr[batch.Event]
	}
	return &reports{name: c.Name, run: callback.New(onError, 0)}
}

func (r *reports) post(op string, err error, count uint64) {
	r.run.Post(batch.Event{Output: r.name, Op: op, Err: err, Count: count})
}
