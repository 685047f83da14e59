package slablog

import "github.com/forebay-log/forebay/batch"

// book is the account of a store. Its fields Accepted and Pending are completed when the account is
// read: Accepted lacks the tickets that were issued, and Pending is unused.
type book struct {
	batch.Account
	series   dropSeries
	retained int    // number of records left in the crash-safe file for the next start
	refused  uint64 // number of writes after Close
}
