package batch

import (
	"fmt"
	"strings"
)

// Reason is the reason for dropping a record.
type Reason uint8

// The reasons. Each dropped record has one. docs/OPERATING.md lists the remedies.
const (
	Full     Reason = iota // memory was full, and the policy does not wait or its time limit has passed
	Oversize               // larger than MaxRecord
	Encode                 // the encoder returned an error
	Poison                 // the destination permanently rejected this record
	Expired                // older than the maximum retry age
	Quota                  // the spool exceeded its quota
	Busy                   // a direct output was stuck in an earlier write
	Shutdown               // not delivered before the deadline of Close
	Corrupt                // stored on disk, and no longer readable
	// The destination has ended permanently, or a write of a direct output failed. There is no
	// second attempt.
	Failed
	Sampled // omitted by forebay.Sample
	Limited // above a rate limit configured for forebay run
)

var reasonNames = [...]string{"full", "oversize", "encode", "poison", "expired", "quota", "busy", "shutdown", "corrupt", "failed", "sampled", "limited"}

// String returns the name of the reason in reports, such as "full".
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", r)
}

// Drops counts dropped records by reason.
type Drops [Limited + 1]uint64

// Total returns the sum over all reasons.
func (d Drops) Total() (n uint64) {
	for _, v := range d {
		n += v
	}
	return n
}

// String returns the non-zero counts, such as "full=3 poison=1".
func (d Drops) String() string {
	var sb strings.Builder
	for i, v := range d {
		if v != 0 {
			if sb.Len() > 0 {
				sb.WriteByte(' ')
			}
			fmt.Fprintf(&sb, "%s=%d", Reason(i), v)
		}
	}
	return sb.String()
}

// Pending counts records that are neither delivered nor dropped, by location.
type Pending struct {
	Slab     uint64 // in memory, not yet sent
	Spill    uint64 // in the spool
	Inflight uint64 // sent to the destination, which has not answered yet
}

// Total returns the sum over all locations.
func (p Pending) Total() uint64 { return p.Slab + p.Spill + p.Inflight }

// An Account counts the records of one destination by outcome. The following equation holds exactly
// while no call is in progress:
//
//	Accepted + Recovered = Delivered + Handled + Dropped + Pending
//
// Pending is counted independently of the other counts, so that the equation can detect errors.
type Account struct {
	Accepted  uint64 // records accepted, including those dropped immediately
	Recovered uint64 // found on disk at start
	Delivered uint64
	Handled   uint64 // accepted by an error handler or fallback
	Dropped   Drops
	Pending   Pending
}

// Add adds the counts of o to a.
func (a *Account) Add(o Account) {
	a.Accepted += o.Accepted
	a.Recovered += o.Recovered
	a.Delivered += o.Delivered
	a.Handled += o.Handled
	for r, n := range o.Dropped {
		a.Dropped[r] += n
	}
	a.Pending.Slab += o.Pending.Slab
	a.Pending.Spill += o.Pending.Spill
	a.Pending.Inflight += o.Pending.Inflight
}

// Check returns an error if the account does not balance. The error contains both sides of the
// equation.
func (a Account) Check() error {
	in := a.Accepted + a.Recovered
	out := a.Delivered + a.Handled + a.Dropped.Total() + a.Pending.Total()
	if in != out {
		return fmt.Errorf("account does not balance: %d records in, %d accounted for (%s)", in, out, a)
	}
	return nil
}

// String returns the account on one line. Zero counts are omitted, except Accepted and Delivered.
func (a Account) String() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "accepted=%d", a.Accepted)
	part := func(name string, n uint64) {
		if n != 0 {
			fmt.Fprintf(&sb, " %s=%d", name, n)
		}
	}
	part("recovered", a.Recovered)
	fmt.Fprintf(&sb, " delivered=%d", a.Delivered)
	part("handled", a.Handled)
	if n := a.Dropped.Total(); n != 0 {
		fmt.Fprintf(&sb, " dropped=%d{%s}", n, a.Dropped)
	}
	if n := a.Pending.Total(); n != 0 {
		fmt.Fprintf(&sb, " pending=%d{slab=%d spill=%d inflight=%d}", n, a.Pending.Slab, a.Pending.Spill, a.Pending.Inflight)
	}
	return sb.String()
}

// A Report is the result of closing one destination.
type Report struct {
	Account
	// Unknown is the number of records in Dropped[Shutdown] that may have arrived. They were sent,
	// by this or an earlier process, and had no answer when the time limit of Close ended.
	Unknown uint64
	// KeptIn lists the directories of the records counted by Kept, separated by commas.
	KeptIn string
}

// Undelivered returns the number of records that reached neither the destination nor a handler,
// including records in a spool.
func (r Report) Undelivered() uint64 { return r.Dropped.Total() + r.Pending.Total() }

// Kept returns the number of records that remain on disk for the next start: the records pending
// after a Close in crash-safe memory or a spool. The next start may recover more records, because
// delivered records that follow an undelivered one are sent again. Each failure adds at most the
// records that were in flight.
func (r Report) Kept() uint64 { return r.Pending.Slab + r.Pending.Spill }
