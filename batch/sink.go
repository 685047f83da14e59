package batch

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Sink takes batches to their destination.
//
// Send delivers b and reports what became of it:
//
//   - nil: every record is settled. Those that b.Tally does not name were
//     delivered; a sink that settled records another way (handed them to an
//     error handler, put them into a spool, dropped them as poison) says so in
//     b.Tally before it returns.
//   - [Prefix] or [Partial]: some records are settled, the named rest is not and
//     may be sent again.
//   - [RetryAfter], or any other error: nothing was settled, the batch may be
//     sent again.
//   - [Permanent] or [Reject]: the destination will never take the batch (or
//     the named records).
//   - [Fatal]: the destination refuses for a reason of configuration, such as
//     missing credentials: hold the records, raise an alarm, try again rarely.
//
// b and its memory belong to the caller: Send may read them until it returns
// and must copy what it keeps. A destination can see a batch twice. Each
// producer calls Send from one goroutine at a time; a Sink shared by several
// producers must allow concurrent calls. Send must return soon after ctx ends.
type Sink interface {
	Send(ctx context.Context, b *Batch) error
}

// SinkFunc makes a function a [Sink].
type SinkFunc func(ctx context.Context, b *Batch) error

// Send calls f.
func (f SinkFunc) Send(ctx context.Context, b *Batch) error { return f(ctx, b) }

// Limits are the largest batches a sink wants to be handed. A zero field means
// no limit of that kind; the producer then hands over one slab at a time.
type Limits struct {
	Bytes   int           // payload bytes per batch
	Records int           // records per batch
	Age     time.Duration // send a smaller batch when its oldest record is this old
}

// A Limiter is a [Sink] that states its batch limits. They must not change.
type Limiter interface{ Limits() Limits }

// A Flusher is a [Sink] that may still hold records after Send has returned.
// Flush waits until all of them are delivered or accounted for, or ctx ends. It may
// be called beside Send.
type Flusher interface {
	Flush(ctx context.Context) error
}

// An InCallReader is a destination that reads what a Write hands it only on the
// goroutine that calls it and only until the call returns. Crash-safe slabs hand it
// the mapped memory itself; any other destination gets a copy, because a file that
// somebody truncates under the mapping would end the process in a goroutine that is
// not the slab.Writer's own. There the fault becomes a panic in Write, which locks
// released by defer survive. *os.File, TCP and unix connections and io.Discard need no
// such method. ReadsInCall is never called.
type InCallReader interface{ ReadsInCall() }

// A Syncer can put what it has been given on stable storage.
type Syncer interface{ Sync() error }

// An Accounter is a [Sink] that takes records into its own custody
// ([Tally].Taken) and accounts for them from then on: Taken plus Recovered are
// its Accepted and Recovered.
type Accounter interface{ Account() Account }

// A Closer is a [Sink] with something to release. Close gives up what it still
// holds once ctx ends, accounts for it, and reports. It may be called twice.
type Closer interface {
	Close(ctx context.Context) error
}

// Tally is what a [Sink] did with the records of one batch other than
// delivering them.
type Tally struct {
	Handled uint64 // an error handler or fallback took them
	Taken   uint64 // now in the sink's own custody, see [Accounter]
	Dropped Drops
}

// Settled returns the number of records the tally accounts for.
func (t *Tally) Settled() uint64 { return t.Handled + t.Taken + t.Dropped.Total() }

// Add adds o to t.
func (t *Tally) Add(o Tally) {
	t.Handled += o.Handled
	t.Taken += o.Taken
	t.Dropped.Add(o.Dropped)
}

// A SendError is the typed result of a Send that did not settle everything. Use
// the constructors ([Permanent], [Reject], [TooLarge], [RetryAfter], [Fatal],
// [Prefix], [Partial]) to make one and [Inspect] to read one.
type SendError struct {
	// Kind says what may be done next.
	Kind Kind
	// Err is the cause.
	Err error
	// After is the shortest wait before the next attempt, a floor (as HTTP's
	// Retry-After); 0 leaves it to the caller.
	After time.Duration
	// Acked is, for KindPrefix, the number of leading records that are settled.
	Acked int
	// Records are ascending record indexes: for KindPartial those not settled,
	// for KindReject those refused for good (nil: all).
	Records []int
	// Status is the destination's own code, such as an HTTP status; 0 if none.
	Status int
}

// Kind says what may be done after a failed Send.
type Kind uint8

// The kinds.
const (
	KindRetry    Kind = iota // nothing settled, send again
	KindPrefix               // leading records settled, send the rest again
	KindPartial              // all but the named records settled, send those again
	KindReject               // the named records (or all) will never be taken
	KindTooLarge             // nothing settled, send smaller batches
	KindFatal                // configuration: hold and alarm
)

var kindNames = [...]string{"retry", "prefix", "partial", "reject", "too large", "fatal"}

// String returns the kind in plain words.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", k)
}

// Error returns the cause and what follows from it.
func (e *SendError) Error() string {
	if e == nil {
		return "batch: nil *SendError"
	}
	switch e.Kind {
	case KindPrefix:
		return fmt.Sprintf("first %d records taken, then: %v", e.Acked, e.Err)
	case KindPartial:
		return fmt.Sprintf("%d records not taken: %v", len(e.Records), e.Err)
	default:
		return fmt.Sprint(e.Err)
	}
}

// Unwrap returns the cause.
func (e *SendError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// Permanent says that the destination will never take this batch: it must not
// be sent again. It returns nil if err is nil.
func Permanent(err error) error { return wrap(err, SendError{Kind: KindReject}) }

// Reject says that the destination will never take the records with the given
// ascending indexes and that all others are settled.
func Reject(err error, records ...int) error {
	return wrap(err, SendError{Kind: KindReject, Records: records})
}

// Lost says that the destination has ended for good, as a pipe without a reader
// has, after it took the first n records of b, the batch that Send was given. The
// others are dropped with [Failed], which Lost notes in b.Tally: it is not they
// that are at fault, as [Poison] would say.
func Lost(b *Batch, n int, err error) error {
	b.Tally.Dropped[Failed] += uint64(b.Len() - n)
	return wrap(err, SendError{Kind: KindReject, Records: []int{}})
}

// TooLarge says that the destination takes such records, but not so many at
// once: send smaller batches.
func TooLarge(err error) error { return wrap(err, SendError{Kind: KindTooLarge}) }

// Prefix says that the first n records are settled and the rest is not. More records
// than the batch has, or fewer than none, make no sense: then nothing is settled.
func Prefix(n int, err error) error {
	return wrap(err, SendError{Kind: KindPrefix, Acked: n})
}

// Partial says that all records are settled but those with the given ascending
// indexes. Indexes that make no sense ([ValidIndexes]) settle nothing.
func Partial(err error, records ...int) error {
	return wrap(err, SendError{Kind: KindPartial, Records: records})
}

func wrap(err error, e SendError) error {
	if err == nil {
		return nil
	}
	e.Err = err
	return &e
}

// Inspect returns what may be done after Send returned err. An error that is no
// [SendError], or a nil *SendError, is one to retry. It returns the zero value for
// nil.
func Inspect(err error) SendError {
	if err == nil {
		return SendError{}
	}
	var se *SendError
	if errors.As(err, &se) && se != nil {
		return *se
	}
	var ae *advisedError
	if errors.As(err, &ae) {
		e := SendError{Kind: KindRetry, Err: ae.err, After: ae.after}
		if ae.advice == Hold {
			e.Kind = KindFatal
		}
		return e
	}
	return SendError{Kind: KindRetry, Err: err}
}

// Retryable reports whether what of the batch is not settled after err may be sent
// again, after [TooLarge] in smaller batches.
func Retryable(err error) bool {
	if err == nil {
		return false
	}
	k := Inspect(err).Kind
	return k == KindRetry || k == KindPrefix || k == KindPartial || k == KindTooLarge
}

// ValidIndexes reports whether indexes can name records of a batch of n: they
// ascend, and none is below 0 or above n-1. Whoever deals with the records that a
// [SendError] names asks this first, because a sink may be wrong.
func ValidIndexes(indexes []int, n int) bool { return Of(indexes...).valid(n) }
