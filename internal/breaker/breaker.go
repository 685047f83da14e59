// Package breaker implements the circuit breaker of a destination. It determines when to stop
// sending, when to probe, and how many records to send. It has no clock, lock or goroutine: package
// deliver drives one circuit per destination, and package fleet drives thousands in simulated time.
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
	window = 20 // number of latest results that the circuit considers
	ratio  = 10 // number of failures among these results that opens the circuit

	// probeGrace is how long a probe may run before records also go to the error handler. If the
	// destination hangs, the probe ends only after its timeout.
	probeGrace = time.Second
)

// LongAfter is the shortest requested wait that opens the circuit at once. A destination that
// requests such a wait has announced that it is down.
const LongAfter = 5 * time.Second

// MaxAfter limits the wait that a destination may request, because a wrong clock of a server must
// not stop delivery for days.
const MaxAfter = 10 * time.Minute

// State is the state of a circuit. See deliver.State for the transitions.
type State uint8

// The states.
const (
	Closed State = iota
	Open
	HalfOpen
)

// Options are deliver.BreakerOptions with every field set.
type Options struct {
	Failures     int
	OpenMin      time.Duration
	OpenMax      time.Duration
	FatalDelay   time.Duration
	ProbeRecords int
	Successes    int
}

// Default returns the default options.
func Default() Options {
	return Options{Failures, OpenMin, OpenMax, FatalDelay, ProbeRecords, Successes}
}

// A Circuit is the circuit breaker of one destination. It is not safe for concurrent use.
type Circuit struct {
	o      Options
	jitter func(lo, hi time.Duration) time.Duration
	moved  func(now time.Time, from, to State) // called for each transition; may be nil

	state       State
	since       time.Time // time at which the state was entered
	consecutive int       // number of consecutive failures
	window      uint32    // latest results, the newest in bit 0; 1 means failure
	results     int       // number of results in window
	until       time.Time
	floor       time.Time // no probe before this time, because the destination requested a wait
	opened      int       // number of times the circuit opened since batches last had full size
	successes   int       // half-open: number of consecutive successes
	ramp        int       // records per batch while the size of batches grows again; 0: no limit
}

// New returns a closed circuit. The function jitter returns a random delay from lo to hi. The
// function moved is called for each transition; it may be nil.
func New(o Options, jitter func(lo, hi time.Duration) time.Duration, moved func(now time.Time, from, to State)) *Circuit {
	return &Circuit{o: o, jitter: jitter, moved: moved}
}

// State returns the state. Only calls of methods change it: an open circuit becomes half-open when
// Admit is called, not when its wait ends.
func (c *Circuit) State() State { return c.state }

// Until returns the time from which an open circuit may be probed. It is valid only in the state
// Open.
func (c *Circuit) Until() time.Time { return c.until }

// Consecutive returns the number of consecutive failures of a closed circuit.
func (c *Circuit) Consecutive() int { return c.consecutive }

// Admit reports whether a batch may be sent now. limit is its maximum number of records; 0 means no
// limit. If ok is false, until is the time of the next attempt. If the wait of an open circuit has
// ended, Admit makes the circuit half-open.
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

// Calm reports whether the circuit is closed and has no recent failures.
func (c *Circuit) Calm() bool { return c.state == Closed && c.window == 0 && c.ramp == 0 }

// Shut reports whether the circuit is open and its next probe is not due.
func (c *Circuit) Shut(now time.Time) bool { return c.state == Open && now.Before(c.until) }

// Out reports whether records must go to the error handler. It is true while nothing may be sent,
// and while the first probe has run for longer than probeGrace.
func (c *Circuit) Out(now time.Time) bool {
	return c.Shut(now) || c.state == HalfOpen && c.successes == 0 && now.Sub(c.since) >= probeGrace
}

// Worked is called after the destination has accepted a batch or rejected some of its records; both
// show that it is available. cut reports whether the circuit limited the size of the batch.
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

// Failed counts a failure and reports whether it opened the circuit. after is the wait that the
// destination requested. hold is true if the failure will last until someone changes the
// configuration.
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

// Hurry moves the next probe forward to the time t, unless the probe is due before t.
func (c *Circuit) Hurry(t time.Time) {
	if c.until.After(t) {
		c.until = t
	}
}

// Probe makes the next probe of an open circuit due now or, if that is later, gap after the circuit
// opened. During a wait that the destination requested, Probe does nothing and returns false.
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

// note adds a result to the window of latest results.
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

// enter changes the state. All transitions are made here.
func (c *Circuit) enter(now time.Time, to State) {
	from := c.state
	if c.state, c.since = to, now; c.moved != nil {
		c.moved(now, from, to)
	}
}

type withoutProbe struct{}

// WithoutProbe returns a context for a Flush that does not probe an open circuit. It is used for
// the Flush of forebay.SyncLevel, which may be called after each record.
func WithoutProbe(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutProbe{}, true)
}

// MayProbe reports whether a Flush with ctx probes an open circuit.
func MayProbe(ctx context.Context) bool { return ctx.Value(withoutProbe{}) == nil }
