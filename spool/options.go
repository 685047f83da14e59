package spool

import (
	"time"

	"github.com/forebay-log/forebay/batch"
)

// Options configures a spool. The zero value is useful: each field states its
// default and unit.
type Options struct {
	// Name is the name of the output in events. Default "spool".
	Name string
	// SegmentBytes is the size in bytes at which a segment, a file of the spool, ends; a larger
	// batch gets a separate segment. It is lowered to a quarter of MaxBytes, and must be 4 KiB or
	// more. Default 8 MiB. With a quota of 100 GiB or more use larger segments, because some work
	// is done per segment.
	SegmentBytes int64
	// MaxBytes is the maximum size of all segments together on disk. It must be 16 KiB or more.
	// Default 1 GiB.
	MaxBytes int64
	// OverQuota is the action when MaxBytes is reached. Damaged files that were set aside
	// are deleted first, whatever the policy.
	//
	//   - "drop-oldest" deletes the oldest segments, counts their records ([Stats].DroppedQuota)
	//     and calls OnEvent. A segment is kept while one of its batches is being delivered. If
	//     deleting the other segments would not free enough space, nothing is deleted, and the new
	//     batch is not stored.
	//   - "refuse-new" does not store the new batch.
	//
	// Default "drop-oldest".
	OverQuota string
	// Sync determines when batches are synced. With "never", the operating system and calls of Sync
	// determine the time. With "interval", a batch is synced in the background, SyncInterval after
	// it was stored. With "always", it is synced at once. Until it is synced, a batch survives the
	// death of the process, but not a loss of power. Default "never".
	Sync string
	// SyncInterval is the period of "interval". Default 1 s.
	SyncInterval time.Duration
	// Streams translates stream numbers to their stored definitions and back. Default nil: numbers
	// are stored and returned unchanged.
	Streams batch.Dictionary
	// Codec returns the codec of stored batches by content type and schema version
	// (see [batch.Codec]). If Codec is nil (the default), or returns nil, a batch gets a
	// codec that has its content type and renders every record as {"raw":"…"}. From the
	// content type, a destination can tell that it cannot read these records.
	Codec func(contentType string, schema uint32) batch.Codec
	// Accepts reports whether records of a content type and schema version can be delivered. It is
	// called at the start, once for each form (content type and version) that is found. Segments of
	// a form that is not accepted are parked: they stay on disk in files *.parked, are not
	// delivered, and other segments do not wait for them. When a later process accepts their form,
	// they are delivered in their original order. Parked segments count as pending and towards
	// MaxBytes, and "drop-oldest" deletes them by age like others. Batches that this process has
	// stored are always delivered. Default nil: all forms can be delivered.
	Accepts func(contentType string, schema uint32) bool
	// OnEvent receives events about
	//   - damage ("corrupt", Err is a [*CorruptError]),
	//   - records dropped over quota ("drop" for the first ones of a series, then every 10 s, and
	//     "drop-end" if none was dropped for 10 s or the spool is closed),
	//   - unacknowledged records found at the start ("recover"),
	//   - records of a form that Accepts refuses ("parked", once for each form),
	//   - a background Sync that fails and, with a nil Err, the first one that succeeds
	//     after it ("sync").
	//
	// It runs on a separate goroutine with a bounded queue. Default nil: no calls; [Stats] has
	// the numbers.
	OnEvent func(batch.Event)
}
