package slab

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/forebay-log/forebay/batch"
)

// Resolve returns o with all defaults filled in. The error names every field that is out of range.
func (o Options) Resolve() (Options, error) {
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, fmt.Errorf("slab: Options.%s is %v, must be %s", field, value, want))
	}
	o.Name = cmp.Or(o.Name, "slab")
	o.SlabBytes = cmp.Or(o.SlabBytes, DefaultSlabBytes)
	o.SlabCount = cmp.Or(o.SlabCount, defaultSlabCount)
	o.MaxRecord = cmp.Or(o.MaxRecord, DefaultMaxRecord)
	o.FlushInterval = cmp.Or(o.FlushInterval, max(defaultFlushInterval, 10*max(o.FlushIdle, 0)))
	o.CloseTimeout = cmp.Or(o.CloseTimeout, defaultCloseTimeout)
	o.WhenFull = cmp.Or(o.WhenFull, BlockFor(defaultBlockFor))
	o.ImportantWhenFull = cmp.Or(o.ImportantWhenFull, o.WhenFull)
	if o.SlabBytes < MinSlabBytes || o.SlabBytes > MaxSlabBytes {
		bad("SlabBytes", o.SlabBytes, fmt.Sprintf("%d to %d", MinSlabBytes, MaxSlabBytes))
	}
	o.SlabBytes = (o.SlabBytes + batch.SlotBytes - 1) / batch.SlotBytes * batch.SlotBytes
	if o.SlabCount < 2 || o.SlabCount > MaxSlabCount {
		bad("SlabCount", o.SlabCount, fmt.Sprintf("2 to %d (one is filled while another is sent)", MaxSlabCount))
	}
	if o.SlabRecords < 0 || o.SlabRecords == 1 {
		bad("SlabRecords", o.SlabRecords, "0 or at least 2")
	}
	if o.MaxRecord < 1 || o.MaxRecord > MaxSlabBytes {
		bad("MaxRecord", o.MaxRecord, fmt.Sprintf("1 to %d bytes", MaxSlabBytes))
	}
	if o.Reserve < 0 || o.Reserve >= o.SlabCount {
		bad("Reserve", o.Reserve, fmt.Sprintf("0 to SlabCount-1 (%d)", o.SlabCount-1))
	}
	if o.Crash != nil && o.Crash.Dir == "" {
		bad("Crash.Dir", `""`, "the directory for crash-safe files")
	}
	if o.FlushIdle < 0 {
		bad("FlushIdle", o.FlushIdle, "0 or more")
	}
	if o.CloseTimeout < 0 {
		bad("CloseTimeout", o.CloseTimeout, "0 or more")
	}
	if o.WhenFull.wait < 0 || o.ImportantWhenFull.wait < 0 {
		bad("WhenFull, ImportantWhenFull", fmt.Sprintf("%v, %v", o.WhenFull, o.ImportantWhenFull), "a wait of 0 or more")
	}
	return o, errors.Join(errs...)
}
