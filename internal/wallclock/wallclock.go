// Package wallclock returns the current time for little more than half the cost of time.Now.
package wallclock

import (
	"sync/atomic"
	"time"
)

// A clock relies on two facts: reading the monotonic clock is cheap, and its offset from the wall
// clock rarely changes. The offset is measured again after clockResync. Therefore a change of the
// wall clock is visible within that time.
//
// Between two measurements, the returned times increase like the monotonic clock. After a
// measurement, the returned time can be earlier than before, but only if the new and the old offset
// differ by more than the time between reading the two clocks.
type clock struct {
	// offset is the difference between the wall clock, in Unix nanoseconds, and the nanoseconds
	// since clockBase. It is valid while the nanoseconds since clockBase are in [until-clockResync,
	// until).
	offset atomic.Int64
	until  atomic.Int64 // 0 while a measurement is in progress
}

const (
	clockResync = 5 * time.Millisecond
	clockJitter = 10 * time.Microsecond
	// clockGap is the maximum time for reading both clocks. If it takes longer, for example because
	// of an interrupt, the readings cannot be compared.
	clockGap   = 2 * time.Microsecond
	clockTries = 4
)

// clockBase has a monotonic reading, so time.Since reads only the monotonic clock. In a synctest
// bubble there is no monotonic clock, and time.Since uses the bubble's wall clock. The bubble's
// time is decades away from any range in which an offset is valid.
var clockBase = time.Now()

// shared is the clock that Now uses.
var shared = newClock()

// Now returns the current time in time.Local, like time.Now but without a monotonic reading. It is
// safe for concurrent use.
func Now() time.Time { return shared.now() }

func newClock() *clock {
	c := new(clock)
	c.until.Store(-1)
	c.measure(0, -1)
	return c
}

func (c *clock) now() time.Time {
	m := int64(time.Since(clockBase))
	until := c.until.Load()
	if uint64(until-m-1) < uint64(clockResync) {
		return time.Unix(0, m+c.offset.Load()) // a newer offset stored by another goroutine is more accurate
	}
	return c.measure(m, until)
}

// measure reads both clocks and stores their difference. m is the monotonic time just before the
// call.
func (c *clock) measure(m, until int64) time.Time {
	t := time.Now()
	if t == t.Round(0) {
		return t // in a bubble there is no monotonic clock
	}
	if until == 0 || !c.until.CompareAndSwap(until, 0) {
		return t.Round(0) // another goroutine is measuring or has just measured
	}
	wall, mono := t.UnixNano(), int64(t.Sub(clockBase))
	for range clockTries {
		if time.Duration(mono-m) < clockGap {
			break
		}
		m = mono
		t = time.Now()
		wall, mono = t.UnixNano(), int64(t.Sub(clockBase))
	}
	offset := wall - mono
	noise := int64(clockJitter) + mono - m
	if old := c.offset.Load(); old-offset < noise && offset-old < noise {
		offset = old
	}
	c.offset.Store(offset)
	c.until.Store(mono + int64(clockResync))
	return time.Unix(0, mono+offset)
}
