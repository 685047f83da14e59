package slablog

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

// Defaults of slab.Options.
const (
	defaultSlabCount     = 8
	defaultFlushInterval = 100 * time.Millisecond
	defaultCloseTimeout  = 5 * time.Second
)

// Resolve returns o with all defaults filled in. The error names every field that is out of range.
func Resolve(o slab.Options) (slab.Options, error) {
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, fmt.Errorf("slab: Options.%s is %v, must be %s", field, value, want))
	}
	o.Name = cmp.Or(o.Name, "slab")
	o.SlabBytes = cmp.Or(o.SlabBytes, layout.DefaultSlabBytes)
	o.SlabCount = cmp.Or(o.SlabCount, defaultSlabCount)
	o.MaxRecord = cmp.Or(o.MaxRecord, layout.DefaultMaxRecord)
	o.FlushInterval = cmp.Or(o.FlushInterval, max(defaultFlushInterval, 10*max(o.FlushIdle, 0)))
	o.CloseTimeout = cmp.Or(o.CloseTimeout, defaultCloseTimeout)
	o.WhenFull = cmp.Or(o.WhenFull, slab.BlockFor(layout.DefaultBlockFor))
	o.ImportantWhenFull = cmp.Or(o.ImportantWhenFull, o.WhenFull)
	if o.SlabBytes < layout.MinSlabBytes || o.SlabBytes > layout.MaxSlabBytes {
		bad("SlabBytes", o.SlabBytes, fmt.Sprintf("%d to %d", layout.MinSlabBytes, layout.MaxSlabBytes))
	}
	o.SlabBytes = (o.SlabBytes + layout.SlotBytes - 1) / layout.SlotBytes * layout.SlotBytes
	if o.SlabCount < 2 || o.SlabCount > layout.MaxSlabCount {
		bad("SlabCount", o.SlabCount, fmt.Sprintf("2 to %d (one is filled while another is sent)", layout.MaxSlabCount))
	}
	if o.SlabRecords < 0 || o.SlabRecords == 1 {
		bad("SlabRecords", o.SlabRecords, "0 or at least 2")
	}
	if o.MaxRecord < 1 || o.MaxRecord > layout.MaxSlabBytes {
		bad("MaxRecord", o.MaxRecord, fmt.Sprintf("1 to %d bytes", layout.MaxSlabBytes))
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
	endless := slab.Block()
	if o.WhenFull != endless && layout.MaxWait(o.WhenFull) < 0 || o.ImportantWhenFull != endless && layout.MaxWait(o.ImportantWhenFull) < 0 {
		bad("WhenFull, ImportantWhenFull", fmt.Sprintf("%v, %v", o.WhenFull, o.ImportantWhenFull), "a wait of 0 or more")
	}
	return o, errors.Join(errs...)
}
