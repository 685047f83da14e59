// Package slab configures the memory in front of a destination: slabs that turn many small record
// writes into few large ones.
//
//	Write ─▶ slab, slab, slab ─▶ one consumer, whole slabs ─▶ destination
//
// [Plan] computes the slabs that absorb a stall of the destination. forebay.NewSlabWriter puts them
// in front of an io.Writer, and forebay.Delivery sets the [Options] of an output:
//
//	plan, err := slab.Plan(slab.Workload{Rate: 10_000, RecordBytes: 200, Spike: 50 * time.Millisecond})
//	…
//	w, err := forebay.NewSlabWriter(conn, plan.Options())
//	…
//	defer w.Close() // writes what is in memory
//
// An output owns Options.SlabCount slabs of Options.SlabBytes each. They are allocated when it is
// made. After that only a record larger than a slab is allocated, as a separate buffer; slabs that
// were freed to make room for it are allocated again later. A record is never split. One consumer
// reads the records in the order in which they were accepted. If no slab is free, [WhenFull] is the
// behavior of a write.
package slab
