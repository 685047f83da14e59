package spool

import (
	"fmt"
	"time"

	"github.com/forebay-log/forebay/batch"
)

const (
	minSegmentBytes     = 4 << 10
	maxSegmentBytes     = 1 << 30
	defaultSegmentBytes = 8 << 20
	defaultMaxBytes     = 1 << 30
	defaultSyncInterval = time.Second
)

// Options configures a [Spool]. The zero value is useful: each field states its
// default and unit.
type Options struct {
	// Name is the name of the output in events. Default "spool".
	Name string
	// SegmentBytes is the size in bytes at which a segment ends; a larger batch gets a separate
	// segment. It is lowered to a quarter of MaxBytes, and must be 4 KiB or more. Default 8 MiB.
	// With a quota of 100 GiB or more use larger ones, because some work is done per segment.
	SegmentBytes int64
	// MaxBytes is the maximum size of all segments together on disk. At least 16 KiB. Default 1
	// GiB.
	MaxBytes int64
	// OverQuota is the action of Append when MaxBytes is reached. Damaged files that were set aside
	// are deleted first, whatever the policy.
	//
	//   - "drop-oldest" deletes the oldest segments, counts their records
	//     ([Stats].DroppedQuota) and calls OnEvent. A segment is kept while Next has
	//     returned one of its batches and Ack has not settled it. If the others do
	//     not make enough room, Append returns [ErrFull] and deletes nothing.
	//   - "refuse-new" makes Append return [ErrFull].
	//
	// Default "drop-oldest".
	OverQuota string
	// Sync determines when batches are synced: "never" leaves it to the operating system and to
	// calls of [Spool.Sync], "interval" syncs in the background, SyncInterval after an Append,
	// "always" before Append returns. Until then a batch survives the death of the process, but
	// not a loss of power. Default "never".
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
	// Accepts reports whether records of a content type and schema version can be
	// delivered. Open asks once for each form that it finds, and parks the segments of
	// other forms: they stay on disk in files *.parked, Next does not return them, and
	// other segments do not wait for them. When a later Open accepts their form, Next
	// returns them in their original order. Parked segments count in [Spool.Account] and
	// towards MaxBytes, and "drop-oldest" deletes them by age like others. Next always
	// returns batches that this process has appended. Default nil: all forms can be
	// delivered.
	Accepts func(contentType string, schema uint32) bool
	// OnEvent receives events about
	//   - damage ("corrupt", Err is a [*CorruptError]),
	//   - segments dropped over quota ("drop"),
	//   - unacknowledged records that Open has found ("recover"),
	//   - parked records ("parked", once for each form),
	//   - a background Sync that fails and, with a nil Err, the first one that succeeds
	//     after it ("sync").
	//
	// It runs on a separate goroutine with a bounded queue. Default nil: no calls; [Stats] has
	// the numbers.
	OnEvent func(batch.Event)
}

// The texts of Options.OverQuota and Options.Sync.
const (
	dropOldest = "drop-oldest"
	refuseNew  = "refuse-new"

	syncNever    = "never"
	syncInterval = "interval"
	syncAlways   = "always"
)

// withDefaults returns o with its defaults, or the error of an invalid field.
func (o *Options) withDefaults() (Options, error) {
	var opt Options
	if o != nil {
		opt = *o
	}
	if opt.Name == "" {
		opt.Name = "spool"
	}
	if opt.MaxBytes == 0 {
		opt.MaxBytes = defaultMaxBytes
	}
	if opt.SegmentBytes == 0 {
		opt.SegmentBytes = defaultSegmentBytes
	}
	if opt.OverQuota == "" {
		opt.OverQuota = dropOldest
	}
	if opt.Sync == "" {
		opt.Sync = syncNever
	}
	if opt.SyncInterval == 0 {
		opt.SyncInterval = defaultSyncInterval
	}
	switch {
	case opt.MaxBytes < 4*minSegmentBytes:
		return opt, fmt.Errorf("spool: MaxBytes %d is below %d, four of the smallest segments", opt.MaxBytes, 4*minSegmentBytes)
	case opt.SegmentBytes < minSegmentBytes || opt.SegmentBytes > maxSegmentBytes:
		return opt, fmt.Errorf("spool: SegmentBytes %d is outside %d…%d", opt.SegmentBytes, minSegmentBytes, maxSegmentBytes)
	case opt.SyncInterval < 0:
		return opt, fmt.Errorf("spool: SyncInterval %v is negative", opt.SyncInterval)
	case opt.Sync != syncNever && opt.Sync != syncInterval && opt.Sync != syncAlways:
		return opt, fmt.Errorf("spool: Sync %q is not one of never, interval, always", opt.Sync)
	case opt.OverQuota != dropOldest && opt.OverQuota != refuseNew:
		return opt, fmt.Errorf("spool: OverQuota %q is neither drop-oldest nor refuse-new", opt.OverQuota)
	}
	opt.SegmentBytes = min(opt.SegmentBytes, opt.MaxBytes/4)
	return opt, nil
}
