// Package wallclock gives the time of a record for a little more than half of what
// time.Now costs.
package wallclock

import (
	"sync/atomic"
	"time"
)

// clock relies on this: reading the monotonic clock is cheap, and its distance
// from the wall clock hardly ever changes. That distance is measured anew every clockResync, so
// a wall clock that is set shows within that time.
//
// Between two measurements, and across those that find no difference beyond what
// reading two clocks one after the other explains, times rise as the monotonic
// clock does.
type clock struct {
	// offset is what to add to the nanoseconds since clockBase to get Unix
	// nanoseconds. It holds while those are in [until-clockResync, until).
	offset atomic.Int64
	until  atomic.Int64 // 0: being measured
}

const (
	clockResync = 5 * time.Millisecond
	clockJitter = 10 * time.Microsecond
	// clockGap is how long reading both clocks may take: with an interruption in
	// between, they say nothing about each other.
	clockGap   = 2 * time.Microsecond
	clockTries = 4
)

// clockBase has a monotonic reading, so time.Since reads that clock alone. In a
// synctest bubble there is no such clock: time.Since compares the bubble's wall
// clock, which is decades from any range in which an offset holds.
var clockBase = time.Now()

// shared by all: there is one wall.
var shared = newClock()

// Now returns the current time, without a monotonic reading, as time.Now does in
// time.Local. It may be called from several goroutines at once.
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
		return time.Unix(0, m+c.offset.Load()) // if that is newer, all the better
	}
	return c.measure(m, until)
}

// measure takes the time from both clocks. m is the monotonic one, read just
// before.
func (c *clock) measure(m, until int64) time.Time {
	t := time.Now()
	if t == t.Round(0) {
		return t // a bubble's, where there is nothing to measure
	}
	if until == 0 || !c.until.CompareAndSwap(until, 0) {
		return t.Round(0) // somebody else is at it
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
