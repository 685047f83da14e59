package diskqueue

import (
	"sync/atomic"

	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/spool"
)

// reporter passes events to Options.OnEvent, on a goroutine that exists only while there are events.
// Posting never blocks, so it is allowed with any lock held.
type reporter struct {
	callback.Reporter
	damages atomic.Uint64 // number of calls of corrupt
}

// corrupt counts and reports damage. Each damage is reported once by a process.
func (r *reporter) corrupt(e *spool.CorruptError) {
	r.damages.Add(1)
	r.Post("corrupt", e, e.Records)
}
