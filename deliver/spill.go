package deliver

import (
	"context"

	"github.com/forebay-log/forebay/batch"
)

// What a Destination may have beside its methods.
type (
	closer interface {
		Close(ctx context.Context) error
	}
	flusher interface {
		Flush(ctx context.Context) error
	}
	syncer interface{ Sync() error }
)

// holderOf is a Spill that reports which records it has, like [slab.Borrower].Held.
type holderOf interface {
	Held(origin [16]byte, first, last uint64) []batch.Tickets
}

// A Spill is a queue of batches that outlives an outage, and maybe the process:
// package spool has one on disk. It is not closed by what uses it.
type Spill interface {
	// Append copies b and adds it at the end. Numbers rise. On error nothing was
	// added, and a later call may succeed.
	Append(b *batch.Batch) (seq uint64, err error)

	// Next returns the oldest batch that it has not returned yet, and its number,
	// or io.EOF if there is none now. The batch may be read until it is
	// acknowledged; several may be out at once. Any other error leaves everything
	// as it is, to be tried again. A Spill may also have the method
	// NextUpTo(bytes, records int), which makes one batch of several that fit: see
	// [github.com/forebay-log/forebay/spool.Spool.NextUpTo].
	Next() (b *batch.Batch, seq uint64, err error)

	// Ack settles all batches up to number seq. A batch that is out is never
	// dropped for a quota before.
	Ack(seq uint64) error

	// Account returns how many records are in the spill (Pending.Spill: all that are not
	// acknowledged), how many an earlier process left (Recovered), how many Ack has acknowledged,
	// also if it returned an error (Delivered), and how many the spill lost by itself (Dropped:
	// quota, corrupt), as of the last call of Append, Next or Ack. It does not wait for I/O.
	Account() batch.Account
}

// A joiner makes one batch of several.
type joiner interface {
	NextUpTo(bytes, records int) (b *batch.Batch, seq uint64, err error)
}

// joinedBytes and joinedRecords bound the batches that are made of several in the spool, which
// lie in memory: 256 KiB of payload, and as much for what is known of the records.
const (
	joinedBytes   = 256 << 10
	joinedRecords = joinedBytes / batch.SlotBytes
)

// joins returns how large a batch may be that is made of several.
func (s *settings) joins() (bytes, records int) {
	bytes, records = joinedBytes, joinedRecords
	if n := s.limits.Bytes; n > 0 {
		bytes = min(bytes, n)
	}
	if n := s.limits.Records; n > 0 {
		records = min(records, n)
	}
	return bytes, records
}
