package deliver

import (
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
)

// asking determines when the error handler is asked: while the circuit is open, or its probe
// hangs, or, with HandlerFirst, the next attempt waits for its time, and more than PendingLimit
// records wait; when memory is about to drop records; and, when Close is late, whatever waits.
// When the time for a probe has come, the probe goes first: a handler that accepts everything must
// not prevent it.
type asking struct {
	set    *settings
	led    *ledger
	health *health

	needs   needs
	busy    bool      // a batch is with it; at most one
	at      time.Time // not before; zero: at once
	due     uint64    // records to offer before the limit counts again
	fails   int       // in a row
	failing episode   // its calls fail
	// relieves is set if memory was about to drop records, and the destination has
	// taken nothing since.
	relieves bool
}

// needs is why memory needs the handler, or room that held streams have.
type needs struct {
	drops bool // it is about to drop records
	waits bool // a call waits without a limit, and has for long
}

// opened notes that the circuit has opened: the handler is asked at once, and then at intervals
// of settings.askEvery, whatever the destination is doing.
func (a *asking) opened(now time.Time) {
	if a.fails == 0 {
		a.at = now
	}
}

// relieved notes that the destination has accepted records: the waiting ones go to the destination, not
// to the handler.
func (a *asking) relieved() { a.due, a.relieves = 0, false }

// wants reports whether to offer the waiting records to the handler. Once the limit is exceeded, all
// records that wait at that time are offered (due): otherwise a number about the limit would stay
// forever.
func (a *asking) wants(now time.Time) bool {
	if !a.set.handler || now.Before(a.at) {
		return false
	}
	if a.due == 0 {
		if n := a.pending(); n > uint64(a.set.opt.PendingLimit) || a.needs.drops || a.needs.waits {
			a.due = n
		}
	}
	return a.due > 0
}

// cause returns why the handler is asked now; late is set if Close has no more time for the
// destination.
func (a *asking) cause(late bool) error {
	switch cause := a.health.brk.cause; {
	case cause != nil:
		return &openError{cause}
	case late:
		return errNoTime
	case a.health.failing():
		return a.health.cause
	}
	return ErrFull
}

// pending returns how many records wait: in copies, in the spool and in the log. Those that a session has
// are among them.
func (a *asking) pending() uint64 {
	return a.led.account().Pending.Total() + a.set.pending()
}

// betweenAttempts reports whether the handler is asked because the next attempt waits.
func (a *asking) betweenAttempts(now time.Time) bool {
	return a.set.opt.HandlerFirst && a.health.failing() && now.Before(a.health.notBefore)
}

// relieve reports whether the handler is asked whatever state the circuit is in: memory is
// about to drop records, or was, and the destination has accepted none since. Records that can be
// sent now are sent. A call that waits without a limit is relieved of a destination that fails,
// and not of one that is slow.
func (a *asking) relieve() bool {
	a.relieves = a.relieves || a.needs.drops || a.needs.waits && a.health.failing()
	return a.relieves
}

// wakeAt returns when the handler is asked again although nothing happens: what waits before the
// outlet grows without an event. It is zero for never.
func (a *asking) wakeAt(now time.Time) (t time.Time) {
	if !a.set.handler || a.busy || a.set.opt.askEvery <= 0 {
		return t
	}
	if a.health.brk.state() != Closed || a.relieves || a.betweenAttempts(now) {
		t = now.Add(a.set.opt.askEvery)
	}
	return t
}

// answered notes the answer of the handler to n records. After a failure it is asked again after a delay
// with full jitter, as a destination is. Failures are reported once in a row.
func (a *asking) answered(now time.Time, out *batch.Outcome, n int) {
	a.busy = false
	err := out.Err()
	if err == nil || out.Open.Empty() && out.Refused.Empty() {
		a.fails, a.at = 0, time.Time{}
		if a.failing.end() {
			a.set.post("handler-recovered", nil, 0)
		}
		return
	}
	r := a.set.opt.Retry
	a.at = now.Add(max(a.set.jitter(0, backoff.Ceil(r.Min, r.Max, a.fails)), min(out.After, maxRetryAfter)))
	if a.fails++; a.failing.begin() {
		a.set.post("handler", err, uint64(n))
	}
}
