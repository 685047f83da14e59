package diskqueue

import (
	"sync/atomic"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/spool"
)

// reporter passes events to Options.OnEvent, on a goroutine that exists only while there are events.
// Posting never blocks, so it is allowed with any lock held.
type reporter struct {
	output  string // Options.Name
	runner  *callback.Runner[batch.Event]
	damages atomic.Uint64 // number of calls of corrupt
}

// post reports one of the events that Options.OnEvent lists. records is their number, if any.
func (r *reporter) post(op string, err error, records uint64) {
	r.runner.Post(batch.Event{Output: r.output, Op: op, Err: err, Count: records})
}

// corrupt counts and reports damage. Each damage is reported once by a process.
func (r *reporter) corrupt(e *spool.CorruptError) {
	r.damages.Add(1)
	r.post("corrupt", e, e.Records)
}
