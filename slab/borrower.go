package slab

import (
	"context"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// A Borrower is the consumer of a [Writer]: it moves the Writer's batches to their destination.
// deliver.NewOutput makes one for its Writer. A consumer receives leases: no batch is copied from
// heap slabs, and the slabs of a lease stay in use until it is released.
//
// Borrow is called from one goroutine. The other methods may be called from any goroutine,
// concurrently with it. They do not block unless they have a context.
type Borrower interface {
	// Wants returns the form in which the Writer passes batches. The result is always the same.
	Wants() Wants
	// Borrow accepts l. It returns as soon as it can accept another lease, and soon after ctx has
	// ended. If it returns an error, it has settled no record and does not use l any more.
	Borrow(ctx context.Context, l *Lease) error
	// Account calls read with the account of the records that the consumer has settled or stores
	// elsewhere. During the call, the consumer holds the lock under which it also calls Settle.
	Account(read func(batch.Account))
	// Held returns the tickets from first to last of those records of origin that are on the
	// consumer's disk, or were there when they were settled. A Writer that recovers a crash-safe
	// file skips these records. Ranges may overlap and be in any order. The result never
	// contains a record that the consumer might not have, but it may omit some that it has.
	Held(origin [16]byte, first, last uint64) []batch.Tickets
	// SpillWhen is called once, before the first lease, if Options.WhenFull or
	// Options.ImportantWhenFull is [Spill]: the consumer then moves records to disk while the
	// Writer is full. full reports whether the Writer has no room left. The consumer must not call
	// it while holding a lock that its methods acquire. The Writer calls press each time it
	// becomes full. SpillWhen fails if the consumer cannot store records.
	SpillWhen(full func() bool) (press func(), err error)
	// HelpWhen is called once, before the first lease. state returns two values. drops reports
	// whether records are about to be dropped: few slabs are free and calls do not wait, or a call
	// has used half of its time limit. waits reports whether a call without a time limit ([Block])
	// has waited for 125 ms. The consumer must not call state while holding a lock that its methods
	// acquire. The Writer calls press when one of the two may have become true. A consumer that can
	// settle records only through their destination returns nil.
	HelpWhen(state func() (drops, waits bool)) (press func())
	// Flush waits until all records accepted before are delivered or accounted for, or until ctx
	// ends. Sync also commits them to stable storage, if the destination can.
	Flush(ctx context.Context) error
	Sync(ctx context.Context) error
	// Drain announces that the Writer is closing and that everything must be settled by deadline.
	// A zero deadline means none.
	Drain(deadline time.Time)
	// Shutdown settles the consumer's records, closes the destination and reports. It is called
	// once, after the last lease. It returns soon after ctx has ended.
	Shutdown(ctx context.Context) (batch.Report, error)
}

// Wants describes the batches that a [Borrower] accepts.
type Wants struct {
	// Limits are the maximum sizes of a batch. If they are zero, a batch has at most a few slabs.
	Limits batch.Limits
	// Dictionary defines the streams of records. Default nil: none.
	Dictionary batch.Dictionary
	// Inline is set if Borrow delivers before it returns: the lease is settled and released then,
	// unless ctx has ended.
	Inline bool
	// Vectors is set if several slabs cost no more calls than one. Without Limits, a batch may
	// then contain half of all slabs.
	Vectors bool
}
