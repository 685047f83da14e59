package slab

import "github.com/forebay-log/forebay/batch"

// book is the Writer's part of the account. Its Accepted lacks the tickets that were given
// out, and its Pending is not kept: Stats walks the slabs for that.
type book struct {
	batch.Account
	dropping bool   // a drop episode is under way
	inflight int    // records of the batch under way that are not settled
	taken    uint64 // records that are in the borrower's account
	retained int    // records left in the crash-safe file for the next start
	refused  uint64 // writes after Close

	// What was in a Borrow that hung when Shutdown accounted for it, and how many of those
	// records it dropped.
	hung, hungLost int
}

// dropLocked counts n accepted records as dropped. It reports whether an episode of drops
// begins with them.
func (b *book) dropLocked(r batch.Reason, n int) (begins bool) {
	b.Dropped[r] += uint64(n)
	if n == 0 || b.dropping {
		return false
	}
	b.dropping = true
	return true
}

// restLocked is called when nothing is pending. It reports whether that ends an episode
// of drops.
func (b *book) restLocked() (ends bool) {
	ends, b.dropping = b.dropping, false
	return ends
}

// tookLocked notes that the borrower has taken n records of the batch under way, and left
// the others.
func (b *book) tookLocked(n, left int) {
	b.taken += uint64(n)
	b.inflight = left
}

// lateLocked returns how many records of a Borrow that hung the borrower has taken after
// all. They are in its account, and must not be in ours as well.
func (b *book) lateLocked(theirs batch.Account) uint64 {
	if theirs.Accepted <= b.taken {
		return 0
	}
	return min(theirs.Accepted-b.taken, uint64(b.hung))
}
