package batch

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// An Outcome is the answer to one batch. Each record is open, refused or, if it is in neither set,
// settled. In the zero Outcome all records are settled.
//
// An Outcome is invalid in three cases (see [Outcome.Check]):
//
//   - It contains records that the batch does not have.
//   - It contains a record as both open and refused.
//   - It rejects more records, counted by Refused and Unnamed, than the batch has besides the open
//     ones.
type Outcome struct {
	// Open are the records that are not settled. They will be sent again.
	Open Set
	// Refused are the records that the destination permanently rejects. They become dead
	// letters immediately.
	Refused Set
	// Unnamed is the number of records, besides Refused, that the destination rejected without
	// identifying them. They are counted as dropped for [Poison] and do not become dead letters.
	Unnamed int
	// Why is the reason for Open; Refusal is the reason for Refused and Unnamed. If Why wraps
	// [ErrUnanswered], the destination may have accepted the open records.
	Why, Refusal error
	// After is the minimum delay before the next attempt, like HTTP's Retry-After.
	After time.Duration
	// Advice determines how the open records are sent again.
	Advice Advice
}

// Advice determines how the open records of an [Outcome] are sent again.
type Advice uint8

const (
	// Again sends them unchanged, after the retry delay.
	Again Advice = iota
	// Smaller means that the batch was too large. The records of this and later batches are sent in
	// smaller batches. A single record that is too large is refused.
	Smaller
	// Search means that the destination rejected the batch because of some of its records and did
	// not identify them. The batch is sent in parts. A record that is rejected when it is sent
	// alone becomes a dead letter.
	Search
	// Hold means that only a change of configuration helps, such as a new password. All records are
	// kept, and an event is reported.
	Hold
	// HoldStreams keeps the open records, and all later records of the same streams, without
	// sending them. Other streams continue.
	HoldStreams
	// Gone means that the destination has ended permanently, like a pipe without a reader. Open
	// records are dropped with the reason [Failed]. If the batch is being sent in parts, the parts
	// not yet sent are dropped too.
	Gone
	// Doubt means that the destination refused the batch, and that the cause may be some of its
	// records or a failure of the destination. The batch is sent in parts. Before each part, a
	// record that was accepted earlier is sent again. A record becomes a dead letter if it is
	// refused several times in a row when it is sent alone, while the records sent before it are
	// accepted.
	Doubt
	// ServerError means that the destination failed while it processed the batch, as HTTP's status
	// 500 says. The batch is sent again after the retry delay. If it fails three times, the outlet
	// searches it as with Doubt, so that one record does not delay the others. A record becomes a
	// dead letter only if it is refused for an hour.
	ServerError
)

var adviceNames = [...]string{"again", "smaller", "search", "hold", "hold streams", "gone", "doubt", "server error"}

// String returns the advice in plain words.
func (a Advice) String() string {
	if int(a) < len(adviceNames) {
		return adviceNames[a]
	}
	return fmt.Sprintf("advice(%d)", a)
}

// FailedOutcome returns the Outcome of an attempt that settled no record because of err. If err was
// made by [RetryAfter] or [Fatal], it determines After and Advice.
func FailedOutcome(err error) Outcome {
	o := Outcome{Open: All(), Why: err}
	var e *advisedError
	if errors.As(err, &e) {
		o.Advice, o.After = e.advice, e.after
	}
	return o
}

// RetryAfter wraps err, such as a connection error, to request a delay of at least d before the
// next attempt. It returns nil if err is nil. See [FailedOutcome].
func RetryAfter(err error, d time.Duration) error { return advise(err, Again, d) }

// Fatal wraps err to indicate that only a change of configuration helps: the Advice is [Hold]. It
// returns nil if err is nil. See [FailedOutcome].
func Fatal(err error) error { return advise(err, Hold, 0) }

// advise wraps err in an advisedError. It returns nil if err is nil.
func advise(err error, a Advice, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &advisedError{err, a, after}
}

// An advisedError is an error with an Advice.
type advisedError struct {
	err    error
	advice Advice
	after  time.Duration
}

// Error returns the text of the wrapped error.
func (e *advisedError) Error() string { return e.err.Error() }

// Unwrap returns the wrapped error.
func (e *advisedError) Unwrap() error { return e.err }

// ErrUnanswered is wrapped by the Why of an [Outcome] if the destination sent no complete answer.
// The destination may have accepted the open records. If Close drops them later, they are counted
// in [Report].Unknown.
var ErrUnanswered = errors.New("no answer")

// errNoReason is the error of an Outcome that gives no reason for its open or refused records.
var errNoReason = errors.New("no reason given")

// Err returns the reason why not all records are settled: Why if there are open records, or Refusal
// if there are none. It returns nil if all records are settled.
func (o *Outcome) Err() error {
	var err error
	switch {
	case !o.Open.Empty():
		err = o.Why
	case !o.Refused.Empty() || o.Unnamed > 0:
		err = o.Refusal
	default:
		return nil
	}
	if err == nil {
		return errNoReason
	}
	return err
}

// errNonsense is wrapped by the errors that Check returns.
var errNonsense = errors.New("the answer is invalid")

// Check returns an error if o is not a valid answer to a batch of n records.
func (o *Outcome) Check(n int) error {
	if !o.Open.valid(n) || !o.Refused.valid(n) {
		return fmt.Errorf("%w: it names records outside the %d sent", errNonsense, n)
	}
	if o.Unnamed < 0 || o.Unnamed > 0 && o.Unnamed > n-o.Open.Len(n)-o.Refused.Len(n) {
		return fmt.Errorf("%w: %d unnamed records are refused, but only %d were sent", errNonsense, o.Unnamed, n)
	}
	if o.Open.Empty() || o.Refused.Empty() {
		return nil
	}
	for i := range n {
		if o.Open.Has(i) && o.Refused.Has(i) {
			return fmt.Errorf("%w: record %d is both open and refused", errNonsense, i)
		}
	}
	return nil
}

// A Set contains records of one batch by index, starting at 0. The zero Set is empty.
type Set struct {
	list []int // ascending
	// firstPlus1 is 1 plus the index of the first record of a range that ends with the batch. 0
	// means that there is no such range.
	firstPlus1 int
}

// All returns the Set of all records.
func All() Set { return Set{firstPlus1: 1} }

// From returns the Set of the records with index i and above. A negative index is invalid, see
// [Outcome.Check].
func From(i int) Set {
	if i < 0 {
		return Set{firstPlus1: -1}
	}
	return Set{firstPlus1: i + 1}
}

// Of returns the Set of the records with the given ascending indexes. The Set retains the slice.
func Of(indexes ...int) Set { return Set{list: indexes} }

// Empty reports whether s contains no record.
func (s Set) Empty() bool { return s.firstPlus1 == 0 && len(s.list) == 0 }

// Has reports whether s contains record i.
func (s Set) Has(i int) bool {
	if s.firstPlus1 > 0 && i >= s.firstPlus1-1 {
		return true
	}
	_, ok := slices.BinarySearch(s.list, i)
	return ok
}

// Len returns the number of records in s for a batch of n records.
func (s Set) Len(n int) int {
	if s.firstPlus1 > 0 {
		return max(0, n-(s.firstPlus1-1))
	}
	return len(s.list)
}

// Append appends the indexes in s, for a batch of n records, to dst and returns the extended slice.
func (s Set) Append(dst []int, n int) []int {
	if s.firstPlus1 > 0 {
		for i := s.firstPlus1 - 1; i < n; i++ {
			dst = append(dst, i)
		}
		return dst
	}
	return append(dst, s.list...)
}

// valid reports whether s is valid for a batch of n records.
func (s Set) valid(n int) bool {
	last := -1
	for _, i := range s.list {
		if i <= last || i >= n {
			return false
		}
		last = i
	}
	return s.firstPlus1 >= 0 && s.firstPlus1 <= n+1
}
