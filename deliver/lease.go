package deliver

import "github.com/forebay-log/forebay/batch"

// A lease is a batch of the log, whose memory stays unchanged until Release: a [slablog.Lease], which
// documents the methods, or a batch of a log in tests. Until its records are settled, the log
// accounts for them as pending.
type lease interface {
	Batch() *batch.Batch
	Keeps() bool
	Pins() (slabs, limit int)
	Settle(n int) bool
	Release()
}

// A memoryOwner is the owner of the memory of a batch.
type memoryOwner uint8

const (
	ofLog memoryOwner = iota
	ofSpool
	ofCopy // memory for copies of parked records, within Options.ParkedBytes
)

// A holder is a batch with the number of its users: a lease, a batch that the spool has handed out,
// or a copy of parked records. The undelivered records are in the entries that refer to the holder.
// Its memory is given up when no entry refers to the holder and no session reads the batch. Only
// the loop uses a holder, except its field open.
type holder struct {
	owner memoryOwner
	lease lease  // nil unless the owner is the log
	open  int    // number of records that are not settled, unless the owner is the log; guarded by ledger.mu once the ledger counts it
	logNo uint64 // number of the batch in the log, or of the batch from which a copy was made
	seq   uint64 // number of the batch in the spool; for a combined batch, its last number
	first uint64 // for a combined batch, its first number, or a smaller number that no other batch has
	parts int    // number of entries that refer to it
	pins  int    // number of entries that a session may still read
}

// keeps reports whether the log keeps records that are not settled for the next process.
func (h *holder) keeps() bool { return h.owner == ofLog && h.lease.Keeps() }

// slabs returns the number of slabs that stay in use until the release, and the limit for all
// hanging calls together.
func (h *holder) slabs() (n, limit int) {
	if h.owner != ofLog {
		return 0, 1
	}
	return h.lease.Pins()
}
