// Package slab turns many small record writes into few large ones.
//
//	Write ─▶ slab, slab, slab ─▶ one consumer, whole slabs ─▶ destination
//
// [Plan] computes the slabs that absorb a stall of the destination. forebay.NewSlabWriter puts them
// in front of an io.Writer, and forebay.Delivery sets the Options of an output:
//
//	plan, err := slab.Plan(slab.Workload{Rate: 10_000, RecordBytes: 200, Spike: 50 * time.Millisecond})
//	…
//	w, err := forebay.NewSlabWriter(conn, plan.Options())
//
// A [Writer] owns Options.SlabCount slabs of Options.SlabBytes each and allocates nothing after
// [New], except a buffer for each record larger than a slab. Slabs that were freed to make room for
// such a buffer are allocated again later. A Writer never splits a record. It starts no
// goroutine: one consumer leases the records from the [Log], in the order in which they were
// accepted. deliver.NewOutput combines a Writer and a consumer with a destination.
package slab
