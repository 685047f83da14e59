package batch

import (
	"context"
	"time"
)

// Limits are the largest batches that a destination wants to be handed. A zero field
// means no limit of that kind.
type Limits struct {
	Bytes   int           // payload bytes per batch
	Records int           // records per batch
	Age     time.Duration // send a smaller batch when its oldest record is this old
}

// A Flusher may still hold records that it was given. Flush waits until all of them are
// delivered or accounted for, or ctx ends. It may be called beside other methods.
type Flusher interface {
	Flush(ctx context.Context) error
}

// A Syncer can put what it has been given on stable storage.
type Syncer interface{ Sync() error }

// An Accounter takes records into its own custody ([Tally].Taken) and accounts for them
// from then on: Taken plus Recovered are its Accepted and Recovered.
type Accounter interface{ Account() Account }

// A Closer has something to release. Close gives up what it still holds once ctx ends,
// accounts for it, and reports. It may be called twice.
type Closer interface {
	Close(ctx context.Context) error
}

// Tally counts the records of one batch that were settled otherwise than by delivery.
type Tally struct {
	Handled uint64 // an error handler or fallback took them
	Taken   uint64 // now in the receiver's own custody, see [Accounter]
	Dropped Drops
}

// Settled returns the number of records the tally accounts for.
func (t *Tally) Settled() uint64 { return t.Handled + t.Taken + t.Dropped.Total() }

// Add adds o to t.
func (t *Tally) Add(o Tally) {
	t.Handled += o.Handled
	t.Taken += o.Taken
	t.Dropped.Add(o.Dropped)
}
