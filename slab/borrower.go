package slab

import (
	"context"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// A Borrower takes the batches of a [Writer] to their destination. deliver.NewOutput puts
// one behind its Writer. It is handed leases: no batch is copied, and the slabs of a lease
// are in use until it is released.
//
// Borrow is called from one goroutine; the other methods may be called from any, beside
// it, and do not block unless they have a context.
type Borrower interface {
	// Wants says how batches are to be handed over. The answer is always the same.
	Wants() Wants
	// Borrow accepts l and returns as soon as another lease may follow, and soon after ctx has
	// ended. If it returns an error it has settled nothing and does not use l any more.
	Borrow(ctx context.Context, l *Lease) error
	// Account calls read with the account of the records that the borrower has settled, or
	// keeps elsewhere, under the lock under which it calls Settle.
	Account(read func(batch.Account))
	// Held returns which records of origin with tickets from first to last are on the
	// borrower's disk, or were and have been settled since: a Writer that finds them in the
	// file of a dead process leaves them out. Ranges may come in any order and overlap. A
	// record that it may not have is not among them; one that it has may be missing.
	Held(origin [16]byte, first, last uint64) []batch.Tickets
	// SpillWhen is called once, before the first lease, by a Writer that would rather have
	// records put on disk than wait. full reports whether it has no room left; it is not
	// called under a lock that a method of the borrower takes. The Writer calls press
	// each time it becomes full. The error says that there is nowhere to put records.
	SpillWhen(full func() bool) (press func(), err error)
	// HelpWhen is called once, before the first lease. state reports whether records are
	// about to be dropped, because few slabs are free and calls do not wait, or one has
	// waited for half of its time; and whether a call that waits as long as it takes does so
	// for long. It is not called under a lock that a method of the borrower takes. The Writer
	// calls press each time one of them becomes true. A borrower that cannot settle records
	// without their destination returns nil.
	HelpWhen(state func() (drops, waits bool)) (press func())
	// Flush waits until everything taken before is delivered or accounted for, or ctx
	// ends. Sync puts it on stable storage, where that can be.
	Flush(ctx context.Context) error
	Sync(ctx context.Context) error
	// Drain says that the Writer has begun to close and will have everything settled by
	// deadline; zero: no deadline.
	Drain(deadline time.Time)
	// Shutdown settles what it has, closes the destination and reports. It is called once
	// all batches are handed over. It returns soon after ctx has ended.
	Shutdown(ctx context.Context) (batch.Report, error)
}

// Wants says how a [Borrower] wants its batches.
type Wants struct {
	// Limits are the largest batches. Where they are zero, a batch is a few slabs at most.
	Limits batch.Limits
	// Dictionary knows the streams of records; nil: none.
	Dictionary batch.Dictionary
	// Inline says that Borrow delivers: it returns when the lease is settled and released, or
	// once ctx has ended.
	Inline bool
	// Vectors says that several slabs cost no more calls than one: a batch without limits
	// may have half of all.
	Vectors bool
}
