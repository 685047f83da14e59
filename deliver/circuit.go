package deliver

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/forebay-log/forebay/internal/breaker"
)

// ErrOpen is wrapped by the error of a Flush that ended because of the open circuit: a probe
// failed, or the destination asked for a delay.
var ErrOpen = errors.New("circuit breaker is open")

// openError is the error of an open circuit, with its cause.
type openError struct{ cause error }

func (e *openError) Error() string {
	if e.cause == nil {
		return ErrOpen.Error()
	}
	return ErrOpen.Error() + ": " + e.cause.Error()
}

func (e *openError) Is(target error) bool { return target == ErrOpen }
func (e *openError) Unwrap() error        { return e.cause }

// State is the state of the circuit breaker of an [Output].
//
//	  5 failures in a row, 10 of the last 20, Hold, or Retry-After of 5 s or more
//	closed ──────────────────────────────────────────────────▶ open ◀─┐
//	   ▲                                                        │      │
//	   │ 2 successes               time over, something waits   │      │ failure
//	   └───────────────────────── half-open ◀───────────────────┘      │
//	                                  └────────────────────────────────┘
//
// Closed: batches are sent without delay. Open: nothing is sent. Half-open: the oldest ProbeRecords
// records are sent as a probe, one batch at a time. After the last successful probe, the batch size
// doubles until a whole batch is sent.
type State uint8

// The states.
const (
	Closed   State = iota // all batches are sent
	Open                  // nothing is sent
	HalfOpen              // a few records are sent as a probe
)

var stateNames = [...]string{"closed", "open", "half-open"}

// String returns "closed", "open" or "half-open".
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", s)
}

// A Transition is a change of state of a circuit breaker, or a failure without such a change: then
// From and To are Closed.
type Transition struct {
	Time     time.Time
	From, To State
	// Err is the failure that was reported or that opened the circuit; nil for other transitions.
	Err error
	// Lost is the number of transitions that this subscriber has missed so far because it did not
	// read in time.
	Lost uint64
}

// transitionsKept is the capacity of a subscriber's channel.
const transitionsKept = 16

// maxRetryAfter is the longest delay that a destination may ask for ([batch.RetryAfter]). Longer
// ones are reduced to it.
const maxRetryAfter = breaker.MaxAfter

// BreakerOptions configures the circuit breaker of an [Output]. The zero value is
// useful: each field states its default and unit.
type BreakerOptions struct {
	// Failures is the number of consecutive failures that open the circuit. Default 5.
	// Independently of this, 10 failures among the last 20 results open it too.
	Failures int `yaml:"failures"`
	// OpenMin and OpenMax limit the time that the circuit stays open before a probe: at first a
	// random time between half of OpenMin and OpenMin, doubled after each failed probe up to
	// OpenMax. It is never shorter than the delay that the destination asked for
	// ([batch.RetryAfter]), of which at most 10 minutes are honored. Defaults 1 s and 1 min.
	OpenMin time.Duration `yaml:"open_min"`
	OpenMax time.Duration `yaml:"open_max"`
	// FatalDelay is the minimum time that the circuit stays open after [batch.Hold], which opens it
	// at once. Default 1 min.
	FatalDelay time.Duration `yaml:"fatal_delay"`
	// ProbeRecords is the maximum number of records in a probe. Default 10.
	ProbeRecords int `yaml:"probe_records"`
	// Successes is the number of consecutive probes that must succeed before the circuit closes.
	// Default 2.
	Successes int `yaml:"successes"`
}

func (o *BreakerOptions) resolve() (BreakerOptions, error) {
	var r BreakerOptions
	if o != nil {
		r = *o
	}
	setDefault(&r.Failures, breaker.Failures)
	setRange(&r.OpenMin, &r.OpenMax, breaker.OpenMin, breaker.OpenMax)
	setDefault(&r.FatalDelay, breaker.FatalDelay)
	setDefault(&r.ProbeRecords, breaker.ProbeRecords)
	setDefault(&r.Successes, breaker.Successes)
	switch {
	case r.Failures < 0:
		return r, fmt.Errorf("deliver: breaker: Failures is %d: want 1 or more", r.Failures)
	case r.OpenMin < 0:
		return r, fmt.Errorf("deliver: breaker: OpenMin is %s: want more than 0", r.OpenMin)
	case r.OpenMax < r.OpenMin:
		return r, fmt.Errorf("deliver: breaker: OpenMax is %s, below OpenMin, which is %s", r.OpenMax, r.OpenMin)
	case r.FatalDelay < 0:
		return r, fmt.Errorf("deliver: breaker: FatalDelay is %s: want more than 0", r.FatalDelay)
	case r.ProbeRecords < 0:
		return r, fmt.Errorf("deliver: breaker: ProbeRecords is %d: want 1 or more", r.ProbeRecords)
	case r.Successes < 0:
		return r, fmt.Errorf("deliver: breaker: Successes is %d: want 1 or more", r.Successes)
	}
	return r, nil
}

// A setback is a failed attempt as the circuit sees it.
type setback struct {
	err   error
	after time.Duration // the wait that the destination asked for
	hold  bool          // only a change of configuration will help
}

// circuit is the circuit breaker: the decisions (package internal/breaker), guarded by a lock, and
// their subscribers. The outlet's goroutine makes all changes; others read the state and subscribe.
type circuit struct {
	// mu is a leaf: transitions are sent to subscribers under it without waiting.
	mu     sync.Mutex
	decide *breaker.Circuit
	cause  error
	trips  uint64
	subs   []*subscriber
	lost   uint64
	closed bool
}

func newCircuit(o BreakerOptions, jitter func(lo, hi time.Duration) time.Duration) *circuit {
	return &circuit{decide: breaker.New(breaker.Options(o), jitter)}
}

type subscriber struct {
	ch   chan Transition
	lost uint64
}

// admit asks whether something may be sent now. It returns how many records at
// most, 0 for no limit, or false with the time until it makes sense to ask again.
func (c *circuit) admit(now time.Time) (limit int, ok bool, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.stateLocked()
	limit, ok, until = c.decide.Admit(now)
	c.changedLocked(now, before, nil)
	return limit, ok, until
}

// calm reports whether the circuit is closed and has seen no failure lately.
func (c *circuit) calm() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.decide.Calm()
}

// out reports whether the handler should be asked: nothing may be sent now, or a probe hangs.
func (c *circuit) out(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.decide.Out(now)
}

// probe makes an open circuit send a probe now, or gap after it opened. It reports false if the
// destination has asked for a longer wait.
func (c *circuit) probe(now time.Time, gap time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.decide.Probe(now, gap)
}

// worked records that the destination is healthy: it accepted a batch or refused records. cut is set
// if the batch was made smaller because of the circuit.
func (c *circuit) worked(now time.Time, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.stateLocked()
	c.decide.Worked(now, cut)
	c.changedLocked(now, before, nil)
}

// failed notes a failure. It reports whether that opened the circuit.
func (c *circuit) failed(now time.Time, s setback) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.stateLocked()
	if c.decide.Failed(now, s.after, s.hold) {
		c.trips++
		c.cause = s.err
		c.changedLocked(now, before, s.err)
		return true
	}
	if before == Closed {
		for _, sub := range c.subs {
			c.sendLocked(sub, Transition{Time: now, From: Closed, To: Closed, Err: s.err})
		}
	}
	return false
}

// hurry brings the next probe forward to at.
func (c *circuit) hurry(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.decide.Hurry(at)
}

func (c *circuit) stateLocked() State { return State(c.decide.State()) }

// changedLocked sends a transition to subscribers if the state has changed since before.
func (c *circuit) changedLocked(now time.Time, before State, err error) {
	to := c.stateLocked()
	if to == before {
		return
	}
	if to == Closed {
		c.cause = nil
	}
	for _, s := range c.subs {
		c.sendLocked(s, Transition{Time: now, From: before, To: to, Err: err})
	}
}

// sendLocked never waits. If the channel is full, it drops a failure; for a change of state, it drops
// the oldest transition in the channel. The subscriber is the only other receiver, so dropping one
// transition makes room.
func (c *circuit) sendLocked(s *subscriber, t Transition) {
	for {
		t.Lost = s.lost
		select {
		case s.ch <- t:
			return
		default:
		}
		if t.From == t.To {
			s.lost++
			c.lost++
			return
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

// look returns the state, how often the circuit has opened and how many transitions
// subscribers have missed, and the cause of an open circuit.
func (c *circuit) look() (state State, trips, lost uint64, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stateLocked(), c.trips, c.lost, c.cause
}
