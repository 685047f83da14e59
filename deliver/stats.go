package deliver

import (
	"time"

	"github.com/forebay-log/forebay/batch"
)

// Stats is a snapshot of the delivery of an [Output]. Counts start at NewOutput and are numbers of
// records unless stated otherwise.
type Stats struct {
	Name string
	// Account has the records that the outlet has settled, and those in its copies and in the
	// spool. A leased record is pending in slab.Stats until it is settled: [Output.Account] has the
	// sum.
	batch.Account
	Breaker  State
	Trips    uint64 // times the circuit has opened
	Attempts uint64 // batches passed to the destination
	Retries  uint64 // failed attempts
	Bytes    uint64 // payload bytes that the destination accepted, gap markers included
	Panics   uint64 // calls of the driver that panicked or called runtime.Goexit
	Spilling bool   // the spool has records that are not delivered yet
	Spilled  uint64 // written to the spool so far
	// OldestAge is the age of the oldest open record that the outlet has leased. It counts from the
	// record's own time or, if it has none, from the lease. 0 if there is none. Records in the
	// spool are in spool.Stats, and records not leased yet in slab.Stats.
	OldestAge time.Duration
	// OldestWait is the time since the oldest unsettled batch was leased. 0 if there is none.
	// slab.Stats.OldestWait covers records that are not leased yet, or whose lease is used for one
	// Send only.
	OldestWait time.Duration

	HandlerCalls  uint64
	HandlerErrors uint64 // calls of the handler that failed, or did not return
	// Suspects is the number of records that were parked while they were probed. Such records are
	// delivered out of order, or dropped as poison.
	Suspects        uint64
	LostDeadLetters uint64 // refused, and the dead letter could not be written
	BatchBytes      int    // current limit on the payload bytes of a batch, after one was too large; 0: none
	// FailingSince is the time of the first failure since the destination last accepted a batch;
	// zero while it is healthy. Gone reports whether it has ended permanently.
	FailingSince time.Time
	Gone         bool
	// LastError is the text of the driver's error while the destination fails, and empty while it
	// is healthy. It may contain secrets: see the package comment.
	LastError string
}
