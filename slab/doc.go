// Package slab turns many small record writes into few large ones.
//
// A [Writer] owns Options.SlabCount slabs of Options.SlabBytes each and
// allocates nothing after [New], except one buffer per record larger than a
// slab, and anew the slabs that have made room for such a buffer. It never splits a
// record. One goroutine, started by New and ended by Close, lends the records to a
// [Borrower], in the order in which the calls happened. deliver.NewOutput puts both in
// front of a destination.
package slab
