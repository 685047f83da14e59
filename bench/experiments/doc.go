// Package experiments holds writers that were tried against the slab writer, each
// with as little code as an honest comparison needs: a pool of slabs, one
// goroutine that writes them to the destination, callers that wait when no slab
// is free, and a Drain that delivers everything. None is for use.
//
//	mutex        lock and copy; the swap of slabs under the lock
//	atomics      the same, its counters atomic
//	torn         "mutex" without an early swap: records stand in two slabs
//	loop         "mutex" that copies in a loop
//	sometimes    "mutex" that counts records only where the policy is to drop
//	oversize     "mutex" that takes records larger than a slab
//	contained    "mutex" before a destination whose panics end nothing
//	cas          a reservation by compare-and-swap, the copy beside others
//	add          a reservation by one addition, the copy beside others
//	combine      whoever has the lock copies the records of those who wait for it
//	outside      a reservation under the lock, the copy outside
//	spin         lock and copy under a spinlock in plain Go
//	naive(n)     n of "mutex", picked by stack address: no order
//	lanes        one slab, and up to n shards with tickets while callers meet
//	ticketed(n)  n shards, a ticket per record, merged by the drain: strict order
//	clock(n)     n shards, a time per record: strict only with a wait
//
// All but naive and the clock without its wait claim that a call that returned
// before another began comes first at the destination; the tests check that.
package experiments
