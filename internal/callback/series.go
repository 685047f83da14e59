package callback

import (
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// dropInterval is the interval between the reports of a series of drops. A series ends when no
// record was dropped for one to two intervals.
const dropInterval = 10 * time.Second

// A DropSeries reports drops as events: "drop" for the first one and then once per interval,
// "drop-end" when the series ends. The methods except Init are called with the lock held.
//
//	none ──a drop──▶ lasting ──an interval without a drop, or End──▶ none
type DropSeries struct {
	mu      sync.Locker
	dropped *batch.Drops // all drops; mu guards it
	post    func(batch.Event)
	err     error

	lasting  bool
	before   batch.Drops // drops before the series
	reported batch.Drops // drops up to the last report
	timer    *time.Timer // runs tick at the end of each interval; nil before the first series
}

// Init sets the lock that guards the series and dropped, the counters of the owner. The events
// "drop" have the error err. post must not block, because it is called with the lock held.
func (d *DropSeries) Init(mu sync.Locker, dropped *batch.Drops, err error, post func(batch.Event)) {
	d.mu, d.dropped, d.err, d.post = mu, dropped, err, post
}

// Lasting reports whether a series is in progress.
func (d *DropSeries) Lasting() bool { return d.lasting }

// Dropped is called after a drop was counted, and begins a series unless one is in progress. The
// parameter before is the state of the counters before that drop.
func (d *DropSeries) Dropped(before *batch.Drops) {
	if d.lasting {
		return
	}
	d.lasting, d.before = true, *before
	d.report(batch.Event{Op: "drop", Err: d.err}, before)
	if d.timer == nil {
		d.timer = time.AfterFunc(dropInterval, d.tick)
	} else {
		d.timer.Reset(dropInterval)
	}
}

// tick is called at the end of each interval of a series.
func (d *DropSeries) tick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !d.lasting:
	case d.reported == *d.dropped:
		d.End()
	default:
		d.report(batch.Event{Op: "drop", Err: d.err}, &d.reported)
		d.timer.Reset(dropInterval)
	}
}

// End ends the series that is in progress, if any, and reports its total.
func (d *DropSeries) End() {
	if d.lasting {
		d.lasting = false
		d.timer.Stop()
		d.report(batch.Event{Op: "drop-end"}, &d.before)
	}
}

// report posts the event e with the number of drops that are not included in since.
func (d *DropSeries) report(e batch.Event, since *batch.Drops) {
	e.Dropped = DropsSince(d.dropped, since)
	e.Count = e.Dropped.Total()
	d.post(e)
	d.reported = *d.dropped
}

// DropsSince returns the drops in all that are not included in before.
func DropsSince(all, before *batch.Drops) (n batch.Drops) {
	for r := range all {
		n[r] = all[r] - before[r]
	}
	return n
}
