package deliver

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/forebay-log/forebay/internal/breaker"
)

// ErrOpen is wrapped by the error of a Flush that ended because the circuit is open: a probe
// failed, or the destination asked for a delay.
var ErrOpen = errors.New("circuit breaker is open")

// openError returns the error that reports an open circuit. cause may be nil.
func openError(cause error) error {
	if cause == nil {
		return ErrOpen
	}
	return fmt.Errorf("%w: %w", ErrOpen, cause)
}

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

// A Transition is a change of state of a circuit breaker, or a failure that does not change the
// state. For such a failure, From and To are Closed.
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
// delays are reduced to it.
const maxRetryAfter = breaker.MaxAfter

// A setback describes a failed attempt, as far as it matters to the circuit.
type setback struct {
	err   error
	after time.Duration // the wait that the destination asked for
	hold  bool          // a retry cannot succeed before the configuration changes
}

// circuit is the circuit breaker of an outlet. Only the loop uses it, but any goroutine may use its
// subscribers.
type circuit struct {
	*breaker.Circuit
	latest      error // the latest failure
	cause       error // the failure that opened the circuit; nil while it is closed
	trips       uint64
	subscribers subscribers
}

// newCircuit returns a closed circuit. jitter returns a random duration between lo and hi.
func newCircuit(o BreakerOptions, jitter func(lo, hi time.Duration) time.Duration) *circuit {
	c := new(circuit)
	c.Circuit = breaker.New(breaker.Options(o), jitter, c.moved)
	return c
}

func (c *circuit) state() State { return State(c.State()) }

// failed is called after a failed attempt. It reports whether this failure opened the circuit.
func (c *circuit) failed(now time.Time, s setback) bool {
	c.latest = s.err
	if c.Failed(now, s.after, s.hold) {
		return true
	}
	if c.state() == Closed {
		c.subscribers.post(Transition{Time: now, From: Closed, To: Closed, Err: s.err})
	}
	return false
}

// moved sends a transition to the subscribers, and counts it if the circuit has opened.
func (c *circuit) moved(now time.Time, from, to breaker.State) {
	t := Transition{Time: now, From: State(from), To: State(to)}
	switch t.To {
	case Open:
		c.trips++
		c.cause, t.Err = c.latest, c.latest
	case Closed:
		c.cause = nil
	}
	c.subscribers.post(t)
}

// subscribers are the receivers of the transitions of a circuit.
type subscribers struct {
	mu     sync.Mutex // leaf lock; guards the fields below. It is never held while waiting.
	all    []*subscriber
	closed bool
}

// A subscriber is one receiver. subscribers.mu guards it.
type subscriber struct {
	ch   chan Transition
	lost uint64
}

// post sends t to all subscribers without waiting.
func (s *subscribers) post(t Transition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.all {
		sub.send(t)
	}
}

// send sends t to the subscriber without waiting. If the channel is full, a failure without a
// change of state is dropped. For a change of state, the oldest transition in the channel is
// dropped instead. That makes room, because no other goroutine sends to the channel.
func (s *subscriber) send(t Transition) {
	if len(s.ch) == cap(s.ch) {
		if t.From == t.To {
			s.lost++
			return
		}
		select {
		case <-s.ch:
			s.lost++
		default:
		}
	}
	t.Lost = s.lost
	s.ch <- t
}

// subscribe returns a channel with the transitions from now on, and a function that ends the
// subscription. A slow subscriber misses the oldest transitions.
func (s *subscribers) subscribe() (<-chan Transition, func()) {
	sub := &subscriber{ch: make(chan Transition, transitionsKept)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		close(sub.ch)
		return sub.ch, func() {}
	}
	s.all = append(s.all, sub)
	return sub.ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if i := slices.Index(s.all, sub); i >= 0 {
			s.all = slices.Delete(s.all, i, i+1)
			close(sub.ch)
		}
	}
}

// close ends all subscriptions.
func (s *subscribers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, sub := range s.all {
		close(sub.ch)
	}
	s.all = nil
}
