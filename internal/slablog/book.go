package slablog

import (
	"fmt"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/slab"
)

// book is the account of a store. Two fields are incomplete until the account is read: Accepted
// does not include the records that got tickets, and Pending is zero.
type book struct {
	batch.Account
	series dropSeries
	// retained is the number of records left in the crash-safe file for the next start.
	retained int
	// refused is the number of writes after Close. These do not count as accepted.
	refused uint64
}

// droppedError wraps ErrDropped with the reason. dropErrors has one for each reason, so that a drop
// does not allocate.
type droppedError batch.Reason

var dropErrors = func() (e [len(batch.Drops{})]error) {
	for i := range e {
		e[i] = droppedError(i)
	}
	return e
}()

func (e droppedError) Error() string {
	return fmt.Sprintf("%v: %v", slab.ErrDropped, batch.Reason(e))
}

func (e droppedError) Unwrap() error { return slab.ErrDropped }

// Is reports whether e is ErrOversize.
func (e droppedError) Is(target error) bool {
	return target == slab.ErrOversize && batch.Reason(e) == batch.Oversize
}

// dropLocked counts a record that was dropped before it got a ticket.
func (s *store) dropLocked(r batch.Reason) error {
	s.book.Accepted++
	s.countDropLocked(r, 1)
	return dropErrors[r]
}

// dropInterval is the interval between the reports of a series of drops. A series ends when no
// record was dropped for one to two intervals.
const dropInterval = 10 * time.Second

// A dropSeries reports the drops of a store as events: "drop" for the first one and then once per
// interval, "drop-end" when the series ends.
//
//	none ──a drop──▶ lasting ──an interval without a drop, or Log.End──▶ none
type dropSeries struct {
	lasting  bool
	before   batch.Drops // drops before the series
	reported batch.Drops // drops up to the last report
	// timer runs store.reportDrops at the end of each interval. It is nil before the first series.
	timer *time.Timer
}

// countDropLocked counts n accepted records as dropped, and begins a series of drops unless one is
// in progress.
func (s *store) countDropLocked(r batch.Reason, n int) {
	if n == 0 {
		return
	}
	d := &s.book.series
	before := s.book.Dropped
	s.book.Dropped[r] += uint64(n)
	if d.lasting {
		return
	}
	d.lasting, d.before = true, before
	s.postDropsLocked(batch.Event{Op: "drop", Err: slab.ErrDropped}, before)
	if d.timer == nil {
		d.timer = time.AfterFunc(dropInterval, s.reportDrops)
	} else {
		d.timer.Reset(dropInterval)
	}
}

// reportDrops is called at the end of each interval of a series.
func (s *store) reportDrops() {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &s.book.series
	switch {
	case !d.lasting:
	case d.reported == s.book.Dropped:
		s.endDropsLocked()
	default:
		s.postDropsLocked(batch.Event{Op: "drop", Err: slab.ErrDropped}, d.reported)
		d.timer.Reset(dropInterval)
	}
}

// endDropsLocked ends the series of drops that is in progress, if any, and reports its total.
func (s *store) endDropsLocked() {
	if d := &s.book.series; d.lasting {
		d.lasting = false
		d.timer.Stop()
		s.postDropsLocked(batch.Event{Op: "drop-end"}, d.before)
	}
}

// postDropsLocked reports the event e with the number of drops that are not included in since.
func (s *store) postDropsLocked(e batch.Event, since batch.Drops) {
	e.Dropped = s.dropsSinceLocked(&since)
	e.Count = e.Dropped.Total()
	s.conf.events.PostEvent(e)
	s.book.series.reported = s.book.Dropped
}

// dropsSinceLocked returns the number of drops that are not included in before.
func (s *store) dropsSinceLocked(before *batch.Drops) (n batch.Drops) {
	for r, all := range s.book.Dropped {
		n[r] = all - before[r]
	}
	return n
}
