package deliver

import (
	"fmt"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// accounting enters in the ledger what became of records, and removes entries without undelivered
// records from the queue.
type accounting struct {
	set    *settings
	led    *ledger
	queue  *queue
	health *health

	sweepAt  time.Time // time of the next check for too old records
	suspects uint64
}

// enter accounts for the records of e that the outcome o settles or refuses. The parameter handler
// is true if o came from the error handler. enter returns how many records are still open, which
// stay in e, and how many were refused. If none is open, the caller must remove e from the queue.
func (k *accounting) enter(e *entry, o *batch.Outcome, handler bool) (open, refused int) {
	b, n := e.b, e.b.Len()
	open, refused = o.Open.Len(n), o.Refused.Len(n)
	taken, size := countable(b), b.Bytes() // gap markers are included in size only
	if open > 0 {
		e.b = b.Select(nil, o.Open.Append(nil, n))
		taken -= countable(e.b)
		size -= e.b.Bytes()
	}
	if refused > 0 {
		bad := b.Select(nil, o.Refused.Append(nil, n))
		taken -= countable(bad)
		size -= bad.Bytes()
		k.refuse(e.h, bad, o.Refusal)
	}
	// Outcome.Unnamed may count gap markers, which the variable taken does not count.
	unnamed := min(uint64(o.Unnamed), taken)
	if unnamed > 0 {
		k.countRefused(unnamed, o.Refusal)
		size -= int(uint64(size) * unnamed / taken) // an estimate: these records have the average size
	}
	a := batch.Account{Delivered: taken - unnamed, Dropped: batch.Drops{batch.Poison: unnamed}}
	if handler {
		a.Handled, a.Delivered, size = a.Delivered, 0, 0
	}
	k.led.settle(e.h, a, size)
	return open, refused + int(unnamed)
}

// drop accounts for all records of e as dropped for the given reason. It removes e from the queue
// and returns the number of records.
func (k *accounting) drop(e *entry, why batch.Reason) uint64 {
	var a batch.Account
	n := countable(e.b)
	a.Dropped[why] = n
	k.led.settle(e.h, a, 0)
	k.queue.remove(e)
	return n
}

// dropBatch drops e and all waiting or parked entries of the same batch, and returns the number of
// records. It drops the whole batch because the spool acknowledges whole batches: if an entry
// remained, the next process would read the dropped records again, after newer ones.
func (k *accounting) dropBatch(e *entry) uint64 {
	h, n := e.h, k.drop(e, batch.Failed)
	// The loop runs over a copy, because the method drop removes entries from the queue.
	for _, other := range slices.Clone(k.queue.ring) {
		if other.h == h && other.place == waiting {
			n += k.drop(other, batch.Failed)
		}
	}
	return n
}

// refuse accounts for the records of b as refused ([batch.Poison]) and queues dead letters with
// them.
func (k *accounting) refuse(from *holder, b *batch.Batch, why error) {
	why = cause(why)
	n := countable(b)
	k.countRefused(n, why)
	k.set.deadLetter(b, why)
	k.led.settle(from, batch.Account{Dropped: batch.Drops{batch.Poison: n}}, 0)
}

// countRefused counts n records that the destination will never accept. It posts an event for the
// first refusal of a series.
func (k *accounting) countRefused(n uint64, why error) {
	if k.health.refused() {
		k.set.post("poison", cause(why), n)
	}
}

// expire drops records that are older than RetryOptions.MaxAge, but only while the destination
// fails or does not accept the stream of the record. The parameter held is true if any stream is
// held, or was recently. The check is made once a second, or ten times per MaxAge if that is more
// often.
func (k *accounting) expire(now time.Time, held bool) {
	age := k.set.opt.Retry.MaxAge
	failing := k.health.failing()
	if age < 0 || !failing && !held || now.Before(k.sweepAt) {
		return
	}
	k.sweepAt = now.Add(max(time.Millisecond, min(time.Second, age/10)))
	var n uint64
	for _, e := range slices.Clone(k.queue.ring) {
		// An entry that is in flight or at the handler is skipped, because the answer decides about
		// its records.
		if e.place == waiting && (failing || e.parked && e.suspect == nil) {
			n += k.expireEntry(now, e)
		}
	}
	if n > 0 && k.health.expiring.begin() {
		k.set.post("expired", fmt.Errorf("not delivered within %s", age), n)
	}
}

// expireEntry drops the records of e that are too old, and returns their number. The age of a
// record counts from its timestamp. If it has none, or if the timestamp was already too old when
// the outlet started, the age counts from the arrival of e. Otherwise all records read from an
// archive would expire at once.
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
	n := countable(e.b)
	e.b = e.b.Select(nil, keep) // the remaining records keep their order and their memory
	n -= countable(e.b)
	k.led.settle(e.h, batch.Account{Dropped: batch.Drops{batch.Expired: n}}, 0)
	return n
}
