package slab

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/units"
)

// Bounds of the slab size that [Plan] chooses.
const (
	planMinSlabBytes = 64 << 10 // smaller only to fit MemoryBytes
	planMaxSlabBytes = 1 << 20
)

var (
	// ErrTooSlow is wrapped by the error of [Plan] and [Absorb] when records arrive faster than the
	// destination accepts them: a larger buffer would only fill later.
	ErrTooSlow = errors.New("the destination is always too slow")
	// ErrMemory is wrapped by the error of [Plan] when the spike does not fit the memory budget.
	// The returned Sizing is the best that fits the budget.
	ErrMemory = errors.New("the memory budget is too small")
)

// A Workload describes the records and the destination for which [Plan] and [Absorb] size
// the memory of an output.
type Workload struct {
	// Rate is the number of records per second that all callers together write. Required.
	Rate float64
	// RecordBytes is the mean length of an encoded record in bytes, without
	// its slot. Required.
	RecordBytes float64
	// Latency is the time that the destination needs to write one slab. Default 0:
	// negligible.
	Latency time.Duration
	// Spike is the longest stall of the destination, in addition to Latency, that callers should
	// not notice. Default 0: none.
	Spike time.Duration
	// Window is the number of additional slabs that the destination holds, such as those sent and
	// not yet acknowledged. A batch limited to the bytes of n slabs can span n+1 of them: its
	// Window is n. Default 0: one write at a time, which needs no more than the slab in flight.
	Window int
	// MemoryBytes limits the memory of all slabs and of records larger than a slab. Default 0: no
	// limit.
	MemoryBytes int64
	// SlabBytes fixes the size of a slab in bytes. Default 0: Plan chooses it. Absorb ignores it.
	SlabBytes int
	// DrainBytesPerSecond is the number of payload bytes that the destination accepts per second in
	// the long run. Default 0: one full slab per Latency.
	DrainBytesPerSecond float64
}

// A Sizing is the number and size of slabs for a [Workload], with the resulting properties.
type Sizing struct {
	SlabBytes int
	SlabCount int
	// SlabRecords is the number of records of mean length that fit one slab.
	SlabRecords int
	// MemoryBytes is SlabBytes × SlabCount. One record larger than a slab may use additional
	// memory.
	MemoryBytes int64
	// Absorbs is the longest spike during which no caller waits.
	Absorbs time.Duration
	// CatchUp is the time that the destination needs, after the workload's Spike, to deliver the
	// backlog while records keep arriving. For [Absorb], after a spike of length Absorbs.
	CatchUp time.Duration
	// DrainRate is the number of records per second that the destination accepts, +Inf if
	// unlimited.
	DrainRate float64
}

// Options returns options with the sizes of s and every other field at its
// default.
func (s Sizing) Options() *Options {
	return &Options{SlabBytes: s.SlabBytes, SlabCount: s.SlabCount}
}

// String gives the sizing on one line, such as
// "11 × 64 KiB = 704 KiB, absorbs 204.3ms".
func (s Sizing) String() string {
	return fmt.Sprintf("%d × %s = %s, absorbs %s", s.SlabCount, units.Size(float64(s.SlabBytes)),
		units.Size(float64(s.MemoryBytes)), s.Absorbs.Round(100*time.Microsecond))
}

// Plan returns the smallest number of slabs, and their size, with which no caller of an output
// waits under w.
//
// With R = Rate, M' = RecordBytes + the 32 bytes of a slot, L = Latency and
// S = Spike:
//
//	slab    = the power of two ≥ (⌊R·L⌋ + 1) · M', at least 64 KiB
//	records = ⌊slab / M'⌋, the records in one slab
//	count   = ⌈⌈R·S⌉ / records⌉ + 2 + Window
//
// A slab must hold more than the R·L records that arrive while one is written: with fewer, the
// destination falls further and further behind; with exactly as many, it never catches up after a
// spike. Of the two additional slabs, one is in flight and one is partly filled when the spike
// begins: the write that stalls may already have lasted L, and the R·L records that arrived in that
// time fill at most one slab. So the count is the minimum for a write that takes L + S, and at most
// one more than the minimum for S alone.
//
// The formula assumes records of equal length. If lengths vary, each slab loses about half a record
// of mean length at its end, which matters only if a slab holds few records.
//
// If MemoryBytes is set and too small, Plan halves the slab size as far as R and L allow, because
// the two additional slabs then cost less. It uses the largest size with which the count fits the
// budget. If there is none, the error wraps [ErrMemory], and the Sizing has the longest Absorbs
// that the budget permits.
//
// If the destination accepts at most R·RecordBytes per second, with slabs of at most 1 MiB, the
// error wraps [ErrTooSlow]. The result depends on w only: Plan measures nothing and allocates no
// slabs.
func Plan(w Workload) (Sizing, error) {
	if err := w.check(); err != nil {
		return Sizing{}, fmt.Errorf("slab: cannot plan: %w", err)
	}
	size := w.SlabBytes
	if size == 0 {
		size = w.slabBytes()
	}
	if err := w.keepsUp(size); err != nil {
		return Sizing{}, fmt.Errorf("slab: cannot plan: %w", err)
	}
	if w.MemoryBytes == 0 {
		n := w.count(size)
		if n > layout.MaxSlabCount {
			return Sizing{}, fmt.Errorf("slab: cannot plan: absorbing a spike of %s needs %.0f slabs of %s, and the maximum is %d: use larger slabs, plan for a shorter spike, or add a spool",
				w.Spike, n, units.Size(float64(size)), layout.MaxSlabCount)
		}
		return w.sizing(size, int(n), w.Spike), nil
	}
	return w.withinBudget(size)
}

// Absorb is the inverse of [Plan]: it returns the longest spike that slabCount slabs of slabBytes
// absorb under w. It ignores the Spike, SlabBytes and MemoryBytes of w. The error wraps
// [ErrTooSlow] if the destination cannot keep up even without a spike.
//
//	absorbs = (count - 2 - Window) · records / R
func Absorb(w Workload, slabBytes, slabCount int) (Sizing, error) {
	w.Spike, w.SlabBytes, w.MemoryBytes = 0, slabBytes, 0
	err := w.check()
	if err == nil && slabBytes == 0 {
		err = fmt.Errorf("the slab size is 0: want %d to %d bytes", layout.MinSlabBytes, layout.MaxSlabBytes)
	}
	if err == nil && (slabCount < 2+w.Window || slabCount > layout.MaxSlabCount) {
		err = fmt.Errorf("the slab count is %d: want %d to %d; one slab is filled while one is in flight, and a window of %d needs as many more",
			slabCount, 2+w.Window, layout.MaxSlabCount, w.Window)
	}
	if err == nil {
		err = w.keepsUp(slabBytes)
	}
	if err != nil {
		return Sizing{}, fmt.Errorf("slab: cannot size: %w", err)
	}
	s := w.sizing(slabBytes, slabCount, 0)
	s.CatchUp = w.catchUp(slabBytes, s.Absorbs)
	return s, nil
}

// check returns an error for values out of range.
func (w *Workload) check() error {
	switch {
	case !(w.Rate > 0) || math.IsInf(w.Rate, 1):
		return fmt.Errorf("field Rate is %v: want records per second, above 0", w.Rate)
	case !(w.RecordBytes > 0) || math.IsInf(w.RecordBytes, 1):
		return fmt.Errorf("field RecordBytes is %v: want the mean length of a record in bytes, above 0", w.RecordBytes)
	case w.Latency < 0:
		return fmt.Errorf("field Latency is %s: want 0 or more", w.Latency)
	case w.Spike < 0:
		return fmt.Errorf("field Spike is %s: want 0 or more", w.Spike)
	case w.Window < 0 || w.Window > layout.MaxSlabCount-2:
		return fmt.Errorf("field Window is %d: want 0 to %d slabs", w.Window, layout.MaxSlabCount-2)
	case w.MemoryBytes < 0:
		return fmt.Errorf("field MemoryBytes is %d: want 0 (no limit) or more", w.MemoryBytes)
	case w.SlabBytes != 0 && (w.SlabBytes < layout.MinSlabBytes || w.SlabBytes > layout.MaxSlabBytes):
		return fmt.Errorf("field SlabBytes is %d: want %d to %d", w.SlabBytes, layout.MinSlabBytes, layout.MaxSlabBytes)
	case w.DrainBytesPerSecond < 0 || math.IsNaN(w.DrainBytesPerSecond):
		return fmt.Errorf("field DrainBytesPerSecond is %v: want 0 (one slab per Latency) or more", w.DrainBytesPerSecond)
	}
	return nil
}

// slotted returns M': the mean size of a record with its slot, in bytes.
func (w *Workload) slotted() float64 { return w.RecordBytes + layout.SlotBytes }

// records returns the number of records that one slab holds.
func (w *Workload) records(slabBytes int) float64 {
	return math.Floor(float64(slabBytes) / w.slotted())
}

// arrive returns the number of records that arrive in d. The product is exact if it has fewer than
// 16 digits.
func (w *Workload) arrive(d time.Duration) float64 { return w.Rate * float64(d) / 1e9 }

// minSlab returns the minimum size, in bytes, of a slab that keeps up with Rate.
func (w *Workload) minSlab() float64 {
	return (math.Floor(w.arrive(w.Latency)) + 1) * w.slotted()
}

// slabBytes returns the size that Plan chooses without a memory budget.
func (w *Workload) slabBytes() int {
	size := planMinSlabBytes
	for float64(size) < w.minSlab() && size < planMaxSlabBytes {
		size *= 2
	}
	return size
}

// count returns the number of slabs needed to absorb the spike.
func (w *Workload) count(slabBytes int) float64 {
	return math.Ceil(math.Ceil(w.arrive(w.Spike))/w.records(slabBytes)) + 2 + float64(w.Window)
}

// drainRate returns the number of records per second that the destination accepts.
func (w *Workload) drainRate(slabBytes int) float64 {
	rate := math.Inf(1)
	if w.Latency > 0 {
		rate = w.records(slabBytes) * 1e9 / float64(w.Latency)
	}
	if w.DrainBytesPerSecond > 0 {
		rate = min(rate, w.DrainBytesPerSecond/w.RecordBytes)
	}
	return rate
}

// keepsUp returns an error if the destination cannot keep up with slabs of this size.
func (w *Workload) keepsUp(slabBytes int) error {
	if w.records(slabBytes) < 1 {
		return fmt.Errorf("a record of %.0f bytes and its slot of %d bytes do not fit into a slab of %s: set SlabBytes to %d or more; a plan does not cover records larger than a slab",
			w.RecordBytes, layout.SlotBytes, units.Size(float64(slabBytes)), int(math.Ceil(w.slotted())))
	}
	drain := w.drainRate(slabBytes)
	if drain > w.Rate {
		return nil
	}
	why := fmt.Sprintf("one slab of %s per %s", units.Size(float64(slabBytes)), w.Latency)
	if w.DrainBytesPerSecond > 0 && drain < w.records(slabBytes)*1e9/float64(w.Latency) {
		why = "DrainBytesPerSecond"
	}
	return fmt.Errorf("%w: it accepts %s/s (%s) and %s/s arrive, so any buffer fills up: reduce the rate, use larger slabs, or use a faster destination or several destinations",
		ErrTooSlow, units.Size(math.Trunc(drain*w.RecordBytes)), why, units.Size(math.Trunc(w.Rate*w.RecordBytes)))
}

// withinBudget halves the slab size, beginning with size, until the spike fits MemoryBytes.
func (w *Workload) withinBudget(size int) (Sizing, error) {
	floor := max(w.minSlab(), layout.MinSlabBytes)
	var best Sizing
	var need int64
	for s := size; s >= layout.MinSlabBytes && (s == size || float64(s) >= floor); s /= 2 {
		n := w.count(s)
		if total := n * float64(s); total <= float64(w.MemoryBytes) && n <= layout.MaxSlabCount {
			return w.sizing(s, int(n), w.Spike), nil
		} else if need == 0 || total < float64(need) {
			need = int64(min(total, math.MaxInt64/2))
		}
		if n := min(w.MemoryBytes/int64(s), layout.MaxSlabCount); n >= int64(2+w.Window) {
			if c := w.sizing(s, int(n), w.Spike); c.Absorbs > best.Absorbs || best.SlabCount == 0 {
				best = c
			}
		}
		if w.SlabBytes != 0 {
			break
		}
	}
	if best.SlabCount == 0 {
		return best, fmt.Errorf("slab: cannot plan: %w: %d slabs that keep up with %g records/s do not fit into %s; absorbing %s needs %s",
			ErrMemory, 2+w.Window, w.Rate, units.Size(float64(w.MemoryBytes)), w.Spike, units.Size(float64(need)))
	}
	return best, fmt.Errorf("slab: cannot plan: %w: absorbing %s needs %s; %s absorb %s",
		ErrMemory, w.Spike, units.Size(float64(need)), units.Size(float64(w.MemoryBytes)), best.Absorbs.Round(100*time.Microsecond))
}

// sizing describes count slabs of slabBytes under w, after a spike of the given length.
func (w *Workload) sizing(slabBytes, count int, spike time.Duration) Sizing {
	records := w.records(slabBytes)
	absorbs := math.Floor(float64(count-2-w.Window) * records / w.Rate * 1e9)
	return Sizing{
		SlabBytes:   slabBytes,
		SlabCount:   count,
		SlabRecords: int(records),
		MemoryBytes: int64(slabBytes) * int64(count),
		Absorbs:     duration(absorbs),
		CatchUp:     w.catchUp(slabBytes, spike),
		DrainRate:   w.drainRate(slabBytes),
	}
}

// catchUp returns the time in which the backlog of a spike is delivered.
func (w *Workload) catchUp(slabBytes int, spike time.Duration) time.Duration {
	return duration(w.arrive(spike) / (w.drainRate(slabBytes) - w.Rate) * 1e9)
}

// duration converts nanoseconds to a Duration. A value that is too large becomes the longest
// Duration.
func duration(ns float64) time.Duration {
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}
