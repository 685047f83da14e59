// Package slablog implements the memory of one destination, as package slab configures it.
//
//	Write ─▶ slab, slab, slab ─▶ Next, whole slabs ─▶ one consumer
//
// [New] returns both ends: a [Writer], which copies each record into a slab and never splits it,
// and a [Log], from which the consumer leases the records in the order in which they were accepted.
// Neither starts a goroutine. They allocate nothing after New, except a buffer for each record
// larger than a slab. Slabs that were freed to make room for such a buffer are allocated again
// later. deliver.NewOutput is the only user.
//
// # Records
//
// A record has a slot in a [block], and belongs to one part of the log at a time:
//
//	current block ──cut──▶ piece in the queue ──Next──▶ piece of a Lease ──Settle──▶ gone
//	      (unread)            │                              │
//	                          └──DropOldest──▶ gone          └──Release frees the block
//
// A cut makes a [piece] of the records that the current block has received since the last cut. It is
// made when the block is full, when its records have waited long enough, and before a record larger
// than a slab, which is a separate piece. A block is free when it is not the current one and all its
// pieces are gone.
//
// # Locks
//
// A write that finds room locks only front.mu. The consumer locks only store.mu while it moves from
// one full slab to the next. Everything else locks both, in this order
// (docs/adr/0014-split-the-writer-lock.md). The suffix Locked in a name means that the caller holds
// the locks: both, except in the few methods that the consumer calls with store.mu alone (see
// store.lockSome).
//
// # Crash-safe memory
//
// The slabs may be in a mapped file, see crashSafe. Each access to mapped memory may fault, because
// another process may truncate the file. So code that holds a lock reads mapped slots only within
// crashSafe.try or guardLocked. Values that it needs more often are copied into the block, the piece
// or the lease. After a fault the slabs are on the heap, and the same code continues with them.
//
// Errors begin with "slab: ", since to users they are errors of that package.
package slablog
