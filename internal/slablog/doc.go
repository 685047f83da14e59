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
// Errors begin with "slab: ", since to users they are errors of that package.
package slablog
