package deliver

import (
	"errors"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// A handlerPolicy decides when waiting records are offered to the error handler. That is the case
// when:
//
//   - more than PendingLimit records wait, and the circuit is open, its probe hangs or, with
//     HandlerFirst, the delay before the next attempt is running;
//   - memory is about to drop records;
//   - Close no longer waits for the destination.
//
// A due probe of the circuit is sent before the handler is called, because otherwise a handler that
// accepts everything would prevent all probes.
type handlerPolicy struct {
	set    *settings
	health *health

	needs needs
	busy  bool      // the handler is processing a batch; it gets one batch at a time
	at    time.Time // the handler is not called before this time; zero: no limit
	due   uint64    // number of records to offer before PendingLimit is checked again
	fails int       // number of consecutive failed calls of the handler
	// relieves is set when memory is short, and cleared when the destination accepts records.
	relieves bool

	inUse episode   // series in which the handler accepts records
	why   error     // reason of the latest call
	last  time.Time // time at which the handler last accepted a record
}

// handledQuiet is the time without accepted records after which a series of handled records ends.
// While a destination is slow, it accepts records between two calls of the handler.
const handledQuiet = 10 * time.Second

// needs describes a shortage of memory. To end the shortage, the handler can accept records, or
// parked records can be removed.
type needs struct {
	drops bool // memory is about to drop records
	waits bool // a call without a time limit has been waiting for memory for a while
}

// opened is called when the circuit has opened. The handler is called at once, unless its last call
// failed. Later calls are at intervals of Options.askEvery (see wakeAt).
func (a *handlerPolicy) opened(now time.Time) {
	if a.fails == 0 {
		a.at = now
	}
}

// relieved is called when the destination has accepted records. The waiting records are then sent
// to the destination, not offered to the handler.
func (a *handlerPolicy) relieved() { a.due, a.relieves = 0, false }

// wants reports whether to offer waiting records to the handler. When PendingLimit is exceeded, all
// records that wait at that time are offered; the field due counts them. If only the excess were
// offered, the number of waiting records would stay near the limit forever.
func (a *handlerPolicy) wants(now time.Time) bool {
	if !a.set.handler || now.Before(a.at) {
		return false
	}
	if a.due == 0 {
		if n := a.set.pending(); n > uint64(a.set.opt.PendingLimit) || a.needs.drops || a.needs.waits {
			a.due = n
		}
	}
	return a.due > 0
}

// cause returns the reason for the next call of the handler. late is true if Close no longer waits
// for the destination.
func (a *handlerPolicy) cause(late bool) error {
	if a.why = a.health.reason(late); a.why == nil {
		a.why = ErrFull
	}
	if a.health.brk.cause != nil {
		return openError(a.why)
	}
	return a.why
}

// repeats reports whether the handler may be called again after a failed call.
func (a *handlerPolicy) repeats(now time.Time) bool {
	return a.set.handler && !a.busy && !now.Before(a.at)
}

// betweenAttempts reports whether the delay before the next attempt is running and HandlerFirst
// permits offers during that delay.
func (a *handlerPolicy) betweenAttempts(now time.Time) bool {
	return a.set.opt.HandlerFirst && a.health.failing() && now.Before(a.health.notBefore)
}

// relieve reports whether to call the handler in any state of the circuit, because memory is short.
// The result stays true until the destination accepts records. The machine first sends all batches
// that it may send. A call that waits for memory without a time limit matters only while the
// destination fails, not while it is slow.
func (a *handlerPolicy) relieve() bool {
	a.relieves = a.relieves || a.needs.drops || a.needs.waits && a.health.failing()
	return a.relieves
}

// wakeAt returns the time at which the handler must be called again if no event occurs, or zero for
// never. Records that accumulate in the log cause no event, so without this time they would not be
// offered.
func (a *handlerPolicy) wakeAt(now time.Time) (t time.Time) {
	if !a.set.handler || a.busy || a.set.opt.askEvery <= 0 {
		return t
	}
	if a.health.brk.state() != Closed || a.relieves || a.betweenAttempts(now) {
		t = now.Add(a.set.opt.askEvery)
	}
	return t
}

// accepted is called when the handler has accepted n records. The first call of a series posts the
// event "handle".
func (a *handlerPolicy) accepted(now time.Time, n uint64) {
	if a.last = now; a.inUse.begin() {
		a.set.post("handle", a.why, n)
	}
}

// quietAt returns the time at which a series of handled records ends if the handler accepts no
// record before, or zero if none can end now. A series lasts at least as long as the destination
// fails or accepts nothing.
func (a *handlerPolicy) quietAt() (t time.Time) {
	if a.inUse.on && !a.relieves && !a.health.failing() && a.health.brk.state() == Closed {
		t = a.last.Add(handledQuiet)
	}
	return t
}

// endSeries posts the event "handled" if a series of handled records has ended.
func (a *handlerPolicy) endSeries(now time.Time) {
	if t := a.quietAt(); !t.IsZero() && !now.Before(t) && a.inUse.end() {
		a.set.post("handled", nil, 0)
	}
}

// answered processes the answer of the handler to n records. After a failure, the handler is called
// again after a delay, as a destination would be. Only the first failure of a series is reported.
func (a *handlerPolicy) answered(now time.Time, out *batch.Outcome, n int) {
	a.busy = false
	err := out.Err()
	if err == nil || out.Open.Empty() && out.Refused.Empty() {
		if a.fails > 0 {
			a.set.post("handler-recovered", nil, 0)
		}
		a.fails, a.at = 0, time.Time{}
		return
	}
	a.at = now.Add(a.health.pause(a.fails, min(out.After, maxRetryAfter)))
	if a.fails++; a.fails == 1 {
		a.set.post("handler", err, uint64(n))
	}
}

// ErrFull is the cause of the event "spill", and of a call of an [ErrorHandler], if memory is full
// although the destination has not failed: it is slow or hangs.
var ErrFull = errors.New("the destination is too slow")
