package batch

// Tickets is a range of tickets, both ends included.
type Tickets struct{ First, Last uint64 }

// A Holder is a [Sink] that can keep records beyond the death of the process, as one
// with a spool does. A producer that finds records of a dead process asks it which of
// them it leaves out: they would arrive twice.
type Holder interface {
	// Held returns which tickets between first and last are of records of origin that
	// the sink has on disk, or had there and has settled since. Ranges may come in any
	// order and overlap. A record that the sink may not have is not among them; one that
	// it has may be missing.
	Held(origin [16]byte, first, last uint64) []Tickets
}
