package deliver

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
)

// ErrOpen is wrapped by the error of a Send that a [Breaker] did not let
// through, and by that of the Send that made it open.
var ErrOpen = errors.New("circuit breaker is open")

// openError says that the breaker is open, and why.
type openError struct{ cause error }

func (e *openError) Error() string {
	if e.cause == nil {
		return ErrOpen.Error()
	}
	return ErrOpen.Error() + ": " + e.cause.Error()
}

func (e *openError) Is(target error) bool { return target == ErrOpen }

func (e *openError) Unwrap() error { return e.cause }

// State is the state of a [Breaker].
type State uint8

// The states.
const (
	Closed   State = iota // everything goes through
	Open                  // nothing does
	HalfOpen              // a few records do, to see whether the destination is back
)

var stateNames = [...]string{"closed", "open", "half-open"}

// String returns "closed", "open" or "half-open".
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", s)
}

// A Transition is a change of state of a [Breaker].
type Transition struct {
	Time     time.Time
	From, To State
	// Err is what made it open, nil for the other transitions.
	Err error
	// Lost is how many transitions this subscriber has missed so far because it
	// did not read in time.
	Lost uint64
}

// Defaults of [BreakerOptions].
const (
	DefaultBreakerFailures  = 5
	DefaultBreakerOpenMin   = time.Second
	DefaultBreakerOpenMax   = time.Minute
	DefaultBreakerProbe     = 10
	DefaultBreakerSuccesses = 2

	breakerWindow = 20 // results the ratio is taken over
	breakerRatio  = 10 // failures among them that open

	// probeBusy is what those wait who find a probe under way.
	probeBusy = 100 * time.Millisecond

	// transitionsKept is the capacity of a subscriber's channel.
	transitionsKept = 16

	// longAfter is from which Retry-After on the destination counts as down at
	// once: it has said so itself, and counting further failures would take as
	// many such waits, with the spill and the handler unused.
	longAfter = 5 * time.Second
)

// MaxRetryAfter is the longest wait that a destination may ask for
// ([batch.RetryAfter]); longer ones count as this. A clock that is wrong at the
// other end must not stop delivery for days.
const MaxRetryAfter = 10 * time.Minute

// floor returns the wait that e asks for.
func floor(e *batch.SendError) time.Duration { return min(max(e.After, 0), MaxRetryAfter) }

// circuit is the state machine of a [Breaker], apart from the sink.
type circuit struct {
	o BreakerOptions

	// mu guards the rest. It is a leaf: nothing is sent, called back or waited
	// for under it, except that subscribers are told without waiting.
	mu          sync.Mutex
	state       State
	epoch       uint64 // counts transitions
	consecutive int    // failures in a row
	window      uint32 // the last results, the newest in bit 0; 1: failure
	results     int    // how many of them there are
	until       time.Time
	opened      int  // times opened since the last full ramp-up
	probing     bool // half-open: the probe is under way
	successes   int  // half-open: in a row
	ramp        int  // records per Send while ramping up; 0: no cap
	cause       error
	trips       uint64
	subs        []*subscriber
	lost        uint64
	closed      bool
}

type subscriber struct {
	ch   chan Transition
	lost uint64
}

// admit asks whether n records may be sent now. It returns how many, n or fewer;
// 0 with the time until it makes sense to ask again. Who is admitted must call
// observe with epoch.
func (c *circuit) admit(n int) (k int, epoch uint64, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.state {
	case Closed:
		if c.ramp > 0 {
			return min(n, c.ramp), c.epoch, 0
		}
		return n, c.epoch, 0
	case Open:
		if wait = time.Until(c.until); wait > 0 {
			return 0, c.epoch, wait
		}
		c.setLocked(HalfOpen, nil)
		c.successes = 0
	case HalfOpen:
		if c.probing {
			return 0, c.epoch, probeBusy
		}
	}
	c.probing = true
	return min(n, c.o.ProbeRecords), c.epoch, 0
}

// A verdict is what a result says of the health of the destination.
type verdict uint8

const (
	neutral verdict = iota
	success
	failure
)

// judge classifies the result of a Send of n records. A destination that refuses
// records, or some of them, is well; one that took a part of them before it
// failed is neither well nor down.
func judge(ctx context.Context, n int, err error) verdict {
	if err == nil || isRefusal(err) {
		return success
	}
	e := batch.Inspect(err)
	if e.After >= longAfter && ctx.Err() == nil {
		return failure // it wants to be left alone, whatever it took
	}
	switch e.Kind {
	case batch.KindPrefix:
		if e.Acked > 0 && e.Acked <= n {
			return neutral
		}
	case batch.KindPartial:
		if len(e.Records) < n && batch.ValidIndexes(e.Records, n) {
			return neutral
		}
	}
	if ctx.Err() != nil {
		return neutral // given up, not failed
	}
	return failure
}

// observe notes the result of a Send of k of the n records of a batch that was
// admitted in epoch. One that was admitted before the last transition says
// nothing any more: it is no probe, and what it met with has been dealt with. If
// the result opens the circuit, observe returns the wait until the first probe.
func (c *circuit) observe(epoch uint64, v verdict, k, n int, err error) (wait time.Duration, opened bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch != c.epoch {
		return 0, false
	}
	switch c.state {
	case HalfOpen:
		c.probing = false
		switch v {
		case success:
			if c.successes++; c.successes >= c.o.Successes {
				c.setLocked(Closed, nil)
				c.consecutive, c.window, c.results = 0, 0, 0
				c.ramp = 2 * c.o.ProbeRecords
			}
		case failure:
			return c.tripLocked(err), true
		}
	case Closed:
		switch v {
		case success:
			c.consecutive = 0
			c.noteLocked(0)
			if c.ramp > 0 {
				if k == n { // the cap was not in the way
					c.ramp, c.opened = 0, 0
				} else {
					c.ramp *= 2
				}
			}
		case failure:
			c.consecutive++
			c.noteLocked(1)
			if c.consecutive >= c.o.Failures || c.results == breakerWindow && bits.OnesCount32(c.window) >= breakerRatio ||
				atOnce(err) {
				return c.tripLocked(err), true
			}
		}
	}
	return 0, false
}

// atOnce reports whether err alone opens the circuit.
func atOnce(err error) bool {
	e := batch.Inspect(err)
	return e.Kind == batch.KindFatal || e.After >= longAfter
}

// flowed notes that a batch that was not asked for here was delivered.
func (c *circuit) flowed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == Closed && c.ramp == 0 {
		c.consecutive = 0
		c.noteLocked(0)
	}
}

// noteLocked adds a result to the window.
func (c *circuit) noteLocked(bit uint32) {
	c.window = (c.window<<1 | bit) & (1<<breakerWindow - 1)
	c.results = min(c.results+1, breakerWindow)
}

// tripLocked opens the circuit and returns the time until the first probe.
func (c *circuit) tripLocked(err error) time.Duration {
	e := batch.Inspect(err)
	ceil := backoff.Ceil(c.o.OpenMin, c.o.OpenMax, c.opened)
	wait := max(backoff.Jitter(ceil/2, ceil), floor(&e))
	if e.Kind == batch.KindFatal {
		wait = max(wait, c.o.FatalDelay)
	}
	c.opened++
	c.trips++
	c.ramp = 0
	c.cause = err
	c.until = time.Now().Add(wait)
	c.setLocked(Open, err)
	return wait
}

// setLocked changes the state and tells subscribers.
func (c *circuit) setLocked(to State, err error) {
	t := Transition{Time: time.Now(), From: c.state, To: to, Err: err}
	c.state = to
	c.epoch++
	if to == Closed {
		c.cause = nil
	}
	for _, s := range c.subs {
		c.tellLocked(s, t)
	}
}

// tellLocked never waits: if the channel is full, the oldest transition in it is
// lost. Only the subscriber receives beside it, so room is made in one step.
func (c *circuit) tellLocked(s *subscriber, t Transition) {
	for {
		t.Lost = s.lost
		select {
		case s.ch <- t:
			return
		default:
		}
		select {
		case <-s.ch:
			s.lost++
			c.lost++
		default:
		}
	}
}

func (c *circuit) subscribe() (<-chan Transition, func()) {
	s := &subscriber{ch: make(chan Transition, transitionsKept)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		close(s.ch)
		return s.ch, func() {}
	}
	c.subs = append(c.subs, s)
	return s.ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, other := range c.subs {
			if other == s {
				c.subs = append(c.subs[:i], c.subs[i+1:]...)
				close(s.ch)
				return
			}
		}
	}
}

// close ends all subscriptions.
func (c *circuit) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, s := range c.subs {
		close(s.ch)
	}
	c.subs = nil
}

// clear reports whether batches of any size may be sent at once.
func (c *circuit) clear() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == Closed && c.ramp == 0
}

// isOpen reports whether nothing goes through.
func (c *circuit) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == Open && time.Until(c.until) > 0
}

// lastCause returns what opened the circuit, nil while it is closed.
func (c *circuit) lastCause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}
