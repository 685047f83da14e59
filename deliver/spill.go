package deliver

import (
	"context"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
)

// Optional methods of a Destination.
type (
	closer interface {
		Close(ctx context.Context) error
	}
	flusher interface {
		Flush(ctx context.Context) error
	}
	syncer interface{ Sync() error }
)

// A heldReporter is a spool that reports which records it has, as [slablog.Consumer].Held requires.
type heldReporter interface {
	Held(origin [16]byte, first, last uint64) []layout.Tickets
}

// A spill is a queue that stores batches during an outage: the spool ([diskqueue.Spool]) or, in
// tests, a queue in memory. The outlet does not close it.
type spill interface {
	// Append copies b and adds it at the end. It returns the sequence number of b; these numbers
	// increase. If it returns an error, nothing was added, and a later call may succeed.
	Append(b *batch.Batch) (seq uint64, err error)

	// NextUpTo returns the oldest batch that it has not returned yet, with its sequence number, or
	// io.EOF if there is none now. It may combine that batch with the following ones up to the
	// given size; seq is then the number of the last one. The batch may be read until it is
	// acknowledged. Several returned batches may be unacknowledged at once. After any other error
	// nothing has changed, and NextUpTo may be called again.
	NextUpTo(bytes, records int) (b *batch.Batch, seq uint64, err error)

	// Ack settles all batches up to sequence number seq. After NextUpTo has returned a batch, the
	// quota does not drop it before it is acknowledged.
	Ack(seq uint64) error

	// Account returns three numbers of records: Pending.Spill, which NextUpTo has not returned yet;
	// Recovered, which an earlier process left; and Dropped, because of the quota or of corruption.
	// They are as of the last call of Append, NextUpTo or Ack. The other fields are not read.
	// Account does not wait for I/O.
	Account() batch.Account
}
