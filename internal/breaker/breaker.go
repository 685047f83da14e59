// Package breaker decides when a destination that fails is left alone, and when and with
// how much it is tried again. It has no clock, lock or goroutine of its own: package deliver
// drives one circuit for each destination, and package fleet thousands in simulated time.
package breaker

import (
	"context"
	"math/bits"
	"time"

	"github.com/forebay-log/forebay/internal/backoff"
)

// Defaults of [Options].
const (
	Failures     = 5
	OpenMin      = time.Second
	OpenMax      = time.Minute
	FatalDelay   = time.Minute
	ProbeRecords = 10
	Successes    = 2
)

const (
	window = 20 // results the ratio is taken over
	ratio  = 10 // failures among them that open

	// probeGrace is how long a probe may take before the handler is asked beside it: a
	// destination that hangs answers no sooner than its own timeout.
	probeGrace = time.Second
)

// LongAfter is from which wait that a destination asks for it counts as down at once: it has
// said so itself, and counting further failures would take as many such waits, with the spool
// and the handler unused.
const LongAfter = 5 * time.Second

// MaxAfter is the longest wait that a destination may ask for; longer ones count as this.
// A clock that is wrong at the other end must not stop delivery for days.
const MaxAfter = 10 * time.Minute

// State is where a circuit is. deliver.State has the drawing.
type State uint8

// The states.
const (
	Closed State = iota
	Open
	HalfOpen
)

// Options are those of deliver.BreakerOptions, all given.
type Options struct {
	Failures     int
	OpenMin      time.Duration
	OpenMax      time.Duration
	FatalDelay   time.Duration
	ProbeRecords int
	Successes    int
}

// Default returns the options that hold where nothing else is said.
func Default() Options {
	return Options{Failures, OpenMin, OpenMax, FatalDelay, ProbeRecords, Successes}
}

// A Circuit is the circuit breaker of one destination. It is not safe for concurrent use.
type Circuit struct {
	o      Options
	jitter func(lo, hi time.Duration) time.Duration

	state       State
	since       time.Time // when it got there
	consecutive int       // failures in a row
	window      uint32    // the last results, the newest in bit 0; 1: failure
	results     int       // how many of them there are
	until       time.Time
	floor       time.Time // the destination asked for no probe before
	opened      int       // times opened since the last full ramp-up
	successes   int       // half-open: in a row
	ramp        int       // records per batch while ramping up; 0: no limit
}

// New returns a closed circuit. jitter chooses a wait between two.
func New(o Options, jitter func(lo, hi time.Duration) time.Duration) *Circuit {
	return &Circuit{o: o, jitter: jitter}
}

// State returns the state.
func (c *Circuit) State() State { return c.state }

// Until returns when an open circuit may be probed; it means nothing in other states.
func (c *Circuit) Until() time.Time { return c.until }

// Consecutive returns how many failures in a row a closed circuit has seen.
func (c *Circuit) Consecutive() int { return c.consecutive }

// Admit asks whether something may be sent now. It returns how many records at most, 0
// for no limit, or false with the time until it makes sense to ask again. An open circuit
// whose time is over becomes half-open.
func (c *Circuit) Admit(now time.Time) (limit int, ok bool, until time.Time) {
	switch c.state {
	case Open:
		if now.Before(c.until) {
			return 0, false, c.until
		}
		c.successes = 0
		c.enter(now, HalfOpen)
		fallthrough
	case HalfOpen:
		return c.o.ProbeRecords, true, now
	}
	return c.ramp, true, now
}

// Calm reports whether the circuit is closed and has seen no failure lately.
func (c *Circuit) Calm() bool { return c.state == Closed && c.window == 0 && c.ramp == 0 }

// Shut reports whether nothing may be sent now.
func (c *Circuit) Shut(now time.Time) bool { return c.state == Open && now.Before(c.until) }

// Out reports whether a handler is to be asked: nothing may be sent now, or a probe hangs.
func (c *Circuit) Out(now time.Time) bool {
	return c.Shut(now) || c.state == HalfOpen && c.successes == 0 && now.Sub(c.since) >= probeGrace
}

// Worked notes that the destination took a batch, or refused records: it is well. cut says
// that the batch was made smaller because of the circuit.
func (c *Circuit) Worked(now time.Time, cut bool) {
	switch c.state {
	case HalfOpen:
		if c.successes++; c.successes >= c.o.Successes {
			c.enter(now, Closed)
			c.consecutive, c.window, c.results = 0, 0, 0
			c.ramp = 2 * c.o.ProbeRecords
		}
	case Closed:
		c.consecutive = 0
		c.note(0)
		if c.ramp > 0 {
			if cut {
				c.ramp *= 2
			} else {
				c.ramp, c.opened = 0, 0
			}
		}
	}
}

// Failed notes a failure: after is the wait that the destination asked for, hold says that
// only a change of configuration will help. It reports whether that opened the circuit.
func (c *Circuit) Failed(now time.Time, after time.Duration, hold bool) bool {
	switch c.state {
	case HalfOpen:
		c.trip(now, after, hold)
		return true
	case Closed:
		c.consecutive++
		c.note(1)
		if c.consecutive >= c.o.Failures || c.results == window && bits.OnesCount32(c.window) >= ratio ||
			hold || after >= LongAfter {
			c.trip(now, after, hold)
			return true
		}
	}
	return false
}

// Hurry brings the next probe forward to at.
func (c *Circuit) Hurry(at time.Time) {
	if c.until.After(at) {
		c.until = at
	}
}

// Probe brings the next probe of an open circuit forward to now, or to gap after the circuit
// opened. It reports false, and does nothing, while the destination has asked for a wait.
func (c *Circuit) Probe(now time.Time, gap time.Duration) bool {
	if c.state != Open {
		return true
	}
	if now.Before(c.floor) {
		return false
	}
	c.Hurry(latest(now, c.since.Add(gap)))
	return true
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// note adds a result to the window.
func (c *Circuit) note(bit uint32) {
	c.window = (c.window<<1 | bit) & (1<<window - 1)
	c.results = min(c.results+1, window)
}

func (c *Circuit) trip(now time.Time, after time.Duration, hold bool) {
	ceil := backoff.Ceil(c.o.OpenMin, c.o.OpenMax, c.opened)
	wait := max(c.jitter(ceil/2, ceil), min(after, MaxAfter))
	if hold {
		wait = max(wait, c.o.FatalDelay)
	}
	c.opened++
	c.ramp = 0
	c.until, c.floor = now.Add(wait), now.Add(min(after, MaxAfter))
	c.enter(now, Open)
}

// enter is the only way from one state to another.
func (c *Circuit) enter(now time.Time, to State) { c.state, c.since = to, now }

type withoutProbe struct{}

// WithoutProbe returns a context for a Flush that does not probe an open circuit, because it
// is one of many: it follows each record of a level.
func WithoutProbe(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutProbe{}, true)
}

// MayProbe reports whether a Flush within ctx probes an open circuit.
func MayProbe(ctx context.Context) bool { return ctx.Value(withoutProbe{}) == nil }
