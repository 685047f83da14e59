package deliver

import (
	"fmt"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// accounting enters the outcomes of records in the ledger, and removes entries without open records
// from the queue. Answers of the session and of the error handler are processed in two steps: the
// method apply computes the result, and the method enter changes the account.
type accounting struct {
	set    *settings
	led    *ledger
	queue  *queue
	health *health

	sweepAt  time.Time // time of the next check for too old records
	suspects uint64
}

// An answered is the result of applying an Outcome to the records of an entry.
type answered struct {
	open, refused int          // numbers of open and of refused records
	rest, bad     *batch.Batch // rest has the open records, bad the refused ones; nil: none
	took          tally        // accepted records, without those counted in lost
	lost          uint64       // number of refused records that the Outcome does not name (Outcome.Unnamed)
}

// apply divides the records of e into open, refused and accepted ones, according to the outcome o.
// It changes neither e nor the account. In a tally, gap markers count as bytes but not as records.
func (k *accounting) apply(e *entry, o *batch.Outcome) (a answered) {
	n := e.b.Len()
	a.open, a.refused = o.Open.Len(n), o.Refused.Len(n)
	a.took = tally{countable(e.b), e.b.Bytes()}
	if a.open > 0 { // a new batch, so that a late answer to e.b is ignored
		a.rest = e.b.Select(nil, o.Open.Append(nil, n))
		a.took.less(a.rest)
	}
	if a.refused > 0 {
		a.bad = e.b.Select(nil, o.Refused.Append(nil, n))
		a.took.less(a.bad)
	}
	if a.lost = min(uint64(o.Unnamed), a.took.records); a.lost > 0 { // Unnamed may include gap markers, which are not in a.took.records
		a.took.bytes -= int(uint64(a.took.bytes) * a.lost / a.took.records) // an estimate: lost records have the average size
		a.took.records -= a.lost
	}
	return a
}

// enter accounts for the records of e, where a is the result of apply for the outcome o. handler is
// set if o came from the error handler. If a.open is 0, the caller removes e from the queue.
func (k *accounting) enter(e *entry, a *answered, o *batch.Outcome, handler bool) {
	if a.lost > 0 {
		k.countRefused(a.lost, o.Refusal)
	}
	drops := batch.Drops{batch.Poison: a.lost}
	if handler {
		k.led.settle(e.h.lease, tally{}, a.took.records, drops)
	} else {
		k.led.settle(e.h.lease, a.took, 0, drops)
	}
	if a.bad != nil {
		k.refuse(e.h.lease, a.bad, o.Refusal)
	}
	if a.rest != nil {
		e.b = a.rest
	}
}

// drop accounts for all records of e as dropped for the given reason. It removes e from the queue
// and returns the number of records.
func (k *accounting) drop(e *entry, why batch.Reason) uint64 {
	var d batch.Drops
	d[why] = countable(e.b)
	k.led.settle(e.h.lease, tally{}, 0, d)
	k.queue.remove(e)
	return d[why]
}

// dropBatch drops e and all waiting or parked entries of the same batch, and returns the number of
// records. It drops the whole batch because the spool acknowledges whole batches: if an entry
// remained, the next process would read the dropped records again, after newer ones.
func (k *accounting) dropBatch(e *entry) uint64 {
	h, n := e.h, k.drop(e, batch.Failed)
	// drop removes entries from the queue during the loop, so it runs over a copy.
	for _, other := range slices.Clone(k.queue.ring) {
		if other.h == h && (other.place == waiting || other.place == parked) {
			n += k.drop(other, batch.Failed)
		}
	}
	return n
}

// refuse accounts for the records of b as refused ([batch.Poison]) and writes dead letters about
// them. The dead letters come first, because they copy the records, whose memory may be reused
// after settling.
func (k *accounting) refuse(from lease, b *batch.Batch, why error) {
	why = cause(why)
	n := countable(b)
	k.countRefused(n, why)
	k.set.deadLetter(b, why)
	k.led.settle(from, tally{}, 0, batch.Drops{batch.Poison: n})
}

// countRefused counts n records that the destination will never accept. It posts an event for the
// first refusal since a whole batch was accepted.
func (k *accounting) countRefused(n uint64, why error) {
	if k.health.poisoned.begin() {
		k.set.post("poison", cause(why), n)
	}
}

// expire drops records that are older than RetryOptions.MaxAge, but only while the destination
// fails or their stream is held. held is set if any stream is held. The check is made once a
// second, or ten times per MaxAge if that is more often.
func (k *accounting) expire(now time.Time, held bool) {
	age := k.set.opt.Retry.MaxAge
	failing := k.health.failing()
	if age < 0 || !failing && !held || now.Before(k.sweepAt) {
		return
	}
	k.sweepAt = now.Add(max(time.Millisecond, min(time.Second, age/10)))
	var n uint64
	for _, e := range slices.Clone(k.queue.ring) {
		// Entries that the session or the handler has are left to their answers.
		if failing && e.place == waiting || e.place == parked && (failing || e.suspect == nil) {
			n += k.expireEntry(now, e)
		}
	}
	if n > 0 && k.health.expiring.begin() {
		k.set.post("expired", fmt.Errorf("not delivered within %s", age), n)
	}
}

// expireEntry drops the records of e that are too old, and returns their number. The age of a
// record counts from the time of the record. If that time is unknown, or was already too old when
// the outlet started, the age counts from the arrival of e, because all records of an archive would
// expire at once if it did not.
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
	// The remaining records keep their order and their memory.
	e.b = e.b.Select(nil, keep)
	var d batch.Drops
	d[batch.Expired] = before - countable(e.b)
	k.led.settle(e.h.lease, tally{}, 0, d)
	return d[batch.Expired]
}
