package kafka

import (
	"fmt"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// A faulty broker also refuses good records. So a record that is refused alone is only a suspect.
// It is condemned by comparison with a reference record: a copy of a record that the same partition
// has accepted.
//
//	suspect refused ─▶ reference record ──stored, 8 times─▶ suspect condemned: a dead letter
//	      ▲               │  │
//	      └────stored─────┘  └─refused─▶ held: the broker refuses a record that it accepted before
//
// If the partition has accepted no record yet, the records after the suspect are sent first. If one
// of them is stored, it is the reference record. Otherwise everything is held.
const (
	// condemned is the number of refusals after which a suspect is condemned. After each refusal,
	// the broker must store the reference record. Package internal/poison uses the same number.
	condemned = 8
	// maxDeferred is the maximum number of suspects per session that later records may overtake. It
	// limits the number of records out of order.
	maxDeferred = 64

	referenceInterval  = 10 * time.Second // age at which a reference record is replaced
	maxReferenceBytes  = 4 << 10          // maximum size of a reference record, in bytes
	maxReferencesBytes = 256 << 10        // maximum size of all reference records, in bytes
)

// A reference is a reference record: a sealed Kafka batch with a copy of one record that the
// partition has accepted. It is immutable; only clones of buf are sent.
type reference struct {
	buf  []byte
	kept time.Time // time at which the copy was made
}

// reference returns the reference record of a partition, or nil.
func (d *Driver) reference(at topicPartition) *reference {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.references[at]
}

// keep makes a copy of the first record of q the reference record of its partition. The broker must
// have stored q. If the record is large or the current reference record is recent, keep does
// nothing.
func (s *session) keep(l *partitionQueue, q *piece) {
	// A recent reference record is not replaced, because packing a copy for each stored piece would
	// take time.
	if c := s.d.reference(l.at); c != nil && time.Since(c.kept) < referenceInterval {
		return
	}
	if len(q.of.b.At(int(q.recs[0])).Data) > maxReferenceBytes {
		return
	}
	one, _ := s.repack.pack(nil, q.of, q.recs[:1], onePartition)
	s.d.keep(l.at, &reference{one[0].buf, time.Now()})
}

// keep stores c as the reference record of a partition. If the reference records then exceed
// maxReferencesBytes, it removes the reference records of other partitions.
func (d *Driver) keep(at topicPartition, c *reference) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.references[at]; old != nil {
		d.referenceBytes -= len(old.buf)
	}
	d.references[at] = c
	d.referenceBytes += len(c.buf)
	for other, o := range d.references {
		if d.referenceBytes <= maxReferencesBytes {
			return
		}
		if other != at {
			d.referenceBytes -= len(o.buf)
			delete(d.references, other)
		}
	}
}

// suspect handles the refusal of q, the head of the queue l. q is a piece with a single record, or
// a reference record. The record is condemned after the given number of refusals, if the broker has
// stored a reference record after each refusal.
func (s *session) suspect(l *partitionQueue, q *piece, why error, refusals int) {
	// A refused reference record proves that the broker is at fault, so the size limit learned from
	// earlier refusals may be wrong.
	if q.reference {
		s.d.forget(l.at.topic)
		s.hold(fmt.Errorf("%w; the partition also refuses records that it accepted before, so the record is not the cause", why))
		return
	}
	q.reason = why
	// The reference record is sent next, and then the suspect again.
	c := s.d.reference(l.at)
	switch {
	case c != nil:
		// After the given number of refusals, q.refusals reaches the constant condemned.
		q.refusals += condemned / refusals
		l.queue = slices.Insert(l.queue, 0, &piece{at: l.at, recs: []int32{0}, buf: slices.Clone(c.buf), reference: true})
		l.resetAttempts()
	// Without a reference record, the suspect moves once to the end of its queue.
	case !q.deferred && len(l.queue) > 1 && s.deferred < maxDeferred:
		s.deferred++
		q.deferred = true
		l.queue = append(l.queue[1:], q)
		l.resetAttempts()
	default:
		s.hold(fmt.Errorf("%w; the partition has accepted no other record, so the topic may be the cause", why))
	}
}

// hold ends the session with the advice to hold all records.
func (s *session) hold(err error) { s.fail(&failure{err: err, advice: batch.Hold}) }

// referenceStored is called when the reference record at the head of the queue l is stored. The
// suspect, which is the next piece, is condemned or sent again.
func (s *session) referenceStored(l *partitionQueue) {
	s.shift(l)
	if q := l.queue[0]; q.refusals >= condemned {
		s.condemn(l, q, q.reason)
	}
}

// condemn refuses the only record of q, the head of the queue l. q.named contains records that the
// broker named as invalid earlier. They are refused only after another record of their batch is
// stored. None was stored, so they are sent again.
func (s *session) condemn(l *partitionQueue, q *piece, why error) {
	// The sequence number of the partition does not advance, because the broker has stored nothing.
	s.refuse(q.of, q.recs, why)
	if rest := q.named; len(rest) > 0 {
		q.named = nil
		s.replace(l, q, rest)
		return
	}
	s.settle(l, q)
}
