package deliver

import (
	"errors"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
)

// health describes the destination: when the next attempt may be, how large batches may be, and
// which part of that was reported.
type health struct {
	set *settings
	brk *circuit

	budget    budget
	notBefore time.Time // no attempt before
	failures  int       // setbacks in a row
	retries   uint64
	hurried   bool // Close has a deadline: delays are short

	since    time.Time // of the first failure since the last success; zero: none
	cause    error     // of the latest failure
	gone     episode   // the destination has ended
	alarmed  episode   // a change of configuration is needed
	poisoned episode   // records were condemned, and no whole batch was accepted since
	expiring episode   // records have expired, and no batch was accepted since

	bound  int // payload bytes of a batch, after one was too large; 0: no limit
	streak int // batches cut to it that were taken
}

const (
	// boundStreak is after how many batches that were cut to the bound it grows.
	boundStreak = 256
	// noBound is the size from which there is no bound any more.
	noBound = 64 << 20
)

// failing reports whether the destination has failed and not recovered yet.
func (s *health) failing() bool { return !s.since.IsZero() }

// calm reports whether nothing went wrong lately.
func (s *health) calm() bool {
	return s.bound == 0 && s.failures == 0 && !s.failing() && !s.poisoned.on && !s.expiring.on && s.cause == nil && s.brk.Calm()
}

// well notes that the destination accepted records.
func (s *health) well() { s.failures, s.notBefore = 0, time.Time{} }

// worked notes that the destination took a whole batch of size bytes, or refused records of it.
func (s *health) worked(now time.Time, cut, whole bool, size int) {
	s.well()
	s.budget.success()
	s.brk.Worked(now, cut)
	if whole {
		s.poisoned.end()
	}
	s.sized(size)
	if s.failing() {
		s.since, s.gone, s.alarmed, s.expiring, s.cause = time.Time{}, episode{}, episode{}, episode{}, nil
		s.set.post("recovered", nil, 0)
	}
}

// failed notes a setback: n records were not taken. It reports whether that opened the circuit. An open
// circuit determines the time of the next attempt alone.
func (s *health) failed(now time.Time, b setback, n int) bool {
	s.report(now, b, n)
	if !s.brk.failed(now, b) {
		s.delay(now, b)
		s.failures++
		return false
	}
	s.notBefore = time.Time{} // the circuit decides, and uses no retry of the budget
	s.retries++
	s.failures++
	if s.hurried {
		s.brk.Hurry(now.Add(s.set.opt.Retry.Min))
	}
	return true
}

// delay sets the time of the next attempt: the longest of full jitter, the delay that the destination
// asked for, and the wait for a token of the budget.
func (s *health) delay(now time.Time, b setback) {
	r := s.set.opt.Retry
	wait := max(s.set.jitter(0, backoff.Ceil(r.Min, r.Max, s.failures)), min(b.after, maxRetryAfter), s.budget.take(now))
	if b.hold {
		wait = max(wait, r.FatalDelay)
	}
	if s.hurried {
		wait = min(wait, r.Min)
	}
	s.notBefore = now.Add(wait)
	s.retries++
}

// hurry makes all delays short, now and later: Close has a deadline.
func (s *health) hurry(now time.Time) {
	s.hurried = true
	if s.notBefore.After(now) {
		s.notBefore = now
	}
	s.brk.Hurry(now)
}

// report reports the first failure of a row, and separately the first that needs a change of
// configuration.
func (s *health) report(now time.Time, b setback, n int) {
	s.cause = b.err
	if b.hold && s.alarmed.begin() {
		s.set.post("hold", b.err, uint64(n))
	} else if !s.failing() {
		s.set.post("send", b.err, uint64(n))
	}
	s.fails(now)
}

// fails notes the time of the first failure of a row.
func (s *health) fails(now time.Time) {
	if !s.failing() {
		s.since = now
	}
}

// reportGone reports the first time that the destination has ended permanently.
func (s *health) reportGone(now time.Time, why error, dropped uint64) {
	if s.cause = why; s.gone.begin() {
		s.fails(now)
		s.set.post("gone", why, dropped)
	}
}

// tooLarge bounds batches to half of the bytes that were too large at once. The bound grows again in
// sized, because the limit of a server may depend on its load.
func (s *health) tooLarge(bytes int) { s.bound, s.streak = max(1, bytes/2), 0 }

// sized notes that the destination took a batch of so many bytes.
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

// fits returns how many of the first k records of b a batch may have, at least one.
func (s *health) fits(b *batch.Batch, k int) int {
	if s.bound > 0 && b.Bytes() > s.bound {
		return min(k, fitting(b, s.bound))
	}
	return k
}

// cause returns err, or an error for drivers that give no reason.
func cause(err error) error {
	if err == nil {
		return errors.New("no reason given")
	}
	return err
}

// setbackOf returns the setback that err is, with the advice of [batch.RetryAfter] and [batch.Fatal].
func setbackOf(err error) setback {
	o := batch.FailedOutcome(err)
	return setbackIn(&o, err)
}

// setbackIn returns the setback that o is, because of err.
func setbackIn(o *batch.Outcome, err error) setback {
	return setback{err: err, after: o.After, hold: o.Advice == batch.Hold}
}
