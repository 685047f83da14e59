// Package outputhook gives other packages of this repository access to functions of package deliver
// that are not part of its API. Package deliver sets the variables when it is initialized. Each
// function panics if its first argument does not have the documented type.
package outputhook

import (
	"context"
	"errors"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/slablog"
)

// Causes of the event "spill" if the destination has not failed and memory is not full.
var (
	// ErrClosing means that Close no longer waits for the destination, because 70 % of its time
	// limit, or all of it, has passed. It wraps context.DeadlineExceeded. The context of a session
	// is then canceled with this cause, and error handlers receive it as the reason.
	ErrClosing error = closingError{}
	// ErrBehind means that older records, for instance of an earlier process, are in the spool.
	// Later records also go to the spool, so that the order is kept.
	ErrBehind = errors.New("older records are in the spool")
)

// closingError is the type of ErrClosing. Its method Unwrap returns context.DeadlineExceeded.
type closingError struct{}

func (closingError) Error() string {
	return "the output is closing and has no more time for the destination"
}
func (closingError) Unwrap() error { return context.DeadlineExceeded }

var (
	// Memory returns the Writer in which a *deliver.Output holds its records. Records written to
	// the Writer are delivered by the Output.
	Memory func(output any) *slablog.Writer

	// Ended returns a channel that is closed when a Shutdown of a *deliver.Output has ended.
	Ended func(output any) <-chan struct{}

	// Drain announces to a *deliver.Output that Close will follow, and that all records must be
	// delivered, spooled or dropped by deadline. It is for callers that continue to write for a
	// while.
	Drain func(output any, deadline time.Time)

	// CloseTimeout returns OutputOptions.CloseTimeout of a *deliver.Output.
	CloseTimeout func(output any) time.Duration

	// Refuse counts a record as accepted and as dropped for the reason r. It is for a record that
	// the producer does not write to the *deliver.Output, for example because it could not be
	// encoded. If p is not nil, it is the record or a part of it, and Refuse passes a copy to the
	// dead-letter handler, with cause. The error wraps slab.ErrDropped, or batch.ErrClosed after
	// Close.
	Refuse func(output any, p []byte, m batch.Meta, r batch.Reason, cause error) error

	// SetErrorHandler replaces Options.Handler of a *deliver.Output by a deliver.ErrorHandler, at
	// any time. It does nothing for a destination that answers within Send (Traits.Inline).
	SetErrorHandler func(output, handler any)

	// SetSpill sets the spool of an Output that is created with a *deliver.Options and without a
	// SpoolDir. The value spill implements the interface deliver.spill. SetSpill is for tests.
	SetSpill func(options, spill any)

	// Direct returns a function that sends batches to a deliver.Destination without retries, for
	// callers that handle failures themselves, such as diskqueue.Spool.Replay. The function send
	// returns when the destination has answered the batch or the context ends. All calls use one
	// session. The session ends when the context of a call ends before the answer, or when
	// closeDest is called. closeDest also closes the destination, like Output.Close. send is safe
	// for concurrent use; calls run one at a time.
	Direct func(destination any) (send func(ctx context.Context, b *batch.Batch) batch.Outcome, closeDest func(ctx context.Context) error)
)
