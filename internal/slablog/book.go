package slablog

import "github.com/forebay-log/forebay/batch"

// book is the account of a store. Its Accepted does not include the tickets that were issued, and
// its Pending is not used. Both are computed when the account is read.
type book struct {
	batch.Account
	dropping bool   // an episode of drops is in progress
	retained int    // records left in the crash-safe file for the next start
	refused  uint64 // writes after Close
}
