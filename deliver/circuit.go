package deliver

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/forebay-log/forebay/internal/backoff"
)

// ErrOpen is wrapped by the error of a Flush while the circuit is open.
var ErrOpen = errors.New("circuit breaker is open")

// openError says that the circuit is open, and why.
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
// Closed, batches are sent as they come. Open, nothing is sent. Half-open, the
// oldest ProbeRecords records are sent, one batch at a time. After the last success
// batches grow twofold until one fits whole.
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

// A Transition is a change of state of a circuit breaker, or a failure that changes none:
// then From and To are Closed.
type Transition struct {
	Time     time.Time
	From, To State
	// Err is the failure, also the one that made it open; nil for the other transitions.
	Err error
	// Lost is how many transitions this subscriber has missed so far because it
	// did not read in time.
	Lost uint64
}

// Defaults of [BreakerOptions].
const (
	defaultBreakerFailures  = 5
	defaultBreakerOpenMin   = time.Second
	defaultBreakerOpenMax   = time.Minute
	defaultBreakerProbe     = 10
	defaultBreakerSuccesses = 2

	breakerWindow = 20 // results the ratio is taken over
	breakerRatio  = 10 // failures among them that open

	// transitionsKept is the capacity of a subscriber's channel.
	transitionsKept = 16

	// longAfter is from which Retry-After on the destination counts as down at
	// once: it has said so itself, and counting further failures would take as
	// many such waits, with the spool and the handler unused.
	longAfter = 5 * time.Second
)

// maxRetryAfter is the longest wait that a destination may ask for
// ([batch.RetryAfter]); longer ones count as this. A clock that is wrong at the
// other end must not stop delivery for days.
const maxRetryAfter = 10 * time.Minute

// BreakerOptions configures the circuit breaker of an [Output]. The zero value is
// useful: each field states its default and unit.
type BreakerOptions struct {
	// Failures is how many failures in a row open the breaker. Default 5.
	// Independent of it, 10 failures among the last 20 results do.
	Failures int `yaml:"failures"`
	// OpenMin and OpenMax bound how long the breaker stays open before it
	// probes: half to the whole of OpenMin at first, twice as long each time the
	// probe fails, up to OpenMax. The wait that the destination asked for
	// ([batch.RetryAfter]) is a floor, up to 10 minutes. Defaults 1 s and
	// 1 min.
	OpenMin time.Duration `yaml:"open_min"`
	OpenMax time.Duration `yaml:"open_max"`
	// FatalDelay is the least time it stays open after [batch.Hold], which
	// opens it at once. Default 1 min.
	FatalDelay time.Duration `yaml:"fatal_delay"`
	// ProbeRecords is how many records of a batch are sent as a probe. Default
	// 10.
	ProbeRecords int `yaml:"probe_records"`
	// Successes is how many probes in a row must succeed. Default 2.
	Successes int `yaml:"successes"`
}

func (o *BreakerOptions) resolve() (BreakerOptions, error) {
	var r BreakerOptions
	if o != nil {
		r = *o
	}
	setDefault(&r.Failures, defaultBreakerFailures)
	setRange(&r.OpenMin, &r.OpenMax, defaultBreakerOpenMin, defaultBreakerOpenMax)
	setDefault(&r.FatalDelay, defaultFatalDelay)
	setDefault(&r.ProbeRecords, defaultBreakerProbe)
	setDefault(&r.Successes, defaultBreakerSuccesses)
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

// circuit is the circuit breaker. The outlet's goroutine makes all changes;
// others look at the state and subscribe.
type circuit struct {
	o      BreakerOptions
	jitter func(lo, hi time.Duration) time.Duration

	// mu is a leaf: subscribers are told under it without waiting.
	mu          sync.Mutex
	state       State
	since       time.Time
	consecutive int    // failures in a row
	window      uint32 // the last results, the newest in bit 0; 1: failure
	results     int    // how many of them there are
	until       time.Time
	opened      int // times opened since the last full ramp-up
	successes   int // half-open: in a row
	ramp        int // records per batch while ramping up; 0: no limit
	cause       error
	trips       uint64
	subs        []*subscriber
	lost        uint64
	closed      bool
	// upto ends when the circuit opens, its cause says why; nil: nobody has asked since
	// it was open.
	upto    context.Context
	endUpto context.CancelCauseFunc
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
	switch c.state {
	case Open:
		if now.Before(c.until) {
			return 0, false, c.until
		}
		c.successes = 0
		c.setLocked(now, HalfOpen, nil)
		fallthrough
	case HalfOpen:
		return c.o.ProbeRecords, true, now
	}
	return c.ramp, true, now
}

// calm reports whether the circuit is closed and has seen no failure lately.
func (c *circuit) calm() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == Closed && c.window == 0 && c.ramp == 0
}

// shut reports whether nothing may be sent now.
func (c *circuit) shut(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == Open && now.Before(c.until)
}

// probeGrace is how long a probe may take before the handler is asked beside it: a
// destination that hangs answers no sooner than its own timeout.
const probeGrace = time.Second

// out reports whether the handler is to be asked: nothing may be sent now, or a probe
// hangs.
func (c *circuit) out(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == Open && now.Before(c.until) || c.state == HalfOpen && c.successes == 0 && now.Sub(c.since) >= probeGrace
}

// untilOpen returns a context that ends as soon as the circuit is open. Its cause is an
// *openError.
func (c *circuit) untilOpen() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.upto == nil {
		c.upto, c.endUpto = context.WithCancelCause(context.Background())
		if c.state == Open {
			c.endUpto(&openError{c.cause})
		}
	}
	return c.upto
}

// worked notes that the destination took a batch, or refused records: it is well.
// cut says that the batch was made smaller because of the circuit.
func (c *circuit) worked(now time.Time, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.state {
	case HalfOpen:
		if c.successes++; c.successes >= c.o.Successes {
			c.setLocked(now, Closed, nil)
			c.consecutive, c.window, c.results = 0, 0, 0
			c.ramp = 2 * c.o.ProbeRecords
		}
	case Closed:
		c.consecutive = 0
		c.noteLocked(0)
		if c.ramp > 0 {
			if cut {
				c.ramp *= 2
			} else {
				c.ramp, c.opened = 0, 0
			}
		}
	}
}

// failed notes a failure. It reports whether that opened the circuit.
func (c *circuit) failed(now time.Time, s setback) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.state {
	case HalfOpen:
		c.tripLocked(now, s)
		return true
	case Closed:
		c.consecutive++
		c.noteLocked(1)
		if c.consecutive >= c.o.Failures || c.results == breakerWindow && bits.OnesCount32(c.window) >= breakerRatio ||
			s.hold || s.after >= longAfter {
			c.tripLocked(now, s)
			return true
		}
		for _, sub := range c.subs {
			c.tellLocked(sub, Transition{Time: now, From: Closed, To: Closed, Err: s.err})
		}
	}
	return false
}

// noteLocked adds a result to the window.
func (c *circuit) noteLocked(bit uint32) {
	c.window = (c.window<<1 | bit) & (1<<breakerWindow - 1)
	c.results = min(c.results+1, breakerWindow)
}

// tripLocked opens the circuit.
func (c *circuit) tripLocked(now time.Time, s setback) {
	ceil := backoff.Ceil(c.o.OpenMin, c.o.OpenMax, c.opened)
	wait := max(c.jitter(ceil/2, ceil), min(s.after, maxRetryAfter))
	if s.hold {
		wait = max(wait, c.o.FatalDelay)
	}
	c.opened++
	c.trips++
	c.ramp = 0
	c.cause = s.err
	c.until = now.Add(wait)
	c.setLocked(now, Open, s.err)
}

// hurry brings the next probe forward to at.
func (c *circuit) hurry(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until.After(at) {
		c.until = at
	}
}

// setLocked changes the state and tells subscribers.
func (c *circuit) setLocked(now time.Time, to State, err error) {
	t := Transition{Time: now, From: c.state, To: to, Err: err}
	switch {
	case c.upto == nil:
	case to == Open:
		c.endUpto(&openError{err})
	case c.state == Open:
		c.upto = nil
	}
	c.state, c.since = to, now
	if to == Closed {
		c.cause = nil
	}
	for _, s := range c.subs {
		c.tellLocked(s, t)
	}
}

// tellLocked never waits: if the channel is full, a failure is lost, and for a change of
// state the oldest transition in it. Only the subscriber receives beside it, so room is
// made in one step.
func (c *circuit) tellLocked(s *subscriber, t Transition) {
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
	return c.state, c.trips, c.lost, c.cause
}
