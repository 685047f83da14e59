package batch

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// An Outcome is the answer to one batch: each of its records is open, refused or,
// if neither set has it, settled. The zero Outcome says that all are settled.
//
// An Outcome that names records the batch does not have, the same record as
// open and as refused, or more refused ones than there are, makes no sense: see [Outcome.Check].
type Outcome struct {
	// Open are the records that are not settled. They will be sent again.
	Open Set
	// Refused are the records that the destination will never take. They become
	// dead letters at once.
	Refused Set
	// Unnamed is how many of the other records the destination refused without saying which.
	// They count as dropped for [Poison], and become no dead letters.
	Unnamed int
	// Why is the reason for Open, Refusal that for Refused and Unnamed. If Why wraps [ErrUnanswered],
	// the destination may have taken the open records.
	Why, Refusal error
	// After is the shortest wait before the next attempt, as HTTP's Retry-After.
	After time.Duration
	// Advice says how the open records are to be sent again.
	Advice Advice
}

// Advice says how the open records of an [Outcome] are to be sent again.
type Advice uint8

const (
	// Again sends them as they are, after the retry delay.
	Again Advice = iota
	// Smaller sends fewer bytes at once from now on: the batch was too large. A
	// single record that is too large is refused.
	Smaller
	// Search sends them in pieces: the destination refused the batch because of some
	// of its records and did not say which. A record that is refused alone is a dead
	// letter.
	Search
	// Hold keeps everything and raises an alarm: only a change of configuration, such
	// as a password, will help.
	Hold
	// HoldStreams keeps the open records and all later ones of their streams, and
	// goes on with other streams.
	HoldStreams
	// Gone says that the destination has ended for good, as a pipe without a reader
	// has. Open records are dropped with [Failed], and so are those of the same batch that
	// wait to be sent.
	Gone
	// Doubt sends them in pieces: the destination refused the batch, because of some of its
	// records or because it is ill. Before each piece a record is sent again that was taken
	// before. A record is a dead letter if it is refused alone several times in a row while
	// others are taken.
	Doubt
)

var adviceNames = [...]string{"again", "smaller", "search", "hold", "hold streams", "gone", "doubt"}

// String returns the advice in plain words.
func (a Advice) String() string {
	if int(a) < len(adviceNames) {
		return adviceNames[a]
	}
	return fmt.Sprintf("advice(%d)", a)
}

// FailedOutcome returns the Outcome of an attempt that settled nothing because of err. It
// follows err where that was made by [RetryAfter] or [Fatal].
func FailedOutcome(err error) Outcome {
	o := Outcome{Open: All(), Why: err}
	var e *advisedError
	if errors.As(err, &e) {
		o.Advice, o.After = e.advice, e.after
	}
	return o
}

// RetryAfter wraps err, of a connection say, to ask for a wait of at least d before the
// next attempt. It returns nil if err is nil. See [FailedOutcome].
func RetryAfter(err error, d time.Duration) error { return advise(err, Again, d) }

// Fatal wraps err to say that only a change of configuration will help: [Hold]. It
// returns nil if err is nil. See [FailedOutcome].
func Fatal(err error) error { return advise(err, Hold, 0) }

func advise(err error, a Advice, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &advisedError{err, a, after}
}

// An advisedError is an error that says how to go on.
type advisedError struct {
	err    error
	advice Advice
	after  time.Duration
}

func (e *advisedError) Error() string { return e.err.Error() }
func (e *advisedError) Unwrap() error { return e.err }

// ErrUnanswered says that the destination did not answer, or not to the end: it may have
// taken the open records of an [Outcome] whose Why wraps it. If they are lost in the end,
// they count as [Report].Unknown.
var ErrUnanswered = errors.New("no answer")

var errNoReason = errors.New("no reason given")

// Err returns why not all records are settled: Why if there are open ones, else Refusal.
// It returns nil if all are settled.
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

var errNonsense = errors.New("the answer makes no sense")

// Check returns an error if o cannot be the answer to a batch of n records.
func (o *Outcome) Check(n int) error {
	if !o.Open.valid(n) || !o.Refused.valid(n) {
		return fmt.Errorf("%w: it names records that are not among the %d sent", errNonsense, n)
	}
	if o.Unnamed < 0 || o.Unnamed > 0 && o.Unnamed > n-o.Open.Len(n)-o.Refused.Len(n) {
		return fmt.Errorf("%w: %d records are refused without a name, of %d sent", errNonsense, o.Unnamed, n)
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

// A Set names records of one batch by index, from 0. The zero Set is empty. A Set
// keeps the slice that [Of] was given.
type Set struct {
	list []int // ascending
	from int   // 1 + the first index of an open end; 0: none
}

// All returns the Set of all records.
func All() Set { return Set{from: 1} }

// From returns the Set of the records from index i on. A negative index makes no sense,
// see [Outcome.Check].
func From(i int) Set {
	if i < 0 {
		return Set{from: -1}
	}
	return Set{from: i + 1}
}

// Of returns the Set of the records with the given ascending indexes.
func Of(indexes ...int) Set { return Set{list: indexes} }

// Empty reports whether s names no record.
func (s Set) Empty() bool { return s.from == 0 && len(s.list) == 0 }

// Has reports whether s names record i.
func (s Set) Has(i int) bool {
	if s.from > 0 && i >= s.from-1 {
		return true
	}
	_, ok := slices.BinarySearch(s.list, i)
	return ok
}

// Len returns how many of n records s names.
func (s Set) Len(n int) int {
	if s.from > 0 {
		return max(0, n-(s.from-1))
	}
	return len(s.list)
}

// Append appends the indexes of s, for a batch of n records, to dst and returns it.
func (s Set) Append(dst []int, n int) []int {
	if s.from > 0 {
		for i := s.from - 1; i < n; i++ {
			dst = append(dst, i)
		}
		return dst
	}
	return append(dst, s.list...)
}

// valid reports whether s can name records of a batch of n.
func (s Set) valid(n int) bool {
	last := -1
	for _, i := range s.list {
		if i <= last || i >= n {
			return false
		}
		last = i
	}
	return s.from >= 0 && s.from <= n+1
}
