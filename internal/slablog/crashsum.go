package slablog

import (
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/layout"
)

// Checksums protect sealed slabs that wait for delivery, because the file may be damaged while they
// wait for hours, or be truncated by a crash of the machine. A timer computes them while records
// stay leased, and Close computes them for records that it leaves in the file. Callers never
// compute them, and a slab that is still being filled has none. A slab without a checksum is
// verified only by its tickets.

// sum writes the checksum of a sealed block into its header.
func (b *block) sum() {
	point(ptSum)
	h, last := b.head, b.slot(b.n-1).Ticket
	slots := b.mem[len(b.mem)-b.n*layout.SlotBytes:]
	sum := crashfile.Sum(atomic.LoadUint64(&h.First), last, b.mem[:b.off], slots)
	atomic.StoreUint64(&h.Last, last)
	atomic.StoreUint64(&h.Sum, uint64(b.n)<<32|uint64(sum))
	point(ptSummed)
}

// watchAfter is the delay before the first watchSend for leased records, and its interval.
const watchAfter = 100 * time.Millisecond

// watchSend runs while records stay leased because the destination is slow or hangs. It computes
// the checksums of waiting slabs and detects a damaged file. It runs on the goroutine of its timer.
func (c *crashSafe) watchSend() {
	c.store.lock()
	defer c.store.unlock()
	if len(c.store.leases.list) == 0 || !c.mapped() {
		return
	}
	if err := c.file.Intact(); err != nil {
		c.toHeapLocked(err)
		return
	}
	// Only sealed slabs with unsettled records get a checksum. Nothing is stored in them any more.
	for _, b := range c.blocks {
		if b.retired && b.refs > 0 && b.n > 0 && !b.summed {
			if c.sumLocked(b); !c.mapped() {
				return
			}
		}
	}
	c.watch.Reset(watchAfter)
}

// sumLocked computes the checksum of b. It unlocks mu during the computation, which takes
// milliseconds for a large slab. Meanwhile b.refs keeps the block from being reused, and Enter
// keeps the file mapped. b.summed is set first, so that no other goroutine computes the same
// checksum.
func (c *crashSafe) sumLocked(b *block) {
	b.refs++
	b.summed = true
	c.file.Enter()
	old := *b // because toHeapLocked may change b meanwhile
	c.store.unlock()
	fault := c.try(old.sum)
	c.store.lock()
	c.file.Leave()
	c.store.releaseLocked(b)
	c.store.leases.freeAheadLocked(b) // impossible while the checksum was computed
	c.store.freedLocked()             // the records of b may have been settled meanwhile
	if fault != nil {
		c.toHeapLocked(fault)
	}
}

// sumAllLocked computes the checksums of all slabs with records that Close leaves in the file. It
// marks all other slabs as empty, because in a slab without a checksum, an altered ticket could
// make a settled record valid again.
func (c *crashSafe) sumAllLocked() {
	for _, b := range c.blocks {
		if b.refs == 0 && (b != c.store.front.cur || b.n == 0) {
			_ = c.try(b.markEmpty)
		} else if b.n > 0 && !b.summed {
			b.summed = c.try(b.sum) == nil
		}
	}
}

// markEmpty stores in the file that a free slab has no records.
func (b *block) markEmpty() {
	b.reset(^uint64(0))
	atomic.StoreUint64(&b.head.Last, 0)
	atomic.StoreUint64(&b.head.Sum, crashfile.EmptySum)
	b.summed = true
}
