package batch

// Tickets is a range of tickets, both ends included.
type Tickets struct{ First, Last uint64 }

// A Holder can keep records beyond the death of the process, as a spool does. A producer that finds records of a dead process asks it which of
// them it leaves out: they would arrive twice.
type Holder interface {
	// Held returns which tickets between first and last are of records of origin that
	// the Holder has on disk, or had there and has settled since. Ranges may come in any
	// order and overlap. A record that it may not have is not among them; one that
	// it has may be missing.
	Held(origin [16]byte, first, last uint64) []Tickets
}
