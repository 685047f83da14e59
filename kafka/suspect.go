package kafka

import (
	"fmt"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// A faulty broker also refuses good records. So a record that is refused alone is a suspect, and is
// condemned by comparison with a control: a copy of a record that the same partition has accepted.
//
//	suspect refused ─▶ control ──stored, 8 times─▶ refused, a dead letter
//	      ▲               │  │
//	      └────stored─────┘  └─refused─▶ held: the broker refuses a record that it accepted before
//
// If the partition has accepted no record yet, the records after the suspect are sent first. If one
// of them is stored, it is the control. Otherwise everything is held.
const (
	condemned    = 8 // refusals, each followed by a stored control: see deliver/search.go
	deferredMost = 64

	controlEvery = 10 * time.Second // so old a control becomes before another is kept
	controlBytes = 4 << 10          // the largest one
	controlsMost = 256 << 10        // all of them, in bytes
)

// A control is a Kafka batch with a copy of a record that was taken.
type control struct {
	buf  []byte
	kept time.Time
}

// control returns the control of a partition, nil if there is none.
func (d *Destination) control(at place) *control {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.controls[at]
}

// keep makes a control of a record of q, which was stored.
func (s *session) keep(l *lane, q *piece) {
	if c := s.d.control(l.at); c != nil && time.Since(c.kept) < controlEvery {
		return
	}
	if len(q.of.b.At(int(q.recs[0])).Data) > controlBytes {
		return
	}
	one, _ := s.repack.pack(nil, q.of, q.recs[:1], func(string) (int, error) { return 1, nil })
	s.d.keep(l.at, &control{one[0].buf, time.Now()})
}

// keep keeps c. Where there are too many, any others go.
func (d *Destination) keep(at place, c *control) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.controls[at]; old != nil {
		d.controlled -= len(old.buf)
	}
	d.controls[at] = c
	d.controlled += len(c.buf)
	for other, o := range d.controls {
		if d.controlled <= controlsMost {
			return
		}
		if other != at {
			d.controlled -= len(o.buf)
			delete(d.controls, other)
		}
	}
}

// suspect deals with q, a single record at the head of a lane that was refused, or with a
// control that was. A record is condemned after so many refusals.
func (s *session) suspect(l *lane, q *piece, why error, after int) {
	if q.control {
		s.d.forget(l.at.topic)
		s.hold(fmt.Errorf("%w; the partition also refuses records that it accepted before, so the record is not the cause", why))
		return
	}
	q.why = why
	c := s.d.control(l.at)
	switch {
	case c != nil:
		q.refusals += condemned / after
		l.queue = slices.Insert(l.queue, 0, &piece{at: l.at, recs: []int32{0}, buf: slices.Clone(c.buf), control: true})
		l.tries, l.since = 0, time.Time{}
	case !q.deferred && len(l.queue) > 1 && s.deferred < deferredMost:
		s.deferred++
		q.deferred = true
		l.queue = append(l.queue[1:], q)
		l.tries, l.since = 0, time.Time{}
	default:
		s.hold(fmt.Errorf("%w; the partition has accepted no other record, so the topic may be the cause", why))
	}
}

func (s *session) hold(err error) { s.fail(&failure{err: err, advice: batch.Hold}) }

// controlled continues after the control at the head of a lane was stored.
func (s *session) controlled(l *lane) {
	s.shift(l)
	if q := l.queue[0]; q.refusals >= condemned {
		s.convict(l, q, q.why)
	}
}

// convict refuses the only record of q. Records named in the same answer are sent again: no other
// record of the batch was accepted, so there is no evidence against them.
func (s *session) convict(l *lane, q *piece, why error) {
	s.refuse(q.of, q.recs, why)
	if rest := q.named; len(rest) > 0 {
		q.named = nil
		s.replace(l, q, rest)
		return
	}
	s.settle(l, q)
}
