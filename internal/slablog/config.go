package slablog

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/contain"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

// config contains the values that New sets and that do not change afterwards.
type config struct {
	o slab.Options
	// usual is the policy of WhenFull, onImportant the policy of ImportantWhenFull.
	usual, onImportant policy
	consumer           Consumer
	// id and the ticket of a record together identify the record; see batch.Batch.Origin.
	id [16]byte
	// born is the time of New. Times within the package count from it, because a time.Duration has a
	// third of the size of a time.Time.
	born time.Time
	// The levels of Options are slog.LevelVars, because a write reads them for every record with a
	// lock held, and must not call user code.
	flush, reserve, important *slog.LevelVar

	events callback.Reporter
}

// levelVar returns l if it is a slog.LevelVar. If not, it returns a new one with the current level
// of l, or with def if l is nil.
func levelVar(field string, l slog.Leveler, def slog.Level) (*slog.LevelVar, error) {
	if v, ok := l.(*slog.LevelVar); ok && v != nil {
		return v, nil
	}
	if l != nil {
		if err := contain.Call(func() { def = l.Level() }); err != nil {
			return nil, fmt.Errorf("slab: Options.%s has no level: %w", field, err)
		}
	}
	v := new(slog.LevelVar)
	v.Set(def)
	return v, nil
}

// A Consumer describes the consumer of a [Log]: the batches that it accepts, and its other storage
// for records.
type Consumer struct {
	// Limits are the maximum sizes of a batch. If they are zero, a batch has at most a few slabs.
	Limits batch.Limits
	// Busy reports whether the consumer has as many batches as it may send at once. While it is
	// busy and Limits is set, Next does not lease records merely because they are old, since more
	// records may arrive that fit into the same batch. When the consumer is no longer busy, it
	// calls Next. Next calls Busy with locks held. Default nil: never.
	Busy func() bool
	// Dictionary defines the streams of records. Default nil: none.
	Dictionary batch.Dictionary
	// Several allows batches of several slabs even without Limits. Default false: one slab.
	Several bool
	// Vectors reports that the consumer writes several slabs with one call, like writev. Without
	// Limits, a batch may then consist of half of all slabs.
	Vectors bool
	// Spills reports that the consumer can move records to disk. [slab.Spill] requires it.
	Spills bool
	// Helps reports that the consumer can relieve a shortage of memory without waiting for its
	// destination; see [Log.Shortage].
	Helps bool
	// Held reports which records with the given origin are on the consumer's disk, or were there
	// when they were settled. It returns those of their tickets that lie between first and last,
	// both included. A Writer that recovers a crash-safe file skips these records. Ranges may
	// overlap and be in any order. The result contains only records that the consumer has or had,
	// but may omit some of them. Default nil: none.
	Held func(origin [16]byte, first, last uint64) []layout.Tickets
}

// Defaults of slab.Options.
const (
	defaultSlabCount     = 8
	defaultFlushInterval = 100 * time.Millisecond
	defaultCloseTimeout  = 5 * time.Second
)

// Resolve returns o with all defaults filled in. The error names every field that is out of range.
func Resolve(o slab.Options) (slab.Options, error) {
	var errs []error
	check := func(ok bool, field string, value any, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("slab: Options.%s is %v, must be %s", field, value, want))
		}
	}
	o.Name = cmp.Or(o.Name, "slab")
	o.SlabBytes = cmp.Or(o.SlabBytes, layout.DefaultSlabBytes)
	o.SlabCount = cmp.Or(o.SlabCount, defaultSlabCount)
	o.MaxRecord = cmp.Or(o.MaxRecord, layout.DefaultMaxRecord)
	// With FlushIdle, records that keep arriving must have time to fill a slab.
	o.FlushInterval = cmp.Or(o.FlushInterval, max(defaultFlushInterval, 10*max(o.FlushIdle, 0)))
	o.CloseTimeout = cmp.Or(o.CloseTimeout, defaultCloseTimeout)
	o.WhenFull = cmp.Or(o.WhenFull, slab.BlockFor(layout.DefaultBlockFor))
	o.ImportantWhenFull = cmp.Or(o.ImportantWhenFull, o.WhenFull)
	check(o.SlabBytes >= layout.MinSlabBytes && o.SlabBytes <= layout.MaxSlabBytes,
		"SlabBytes", o.SlabBytes, fmt.Sprintf("%d to %d", layout.MinSlabBytes, layout.MaxSlabBytes))
	// Slots are stored from the end of a slab, so its size is a whole number of slots.
	o.SlabBytes = (o.SlabBytes + layout.SlotBytes - 1) / layout.SlotBytes * layout.SlotBytes
	check(o.SlabCount >= 2 && o.SlabCount <= layout.MaxSlabCount,
		"SlabCount", o.SlabCount, fmt.Sprintf("2 to %d (one is filled while another is sent)", layout.MaxSlabCount))
	check(o.SlabRecords == 0 || o.SlabRecords >= 2, "SlabRecords", o.SlabRecords, "0 or at least 2")
	check(o.MaxRecord >= 1 && o.MaxRecord <= layout.MaxSlabBytes,
		"MaxRecord", o.MaxRecord, fmt.Sprintf("1 to %d bytes", layout.MaxSlabBytes))
	check(o.Reserve >= 0 && o.Reserve < o.SlabCount, "Reserve", o.Reserve, fmt.Sprintf("0 to SlabCount-1 (%d)", o.SlabCount-1))
	check(o.Crash == nil || o.Crash.Dir != "", "Crash.Dir", `""`, "the directory for crash-safe files")
	check(o.FlushIdle >= 0, "FlushIdle", o.FlushIdle, "0 or more")
	check(o.CloseTimeout >= 0, "CloseTimeout", o.CloseTimeout, "0 or more")
	waits := func(w slab.WhenFull) bool { return w == slab.Block() || layout.MaxWait(w) >= 0 }
	check(waits(o.WhenFull) && waits(o.ImportantWhenFull),
		"WhenFull, ImportantWhenFull", fmt.Sprintf("%v, %v", o.WhenFull, o.ImportantWhenFull), "a wait of 0 or more")
	return o, errors.Join(errs...)
}

// spills reports whether a write may wait for the consumer to move records to disk.
func (c *config) spills() bool {
	return c.o.WhenFull == slab.Spill() || c.o.ImportantWhenFull == slab.Spill()
}

// A policy is a slab.WhenFull in the form that a write needs.
type policy struct {
	wait   time.Duration // maximum wait for room; negative: no limit
	evicts bool          // the record drops older ones
}

// policyOf returns the policy of an option.
func policyOf(w slab.WhenFull) policy {
	return policy{wait: layout.MaxWait(w), evicts: w == slab.DropOldest()}
}

// policyFor returns the when-full policy for a write of level l.
func (c *config) policyFor(l slog.Level) policy {
	if l >= c.important.Level() {
		return c.onImportant
	}
	return c.usual
}
