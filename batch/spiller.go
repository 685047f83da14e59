package batch

import (
	"context"
	"time"
)

// A Spiller is a [Sink] that can put records aside, on disk say, without waiting
// for its destination. A producer whose policy is to do so when it is full calls
// SpillWhen once, before the first Send.
//
// full reports whether the producer has no room left just now. It may be called
// at any time, but not while the sink holds a lock that any of its own methods
// takes. While it reports true, a Send waits for whatever puts records aside, and
// not for the destination; order is kept.
//
// The producer calls press each time it becomes full, from any goroutine, because
// a Send may be waiting already. press does not block.
//
// SpillWhen returns an error if there is nowhere to put records.
type Spiller interface {
	SpillWhen(full func() bool) (press func(), err error)
}

// A Reporter is a [Closer] whose Close says what became of the records in its
// custody: a producer calls Shutdown in place of Close and adds Report.Unknown to
// its own. What the account of the report says it reads from [Accounter].
type Reporter interface {
	Shutdown(ctx context.Context) (Report, error)
}

// A Drainer is a [Sink] that wants to know when its producer begins to close.
// Drain does not block. Until about 70 % of the time to the deadline have passed
// the sink goes on as ever, though it waits less between attempts; then it
// settles what it is handed in some other way, if it has one: an error handler,
// a spool. Send and Close may still be called. A zero deadline means none.
type Drainer interface{ Drain(deadline time.Time) }
