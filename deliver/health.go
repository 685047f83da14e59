package deliver

import (
	"errors"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
	"github.com/forebay-log/forebay/internal/outputhook"
)

// health is the state of the destination: when the next attempt may start, how large batches may
// be, and which failures were reported.
type health struct {
	set *settings
	brk *circuit

	budget    budget
	notBefore time.Time // no attempt before this time
	failures  int       // number of consecutive failed attempts
	retries   uint64
	hurried   bool // delays are short, because Close has a deadline

	since    time.Time // time of the first failure since the last success; zero: no failure
	cause    error     // error of the latest failure
	sendAt   time.Time // time of the event "send" for the failure since the last success; zero: none is due
	sendN    uint64    // number of records of that failure
	sent     time.Time // time of the last event "send"
	gone     episode   // series in which the destination has ended permanently
	alarmed  episode   // series of failures that require a change of configuration
	poisoned episode   // series of refused records, which ends when only whole batches were accepted for sendInterval
	wholeAt  time.Time // time of the first whole batch after the last refused record of that series; zero: none
	expiring episode   // series of expired records, which ends when a batch is accepted

	bound  int // maximum payload bytes of a batch, set when the destination refuses a batch as too large; 0: no limit
	streak int // number of accepted batches of at least half of bound since bound last changed
}

const (
	// sendInterval is the minimum time between two events "send", and the time without a refused
	// record that ends a series of them. A destination that fails and recovers more often is
	// reported as if it failed once in that time.
	sendInterval = 10 * time.Second
	// boundStreak is the number of batches near the limit after which bound grows.
	boundStreak = 256
	// noBound is the value of bound, in bytes, from which batches are no longer limited.
	noBound = 64 << 20
)

// failing reports whether the destination has failed and not yet recovered.
func (s *health) failing() bool { return !s.since.IsZero() }

// reason returns why records are not delivered now, or nil if nothing prevents it. late is true if
// Close no longer waits for the destination.
func (s *health) reason(late bool) error {
	switch {
	case s.brk.cause != nil:
		return s.brk.cause
	case late:
		return outputhook.ErrClosing
	case s.failing():
		return s.cause
	}
	return nil
}

// calm reports whether nothing has failed recently: there is no delay, no limit and no unfinished
// series of failures.
func (s *health) calm() bool {
	return s.bound == 0 && s.failures == 0 && !s.failing() && !s.poisoned.on && !s.expiring.on && s.cause == nil && s.brk.Calm()
}

// well is called when the destination has accepted records, so that the next attempt need not wait.
func (s *health) well() { s.failures, s.notBefore = 0, time.Time{} }

// worked is called when the destination has settled all records of a batch of size bytes. cut is
// true if the circuit limited the size of the batch. whole is true if no record was refused.
func (s *health) worked(now time.Time, cut, whole bool, size int) {
	s.well()
	s.budget.success()
	s.brk.Worked(now, cut)
	if whole && s.poisoned.on {
		if s.wholeAt.IsZero() {
			s.wholeAt = now
		}
		if now.Sub(s.wholeAt) >= sendInterval {
			s.poisoned.end()
		}
	}
	s.sized(size)
	if s.failing() {
		s.since, s.gone, s.alarmed, s.expiring, s.cause = time.Time{}, episode{}, episode{}, episode{}, nil
		if s.sendAt.IsZero() {
			s.set.post("recovered", nil, 0)
		}
		s.sendAt = time.Time{}
	}
}

// refused is called when the destination has refused records. It reports whether a series begins.
func (s *health) refused() (first bool) {
	s.wholeAt = time.Time{}
	return s.poisoned.begin()
}

// failed is called after an attempt that left n records undelivered. It reports whether this
// failure opened the circuit. An open circuit alone determines when the next attempt is made.
func (s *health) failed(now time.Time, b setback, n int) bool {
	s.report(now, b, n)
	if !s.brk.failed(now, b) {
		s.delay(now, b)
		s.failures++
		return false
	}
	s.notBefore = time.Time{} // the circuit determines the time, and the attempt uses no token of the retry budget
	s.retries++
	s.failures++
	if s.hurried {
		s.brk.Hurry(now.Add(s.set.opt.Retry.Min))
	}
	return true
}

// delay sets the time of the next attempt. The wait is at least the delay that the destination asked
// for and the wait for a token of the retry budget. After [batch.Hold] it is at least FatalDelay.
func (s *health) delay(now time.Time, b setback) {
	least := max(min(b.after, maxRetryAfter), s.budget.take(now))
	if b.hold {
		least = max(least, s.set.opt.Retry.FatalDelay)
	}
	s.notBefore = now.Add(s.pause(s.failures, least))
	s.retries++
}

// pause returns the wait after a failure that follows the given number of failures: a random delay
// (full jitter), or least if that is longer. If Close has a deadline, it is at most Retry.Min.
func (s *health) pause(failures int, least time.Duration) time.Duration {
	r := s.set.opt.Retry
	wait := max(s.set.jitter(0, backoff.Ceil(r.Min, r.Max, failures)), least)
	if s.hurried {
		wait = min(wait, r.Min)
	}
	return wait
}

// hurry shortens the current delay and all later ones. It is called when Close has a deadline.
func (s *health) hurry(now time.Time) {
	s.hurried = true
	if s.notBefore.After(now) {
		s.notBefore = now
	}
	s.brk.Hurry(now)
}

// report posts "send" for the first failure of a series, and "hold" for the first failure that only
// a change of configuration can fix. "send" is posted later if the last one was posted less than
// sendInterval ago, and not at all if the destination recovers before.
func (s *health) report(now time.Time, b setback, n int) {
	s.cause = b.err
	if b.hold && s.alarmed.begin() {
		s.sendAt = time.Time{}
		s.set.post("hold", b.err, uint64(n))
	} else if !s.failing() {
		s.sendAt, s.sendN = now, uint64(n)
		if next := s.sent.Add(sendInterval); next.After(now) {
			s.sendAt = next
		}
		s.postSend(now)
	}
	s.fails(now)
}

// postSend posts the event "send" when it is due.
func (s *health) postSend(now time.Time) {
	if !s.sendAt.IsZero() && !now.Before(s.sendAt) {
		s.sendAt, s.sent = time.Time{}, now
		s.set.post("send", s.cause, s.sendN)
	}
}

// fails sets the start of a series of failures, unless one is in progress.
func (s *health) fails(now time.Time) {
	if !s.failing() {
		s.since = now
	}
}

// reportGone posts the event "gone" once, when the destination has ended permanently.
func (s *health) reportGone(now time.Time, why error, dropped uint64) {
	if s.cause = why; s.gone.begin() {
		s.fails(now)
		s.sendAt = time.Time{}
		s.set.post("gone", why, dropped)
	}
}

// tooLarge is called when a batch of the given number of bytes was too large. It limits batches to
// half of that size. The method sized raises the limit again, because the limit of a server may
// depend on its load.
func (s *health) tooLarge(bytes int) { s.bound, s.streak = max(1, bytes/2), 0 }

// sized is called when the destination has accepted a batch of the given size. After boundStreak
// batches near the limit, it raises the limit by a quarter.
func (s *health) sized(bytes int) {
	if s.bound == 0 || bytes < s.bound/2 {
		return
	}
	if s.streak++; s.streak >= boundStreak {
		s.streak = 0
		if s.bound += max(1, s.bound/4); s.bound >= noBound {
			s.bound = 0
		}
	}
}

// fits returns how many of the first k records of b may be sent in one batch, but at least 1.
func (s *health) fits(b *batch.Batch, k int) int {
	if s.bound > 0 && b.Bytes() > s.bound {
		return min(k, fitting(b, s.bound))
	}
	return k
}

// cause returns err, or a substitute if the driver gave no reason.
func cause(err error) error {
	if err == nil {
		return errors.New("no reason given")
	}
	return err
}

// setbackOf returns a setback for err, with the advice that [batch.RetryAfter] or [batch.Fatal]
// added to err.
func setbackOf(err error) setback {
	o := batch.FailedOutcome(err)
	return setbackIn(&o, err)
}

// setbackIn returns a setback for err, with the advice of the failed outcome o.
func setbackIn(o *batch.Outcome, err error) setback {
	return setback{err: err, after: o.After, hold: o.Advice == batch.Hold}
}
