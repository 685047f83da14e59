package deliver

import (
	"context"
	"sync"
	"time"
)

// primaryShare is how much of the time to the deadline of Close belongs to the
// destination itself.
const primaryShare = 0.7

// handlerShare is how much of the time is over when no handler is waited for any more
// that the spill can stand in for.
const handlerShare = 0.85

// handlerGrace is how long a call of a handler may take then.
const handlerGrace = 10 * time.Millisecond

// closing is how far a close has come. It passes through six states and never
// back:
//
//	running ──begin──▶ begun ──a deadline──▶ hurried ──70 % of the time──▶ late
//	                                                  ──85 %──▶ scarce ──end──▶ over
//
// Hurried, waits between attempts are short. Late, what can be settled without
// the destination is. Scarce, a handler gets handlerGrace for a call. Over, nothing is
// attempted any more.
type closing struct {
	begun   chan struct{} // closed by begin
	hurried chan struct{} // closed when there is a deadline
	late    chan struct{} // closed when the share of the destination is used up
	scarce  chan struct{} // closed when that of the handler is, too
	over    chan struct{} // closed by end

	mu       sync.Mutex // leaf
	deadline time.Time
	timers   []*time.Timer
	atLate   []func()
	atOver   []func()
}

func newClosing() *closing {
	return &closing{
		begun: make(chan struct{}), hurried: make(chan struct{}),
		late: make(chan struct{}), scarce: make(chan struct{}), over: make(chan struct{}),
	}
}

// begin begins to close. A zero deadline means none; a later call may only
// bring the deadline forward.
func (c *closing) begin(deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !is(c.begun) {
		close(c.begun)
	}
	if deadline.IsZero() || !c.deadline.IsZero() && !deadline.Before(c.deadline) {
		return
	}
	if c.deadline.IsZero() {
		close(c.hurried)
	}
	c.deadline = deadline
	c.stopLocked()
	left := float64(time.Until(deadline))
	c.timers = append(c.timers, time.AfterFunc(time.Duration(primaryShare*left), c.beLate),
		time.AfterFunc(time.Duration(handlerShare*left), c.beScarce))
}

func (c *closing) stopLocked() {
	for _, t := range c.timers {
		t.Stop()
	}
	c.timers = c.timers[:0]
}

// beLate makes it late.
func (c *closing) beLate() { c.pass(c.late, c.atLate) }

// beScarce makes it scarce.
func (c *closing) beScarce() {
	c.beLate()
	c.pass(c.scarce, nil)
}

// end makes it over.
func (c *closing) end() {
	c.begin(time.Time{})
	c.mu.Lock()
	c.stopLocked()
	c.mu.Unlock()
	c.beScarce()
	c.pass(c.over, c.atOver)
}

// pass closes state and calls hooks, the first time.
func (c *closing) pass(state chan struct{}, hooks []func()) {
	c.mu.Lock()
	first := !is(state)
	if first {
		close(state)
	}
	c.mu.Unlock()
	if first {
		for _, fn := range hooks {
			fn()
		}
	}
}

// is reports whether ch is closed.
func is(ch chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// sleep waits for d, or for brief from the moment the close has begun, or until
// it becomes late. It reports false if ctx has ended or it is over.
func (c *closing) sleep(ctx context.Context, d, brief time.Duration) bool {
	hurried, late := c.hurried, c.late
	if is(hurried) {
		d, hurried = min(d, brief), nil
	}
	if is(late) {
		late = nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return ctx.Err() == nil && !is(c.over)
		case <-ctx.Done():
			return false
		case <-c.over:
			return false
		case <-late:
			return ctx.Err() == nil && !is(c.over)
		case <-hurried:
			hurried = nil
			t.Reset(min(d, brief))
		}
	}
}
