package ordercheck

import (
	"sync/atomic"
	"time"
)

// A Clock provides the times of calls. If call A returned before call B began, the result of After
// for A must not be greater than the result of Before for B. If the result for A is less, A must
// have returned before B began. Both methods may be called from any goroutine.
type Clock interface {
	Before() int64 // called immediately before a call
	After() int64  // called immediately after the call has returned
}

// NewLogical returns a clock that counts the calls. It is exact: two calls never have the same
// time. It synchronizes the callers, so the race detector finds fewer races than with
// [NewMonotonic].
func NewLogical() Clock { return new(logical) }

type logical struct {
	_ [128]byte
	n atomic.Int64
	_ [128]byte
}

func (c *logical) Before() int64 { return c.n.Add(1) }
func (c *logical) After() int64  { return c.n.Load() }

// NewMonotonic returns a clock that reads the system's monotonic time. It does not synchronize
// callers. Calls within one tick of the clock count as concurrent.
func NewMonotonic() Clock { return monotonic{time.Now()} }

type monotonic struct{ start time.Time }

func (c monotonic) Before() int64 { return int64(time.Since(c.start)) }
func (c monotonic) After() int64  { return int64(time.Since(c.start)) }
