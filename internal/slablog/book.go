package slablog

import "github.com/forebay-log/forebay/batch"

// book is the account of a store. Its Accepted lacks the tickets that were issued, and its
// Pending is not used: both are counted when the account is read.
type book struct {
	batch.Account
	dropping bool   // an episode of drops is in progress
	retained int    // records left in the crash-safe file for the next start
	refused  uint64 // writes after Close
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
