package spool

import (
	"sync/atomic"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
)

// reporter passes events to Options.OnEvent, on a separate goroutine.
type reporter struct {
	output  string
	runner  *callback.Runner[batch.Event]
	damages atomic.Uint64
}

func (r *reporter) post(op string, err error, records uint64) {
	r.runner.Post(batch.Event{Output: r.output, Op: op, Err: err, Count: records})
}

// corrupt counts and reports damage.
func (r *reporter) corrupt(e *CorruptError) {
	r.damages.Add(1)
	r.post("corrupt", e, e.Records)
}
