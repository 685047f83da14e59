package diskqueue

import (
	"cmp"
	"fmt"
	"time"

	"github.com/forebay-log/forebay/spool"
)

// Limits and defaults of Options. Sizes are in bytes.
const (
	// A smaller segment would hold few batches, and every segment costs a file, a header and a
	// sync. The quota covers at least four segments, so that dropping one leaves some records.
	minSegmentBytes = 4 << 10
	// Damage costs the rest of its segment, so a segment has a maximum size.
	maxSegmentBytes     = 1 << 30
	defaultSegmentBytes = 8 << 20
	defaultMaxBytes     = 1 << 30
	defaultSyncInterval = time.Second
)

// Values of Options.OverQuota and Options.Sync.
const (
	dropOldest = "drop-oldest"
	refuseNew  = "refuse-new"

	syncNever    = "never"
	syncInterval = "interval"
	syncAlways   = "always"
)

// withDefaults returns o with its defaults, or the error of an invalid field.
func withDefaults(o *spool.Options) (spool.Options, error) {
	var opt spool.Options
	if o != nil {
		opt = *o
	}
	opt.Name = cmp.Or(opt.Name, "spool")
	opt.MaxBytes = cmp.Or(opt.MaxBytes, defaultMaxBytes)
	opt.SegmentBytes = cmp.Or(opt.SegmentBytes, defaultSegmentBytes)
	opt.OverQuota = cmp.Or(opt.OverQuota, dropOldest)
	opt.Sync = cmp.Or(opt.Sync, syncNever)
	opt.SyncInterval = cmp.Or(opt.SyncInterval, defaultSyncInterval)
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
