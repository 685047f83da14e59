package ordercheck

import (
	"sync/atomic"
	"time"
)

// A Clock gives the two times of a call. A call that returned before another
// began must have an After below the other's Before, or at most equal to it; and
// an After below a Before must mean that the one call had returned before the
// other began. Both methods may be called from any goroutine.
type Clock interface {
	Before() int64 // read just before a call begins
	After() int64  // read just after it returned
}

// NewLogical returns a clock that counts calls. It is exact: nothing that is in
// order is missed because two readings are equal. It orders the callers' memory
// accesses, so the race detector sees less than with [NewMonotonic].
func NewLogical() Clock { return new(logical) }

type logical struct {
	_ [128]byte
	n atomic.Int64
	_ [128]byte
}

func (c *logical) Before() int64 { return c.n.Add(1) }
func (c *logical) After() int64  { return c.n.Load() }

// NewMonotonic returns a clock that reads the system's monotonic time. It does
// not synchronise callers. Calls within one tick of it are taken as concurrent.
func NewMonotonic() Clock { return monotonic{time.Now()} }

type monotonic struct{ start time.Time }

func (c monotonic) Before() int64 { return int64(time.Since(c.start)) }
func (c monotonic) After() int64  { return int64(time.Since(c.start)) }
