package batch

import (
	"fmt"
	"slices"
)

// An Event is a transition of interest to an operator: the first failure of a destination, its
// recovery, a panic, or a series of drops. Not every failure is an event, but the counters include
// all failures. docs/OPERATING.md describes each event and its remedy.
type Event struct {
	// Output is the name of the output or destination.
	Output string
	// Op names the transition:
	//
	//   - of a Router: write, encode, drop, panic, closed, recovered, and file for an output
	//     of forebay.File
	//   - of memory (package slab): drop, drop-end, panic, crash-safe, recover, recovered-from-disk
	//   - of package deliver: send, hold, gone, recovered, count, expired, handle, handled,
	//     handler, handler-recovered, poison, too-large, dead-letter, spill, spilled,
	//     spill-error, panic
	//   - of a spool: recover, corrupt, parked, drop, drop-end, sync
	//   - of a loki.Driver: label-values, too-old
	//   - of a fluent.Driver: no-ack
	//   - of an otlp.Driver: partial-success
	Op string
	// Err is the cause. It is nil if the event reports a recovery, or records found on disk at
	// startup.
	Err error
	// Count is the number of records that the event concerns, or 0 if there is no such number.
	Count uint64
	// Dropped contains the dropped records by reason. It is set only in the events drop and
	// drop-end of memory and of a spool, and its sum is Count.
	Dropped Drops
}

// String returns the event on one line, such as "loki: send: connection refused (12 records)".
func (e Event) String() string {
	s := e.Output + ": " + e.Op
	if e.Err != nil {
		s += ": " + fmt.Sprint(e.Err) // fmt recovers panics of its Error method
	}
	if e.Dropped != (Drops{}) {
		s += ": " + e.Dropped.String()
	}
	if e.Count > 1 && !slices.Contains(e.Dropped[:], e.Count) { // otherwise the number is there already
		s += fmt.Sprintf(" (%d records)", e.Count)
	}
	return s
}
