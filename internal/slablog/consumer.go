package slablog

import (
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
)

// A Consumer describes the consumer of a [Log]: the batches that it accepts, and its other storage
// for records.
type Consumer struct {
	// Limits are the maximum sizes of a batch. If they are zero, a batch has at most a few slabs.
	Limits batch.Limits
	// Busy reports whether the consumer has as many batches as it may send. When that changes, it
	// calls Next. Until then, the age of records is no reason for a lease if there are Limits,
	// because records may arrive that fit into the same batch. Next calls Busy with locks held.
	// Default nil: never.
	Busy func() bool
	// Dictionary defines the streams of records. Default nil: none.
	Dictionary batch.Dictionary
	// Several allows batches of several slabs even without Limits. Default false: one slab.
	Several bool
	// Vectors reports that several slabs need no more calls than one slab. Without Limits, a batch
	// may then consist of half of all slabs.
	Vectors bool
	// Spills reports that the consumer can move records to disk. [slab.Spill] requires it.
	Spills bool
	// Helps reports that the consumer can relieve a shortage of memory without waiting for its
	// destination; see [Log.Shortage].
	Helps bool
	// Held returns the tickets of the records of origin, from ticket first to ticket last, that are
	// on the consumer's disk or were there when they were settled. A Writer that recovers a
	// crash-safe file skips these records. Ranges may overlap and be in any order. The result
	// contains only records that the consumer has or had, but may omit some of them. Default nil:
	// none.
	Held func(origin [16]byte, first, last uint64) []layout.Tickets
}
