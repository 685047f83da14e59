package slablog

import (
	"fmt"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/slab"
)

// book is the account of a store. Two fields are incomplete until the account is read: Accepted
// does not include the records that got tickets, and Pending is zero.
type book struct {
	batch.Account
	series callback.DropSeries
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

// errDrops is the error of the event "drop". The event has the reasons and the numbers.
var errDrops error = dropsError{}

type dropsError struct{}

func (dropsError) Error() string { return "lost before delivery" }
func (dropsError) Unwrap() error { return slab.ErrDropped }

// dropLocked counts a record that was dropped before it got a ticket.
func (s *store) dropLocked(r batch.Reason) error {
	s.book.Accepted++
	s.countDropLocked(r, 1)
	return dropErrors[r]
}

// countDropLocked counts n accepted records as dropped.
func (s *store) countDropLocked(r batch.Reason, n int) {
	if n == 0 {
		return
	}
	before := s.book.Dropped
	s.book.Dropped[r] += uint64(n)
	s.book.series.Dropped(&before)
}
