package deliver

import "github.com/forebay-log/forebay/batch"

// A lease is a batch whose memory stays unchanged until Release. The memory belongs to the log (see
// [slablog.Lease]), to the spool, or to a copy of parked records. Until the records are settled,
// the owner of the memory accounts for them as pending.
type lease interface {
	Batch() *batch.Batch
	Keeps() bool             // records that are not settled survive the process
	Pins() (slabs, most int) // slabs is the number of slabs in use until Release, most the limit for all hanging calls together
	Open() int               // number of records that are not settled
	Settle(n int) bool       // settles n records; returns false if they are already accounted for
	Release()
}

// A countedLease is the lease of a batch that is not in the log: a batch that the spool has handed
// out, or a copy. The ledger counts its open records.
type countedLease struct {
	b     *batch.Batch
	kept  bool // the spool has the records
	count int  // number of open records; guarded by ledger.mu. 0 for a batch that the spool handed out after the account was closed.
}

func (c *countedLease) Batch() *batch.Batch { return c.b }
func (c *countedLease) Keeps() bool         { return c.kept }
func (c *countedLease) Pins() (int, int)    { return 0, 1 }
func (c *countedLease) Open() int           { return c.count }
func (c *countedLease) Release()            {}

// Settle is called with ledger.mu held.
func (c *countedLease) Settle(n int) bool {
	if n > c.count {
		return false
	}
	c.count -= n
	return true
}

// A memoryOwner is the owner of the memory of a lease.
type memoryOwner uint8

const (
	ofLog memoryOwner = iota
	ofSpool
	ofCopy // memory for copies of parked records, within Options.ParkedBytes
)

// A holder is a lease with the number of its users. The undelivered records are in the entries that
// refer to the holder. The lease is released when no entry refers to the holder and no session
// reads the batch. Only the loop uses a holder.
type holder struct {
	lease lease
	owner memoryOwner
	logNo uint64 // number of the batch in the log, or of the batch from which a copy was made
	seq   uint64 // number of the batch in the spool; for a combined batch, its last number
	first uint64 // for a combined batch, its first number, or a smaller number that no other batch has
	parts int    // number of entries that refer to it
	pins  int    // number of entries that a session may still read
}
