package deliver

import "github.com/forebay-log/forebay/batch"

// A lease is a batch whose memory a source keeps for the outlet: the log (see [slablog.Lease]), the
// spool, or the copy of parked records. Its records are pending at their source until they are
// settled.
type lease interface {
	Batch() *batch.Batch
	Keeps() bool             // records that are not settled survive the process
	Pins() (slabs, most int) // in use until Release; the maximum for calls that may hang
	Open() int               // records that are not settled
	Settle(n int) bool       // false: they are accounted for already
	Release()
}

// A countedLease is the lease of a batch that is not in the log: the spool has handed it out, or it is
// a copy. The ledger counts its open records.
type countedLease struct {
	b     *batch.Batch
	kept  bool // by the spool
	count int  // open records; ledger.mu. 0 for a batch of the spool that came after the account was closed
}

func (c *countedLease) Batch() *batch.Batch { return c.b }
func (c *countedLease) Keeps() bool         { return c.kept }
func (c *countedLease) Pins() (int, int)    { return 0, 1 }
func (c *countedLease) Open() int           { return c.count }
func (c *countedLease) Release()            {}

func (c *countedLease) Settle(n int) bool {
	if n > c.count {
		return false
	}
	c.count -= n
	return true
}

// custody is the owner of the memory of a holder: a source, or a copy.
type custody uint8

const (
	ofLog custody = iota
	ofSpool
	ofCopy // of parked records, within Options.ParkedBytes
)

// A holder is a lease with the number of its users. The entries that refer to it have its open
// records. It is released when there are none and no session reads it. Only the loop uses a holder.
type holder struct {
	lease   lease
	custody custody
	settled bool   // nothing is open
	no      uint64 // its place among the leases of the log
	seq     uint64 // ofSpool: its number, or the last number of a combined batch
	first   uint64 // … and the first one, or an unused smaller one
	parts   int    // entries that refer to it
	pins    int    // of them, those that a session may still read
	parked  int    // of them, those that are parked
}
