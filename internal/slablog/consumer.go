package slablog

import "github.com/forebay-log/forebay/batch"

// A Consumer describes the consumer of a [Log]: the form of the batches that it accepts, and its
// other places for records.
type Consumer struct {
	// Limits are the maximum sizes of a batch. If they are zero, a batch has at most a few slabs.
	Limits batch.Limits
	// Dictionary defines the streams of records. Default nil: none.
	Dictionary batch.Dictionary
	// Several is set if a batch may consist of several slabs although there are no Limits. Default
	// false: one slab.
	Several bool
	// Vectors is set if several slabs need no more calls than one slab. In that case, without
	// Limits, a batch may consist of half of all slabs.
	Vectors bool
	// Spills is set if the consumer can move records to disk. [slab.Spill] requires it.
	Spills bool
	// Helps is set if the consumer can relieve a shortage of memory in another way than by waiting
	// for its destination: see [Log.Shortage].
	Helps bool
	// Held returns the tickets of those records of origin, from ticket first to ticket last, that
	// are on the consumer's disk, or were there when they were settled. A Writer that recovers a
	// crash-safe file skips these records. Ranges may overlap and be in any order. The result never
	// contains a record that the consumer might not have, but it may omit some records that the
	// consumer has. Default nil: none.
	Held func(origin [16]byte, first, last uint64) []batch.Tickets
}
