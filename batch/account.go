package batch

import (
	"fmt"
	"strings"
)

// Reason says why a record was dropped.
type Reason uint8

// The reasons. Nothing is dropped without one; docs/OPERATING.md says what to do.
const (
	Full     Reason = iota // no free slab, and the policy said not to wait (longer)
	Oversize               // larger than MaxRecord
	Encode                 // the encoder could not render it
	Poison                 // the destination refused this record for good
	Expired                // older than the retry age
	Quota                  // the spool was over its quota
	Busy                   // a direct output was stuck
	Shutdown               // not delivered when the deadline of Close passed
	Corrupt                // stored on disk, and no longer readable there
	Failed                 // the destination ended for good, or a direct output failed: there is no second attempt
	Sampled                // left out by forebay.Sample

	Reasons = 11 // number of reasons
)

var reasonNames = [Reasons]string{"full", "oversize", "encode", "poison", "expired", "quota", "busy", "shutdown", "corrupt", "failed", "sampled"}

// String returns the reason's name as it stands in reports.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", r)
}

// Drops counts dropped records by reason.
type Drops [Reasons]uint64

// Total returns the sum over all reasons.
func (d Drops) Total() (n uint64) {
	for _, v := range d {
		n += v
	}
	return n
}

// Add adds o to d.
func (d *Drops) Add(o Drops) {
	for i, v := range o {
		d[i] += v
	}
}

// String lists the reasons that occurred, such as "full=3 poison=1".
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

// Pending counts records that are neither delivered nor dropped yet, by place.
type Pending struct {
	Slab     uint64 // in memory, not yet offered
	Spill    uint64 // in the spool
	Inflight uint64 // offered to the destination, answer outstanding
}

// Total returns the sum over all places.
func (p Pending) Total() uint64 { return p.Slab + p.Spill + p.Inflight }

// An Account says where every record of one destination went. At rest
//
//	Accepted + Recovered = Delivered + Handled + Dropped + Pending
//
// holds exactly. Pending is counted by walking what is there, not derived.
type Account struct {
	Accepted  uint64 // records handed in, those dropped at once included
	Recovered uint64 // found on disk at start
	Delivered uint64
	Handled   uint64 // taken by an error handler or fallback
	Dropped   Drops
	Pending   Pending
}

// Add adds o to a.
func (a *Account) Add(o Account) {
	a.Accepted += o.Accepted
	a.Recovered += o.Recovered
	a.Delivered += o.Delivered
	a.Handled += o.Handled
	a.Dropped.Add(o.Dropped)
	a.Pending.Slab += o.Pending.Slab
	a.Pending.Spill += o.Pending.Spill
	a.Pending.Inflight += o.Pending.Inflight
}

// Check returns an error that shows both sides if the account does not balance.
func (a Account) Check() error {
	in := a.Accepted + a.Recovered
	out := a.Delivered + a.Handled + a.Dropped.Total() + a.Pending.Total()
	if in != out {
		return fmt.Errorf("account does not balance: %d records in, %d accounted for (%s)", in, out, a)
	}
	return nil
}

// String gives the account on one line; zero parts other than accepted and
// delivered are left out.
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

// A Report is what Close says of one destination.
type Report struct {
	Account
	// Unknown is how many of Dropped[Shutdown] were sent and had no answer when the
	// deadline passed, in this session or an earlier one: they may or may not have arrived.
	Unknown uint64
	// KeptIn names the directories of the records that Kept counts, separated by a comma.
	KeptIn string
}

// Undelivered returns the number of records that did not reach the destination
// or a handler, spooled ones included.
func (r Report) Undelivered() uint64 { return r.Dropped.Total() + r.Pending.Total() }

// Kept returns how many records are safely on disk for the next start: what is pending
// after a Close, in crash-safe memory or a spool. The next start may recover more of them
// than that: a record that was delivered behind one that was not arrives once more, at most
// a window of batches for each failure.
func (r Report) Kept() uint64 { return r.Pending.Slab + r.Pending.Spill }
