package slab

// A Splice is text to insert into a record, before byte At of the original.
type Splice struct {
	At   int
	Text string
}
