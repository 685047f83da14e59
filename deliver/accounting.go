package deliver

import (
	"fmt"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// accounting enters the outcomes of records in the ledger, and removes entries without open records
// from the queue. An outcome of the session and one of the handler pass through the same two steps:
// apply computes, and enter changes the account.
type accounting struct {
	set    *settings
	led    *ledger
	queue  *queue
	health *health

	sweepAt  time.Time // when to look for records that are too old
	suspects uint64
}

// An answered is an Outcome, applied to the records of an entry.
type answered struct {
	open, refused int          // records
	rest, bad     *batch.Batch // those; nil: none
	took          tally        // settled records, except those refused without a name
	lost          uint64       // refused without a name
}

// apply divides the records of e by o, the answer to all of them. It changes nothing. Gap markers are in
// byte counts and in no record count.
func (k *accounting) apply(e *entry, o *batch.Outcome) (a answered) {
	n := e.b.Len()
	a.open, a.refused = o.Open.Len(n), o.Refused.Len(n)
	a.took = tally{countable(e.b), e.b.Bytes()}
	if a.open > 0 { // a new batch, so that a late answer to e.b counts for nothing
		a.rest = e.b.Select(nil, o.Open.Append(nil, n))
		a.took.less(a.rest)
	}
	if a.refused > 0 {
		a.bad = e.b.Select(nil, o.Refused.Append(nil, n))
		a.took.less(a.bad)
	}
	if a.lost = min(uint64(o.Unnamed), a.took.records); a.lost > 0 { // gap markers may be among them
		a.took.bytes -= int(uint64(a.took.bytes) * a.lost / a.took.records) // of records as long as the others
		a.took.records -= a.lost
	}
	return a
}

// enter accounts for a, an answer to e because of o. If handler is set, the error handler answered. The
// entry keeps the open records; if there are none, the caller removes it.
func (k *accounting) enter(e *entry, a *answered, o *batch.Outcome, handler bool) {
	if a.lost > 0 {
		k.condemned(a.lost, o.Refusal)
	}
	drops := batch.Drops{batch.Poison: a.lost}
	if handler {
		k.led.settle(e.h.lease, tally{}, a.took.records, drops)
	} else {
		k.led.settle(e.h.lease, a.took, 0, drops)
	}
	if a.bad != nil {
		k.condemn(e.h.lease, a.bad, o.Refusal)
	}
	if a.rest != nil {
		e.b = a.rest
	}
}

// drop accounts for all of e as dropped for a reason. It returns the number of records.
func (k *accounting) drop(e *entry, why batch.Reason) uint64 {
	var d batch.Drops
	d[why] = countable(e.b)
	k.led.settle(e.h.lease, tally{}, 0, d)
	k.queue.remove(e)
	return d[why]
}

// dropBatch drops e and the other entries of its batch that wait, and returns the number of
// records. On disk a batch is in one piece: a later process that found an entry of it would get
// the dropped records again, after later ones.
func (k *accounting) dropBatch(e *entry) uint64 {
	h, n := e.h, k.drop(e, batch.Failed)
	for _, other := range slices.Clone(k.queue.ring) {
		if other.h == h && (other.place == waiting || other.place == parked) {
			n += k.drop(other, batch.Failed)
		}
	}
	return n
}

// condemn drops records that the destination will never accept, and writes dead letters about them. The
// dead letters get a copy before the records are settled: afterwards their memory may be used again.
func (k *accounting) condemn(from lease, b *batch.Batch, why error) {
	why = cause(why)
	n := countable(b)
	k.condemned(n, why)
	k.set.deadLetter(b, why)
	k.led.settle(from, tally{}, 0, batch.Drops{batch.Poison: n})
}

// condemned notes that the destination will never accept n records. The first time since a whole batch
// was accepted is reported.
func (k *accounting) condemned(n uint64, why error) {
	if k.health.poisoned.begin() {
		k.set.post("poison", cause(why), n)
	}
}

// expire drops records that are too old to be sent again, while the destination fails or their
// stream is held. It looks once a second, or ten times in MaxAge.
func (k *accounting) expire(now time.Time, held bool) {
	age := k.set.opt.Retry.MaxAge
	failing := k.health.failing()
	if age < 0 || !failing && !held || now.Before(k.sweepAt) {
		return
	}
	k.sweepAt = now.Add(max(time.Millisecond, min(time.Second, age/10)))
	var n uint64
	for _, e := range slices.Clone(k.queue.ring) {
		if failing && e.place == waiting || e.place == parked && (failing || e.suspect == nil) {
			n += k.expireEntry(now, e)
		}
	}
	if n > 0 && k.health.expiring.begin() {
		k.set.post("expired", fmt.Errorf("not delivered within %s", age), n)
	}
}

// expireEntry drops the records of e that are too old. Age counts from the time of the record. Without
// one, or with one that was too old already when the outlet started, it counts from the arrival: records
// of an archive would all expire at once otherwise.
func (k *accounting) expireEntry(now time.Time, e *entry) uint64 {
	limit := now.Add(-k.set.opt.Retry.MaxAge)
	unknown := e.since.Before(limit)
	var keep []int
	for i, rec := range e.b.All() {
		old := rec.Time < limit.UnixNano()
		if rec.Time == 0 || rec.Time < k.set.oldest {
			old = unknown
		}
		if !old {
			keep = append(keep, i)
		}
	}
	switch len(keep) {
	case e.b.Len():
		return 0
	case 0:
		return k.drop(e, batch.Expired)
	}
	before := countable(e.b)
	e.b = e.b.Select(nil, keep)
	var d batch.Drops
	d[batch.Expired] = before - countable(e.b)
	k.led.settle(e.h.lease, tally{}, 0, d)
	return d[batch.Expired]
}
