package deliver

import (
	"time"

	"github.com/forebay-log/forebay/batch"
)

// Stats is a snapshot of the delivery of an [Output]. Counts start at NewOutput and are numbers of
// records unless stated otherwise.
type Stats struct {
	Name string
	// Account has the records that the outlet has settled, and the pending records in the spool and
	// in copies. A record in the slabs is pending in slab.Stats until it is settled.
	// [Output.Account] has the sum.
	batch.Account
	Breaker  State
	Trips    uint64 // times the circuit has opened
	Attempts uint64 // batches passed to the destination
	Retries  uint64 // failed attempts
	Bytes    uint64 // payload bytes that the destination accepted, gap markers included
	Panics   uint64 // calls of the driver that panicked or called runtime.Goexit
	Spilling bool   // the spool has records that are not delivered yet
	Spilled  uint64 // written to the spool so far
	// OldestAge is the age of the oldest undelivered record that the outlet has taken from the
	// slabs. It counts from the record's timestamp or, if it has none, from the time at which it
	// was taken. 0 if there is no such record. spool.Stats covers records in the spool, and
	// slab.Stats those still waiting in the slabs.
	OldestAge time.Duration
	// OldestWait is the time since the oldest unsettled batch was taken from the slabs. 0 if there
	// is none. slab.Stats.OldestWait covers records that were not taken yet and, if the destination
	// is inline, records in their first Send.
	OldestWait time.Duration

	HandlerCalls  uint64
	HandlerErrors uint64 // calls of the handler that failed, or did not return
	// Suspects is the number of records that were set aside and sent alone, because sessions may
	// have failed because of them. Such records are delivered out of order, or dropped as poison.
	Suspects        uint64
	LostDeadLetters uint64 // refused, and the dead letter could not be written
	BatchBytes      int    // current limit on the payload bytes of a batch, after one was too large; 0: none
	// FailingSince is the time of the first failure since the destination last accepted a batch;
	// zero while the destination is healthy. Gone reports whether the destination has ended
	// permanently.
	FailingSince time.Time
	Gone         bool
	// LastError is the text of the driver's error while the destination fails, and empty while it
	// is healthy. It may contain secrets: see the package comment.
	LastError string
}
