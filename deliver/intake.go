package deliver

import (
	"context"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/poison"
	"github.com/forebay-log/forebay/internal/slablog"
)

// A log is the memory in front of an outlet: a [slablog.Log], which documents the methods, or a
// queue of batches in tests. Only the loop calls Next, Due, Full, Shortage and Leave; the other
// methods may be called from any goroutine.
type log interface {
	Next() (l lease, ended bool)
	Due() time.Time
	Wake() <-chan struct{}
	Full() bool
	Shortage() (drops, waits bool)
	Flush() (ticket uint64, ok bool)
	Leased(ticket uint64) bool
	Account(theirs batch.Account) batch.Account
	Close()
	Refuse()
	End(ctx context.Context, done bool) (unknown uint64)
	Leave()
}

// slabLog implements log for a slablog.Log.
type slabLog struct{ *slablog.Log }

// Next returns a nil interface if there is no lease, because an interface with a nil *slablog.Lease
// is not equal to nil.
func (s slabLog) Next() (lease, bool) {
	l, ended := s.Log.Next()
	if l == nil {
		return nil, ended
	}
	return l, false
}

// consumer returns the description of the outlet that slablog.New requires.
func (o *outlet) consumer() slablog.Consumer {
	c := slablog.Consumer{
		Limits: o.set.traits.Limits, Dictionary: o.set.traits.Dictionary, Several: o.inline, Vectors: o.set.traits.Vectors,
		Spills: o.set.spools(), Helps: !o.inline,
		Busy: o.intake.busy,
	}
	if h, ok := o.led.spill.(heldReporter); ok {
		c.Held = func(origin [16]byte, first, last uint64) (held []layout.Tickets) {
			_ = o.m.disk.call(func() error {
				held = h.Held(origin, first, last)
				return nil
			})
			return held
		}
	}
	return c
}

// An intake leases batches from the log. Only the loop uses it. It leases one batch more than the
// window permits, so that the next batch is ready when an answer arrives. It leases no further
// batches, because DropOldest cannot drop leased slabs and half of the slabs must stay available to
// writers.
type intake struct {
	o   *outlet
	log log

	sole   holder    // lease of sendNow; a field, so that it costs no allocation
	used   int       // number of leases that are not released
	lastNo uint64    // number of the latest lease
	due    time.Time // latest time of the next call of fill; zero: none
}

// fill leases batches until it has leased one more than the window permits. The result is true if
// it has called the driver, because the call may have caused events. Before each lease it answers
// waiting flushes, so that a caller that writes without a pause does not delay them.
func (k *intake) fill(now time.Time) (again bool) {
	m := k.o.m
	k.due = time.Time{}
	for {
		if m.flushes.any() {
			m.flushes.arrive(k.log, k.lastNo)
			k.o.publish()
			m.flushes.answer()
		}
		if m.end.last || k.crowded() {
			return false
		}
		var l lease
		ended := m.end.stage >= over
		if !ended {
			l, ended = k.log.Next()
		}
		switch {
		case ended:
			m.allLeased()
			return false
		case l == nil:
			k.due = k.log.Due()
			return false
		}
		if k.o.inline && m.calm() {
			k.sendNow(l)
			return true
		}
		k.add(now, l)
	}
}

// crowded reports whether fill must not lease another batch.
func (k *intake) crowded() bool { return k.used > k.o.m.set.traits.Window }

// busy reports whether the session has no room for another batch now. It counts neither the batch
// that is leased in advance nor parked batches.
func (k *intake) busy() bool {
	room := k.o.m.set.traits.Window
	if len(k.o.m.queue.ring) < room {
		return false
	}
	for _, e := range k.o.m.queue.ring {
		if !e.parked || e.place != waiting {
			room--
		}
	}
	return room <= 0
}

// add passes l to the machine.
func (k *intake) add(now time.Time, l lease) *entry {
	k.used++
	k.lastNo++
	return k.o.m.add(now, l, k.lastNo)
}

// release releases the lease of h when all its records are settled and no session reads them.
func (k *intake) release(h *holder) {
	h.lease.Release()
	k.used--
}

// readShortage tells the machine whether memory is short. The log acquires a lock to find out, so
// it is asked only if the machine could help.
func (k *intake) readShortage() {
	m := k.o.m
	m.full = m.set.spools() && k.log.Full()
	m.handler.needs = needs{}
	if m.set.handler || m.streams.any() {
		m.handler.needs.drops, m.handler.needs.waits = k.log.Shortage()
	}
}

// calm reports whether a new batch would cause only one action, its Send. Such a batch may bypass
// the machine, which would add up to a third to the cost of a write.
func (m *machine) calm() bool {
	return m.end.stage == running && m.sess.state == live && m.sess.awaited == 0 && !m.sess.regroup &&
		len(m.queue.ring) == 0 && !m.streams.any() && m.poison.Phase() == poison.Usual && m.health.calm() && !m.set.lettersFull()
}

// sendNow sends l to the session of an inline outlet. It is called only if the method calm returns
// true. If the answer settles all records, sendNow accounts for them and allocates nothing.
// Otherwise it adds l to the machine as a batch that was sent, together with the answer.
func (k *intake) sendNow(l lease) {
	o, b := k.o, l.Batch()
	lf, size := o.life, b.Bytes()
	returned := false
	defer func() {
		if !returned { // runtime.Goexit: the session ends, and the next one gets the batch
			k.addSent(l)
		}
	}()
	err := lf.make(func() error { return lf.sess.Send(b) })
	returned = true
	if err == nil && lf.onlySettled(b) {
		o.m.sess.attempts++
		o.m.sess.answered = true
		o.m.health.budget.success()
		k.sole = holder{lease: l}
		o.led.settle(&k.sole, batch.Account{Delivered: leasedRecords(b)}, size)
		o.publish()
		l.Release()
		return
	}
	lf.sent(k.addSent(l), err)
}

// addSent adds l to the machine as a batch that was sent.
func (k *intake) addSent(l lease) *entry {
	now := time.Now()
	e := k.add(now, l)
	k.o.m.sess.give(now, e, poison.Queued)
	e.out = l.Batch() // the batch that the session answers
	return e
}

// leasedRecords returns the number of records in a leased batch, without gap markers. A batch with
// a gap marker contains nothing else, so only a batch of one record must be read.
func leasedRecords(b *batch.Batch) uint64 {
	if n := b.Len(); n > 1 {
		return uint64(n)
	}
	return countable(b)
}
