package batch

import (
	"context"
	"time"
)

// An AsyncSink is a [Sink] that works on several batches at once: it pipelines,
// because an answer takes longer than sending the next batch.
//
// # Contract
//
// Start takes b and answers later by calling done, exactly once per Start, from
// any goroutine, also before Start returns. What done is given is what Send
// would have returned: nil, [Prefix], [Partial], [Reject], and so on, with
// b.Tally filled in before.
//
//   - Batches go to the destination in the order of the calls of Start. Their
//     answers may come in any order.
//   - The caller makes one call of Start at a time and never has more than
//     Window batches under way, a batch being under way from the call of Start
//     to that of done.
//   - Start does not wait for the destination. A sink needs no more room than a
//     queue of Window batches to promise that.
//   - b and its memory belong to the sink until it calls done: it may read them
//     without copying, and must not touch them afterwards.
//   - After ctx has ended the sink gives up what was started under it and calls
//     done soon: with nil if the destination has answered, else with an error.
//   - done does not block. It may be called with locks held that Start does not
//     take.
//
// # Go-back-N
//
// A failure of one batch says nothing about those behind it. The caller stops
// starting new ones, waits until every batch under way is done, and then sends
// again, in order, the first that failed and all behind it, those included that
// the destination has taken meanwhile. So the last copies of all records arrive
// in order, and no failure makes more duplicates than Window batches. A sink
// must therefore not send anything again by itself behind a batch that failed.
type AsyncSink interface {
	Sink
	Start(ctx context.Context, b *Batch, done func(error))
	// Window is how many batches may be under way at once, at least 1. It must
	// not change.
	Window() int
}

// SendAsync is Send in terms of Start, for sinks that have no simpler way. It
// returns when done was called, which is when b is the caller's again, even if
// ctx ends before.
func SendAsync(ctx context.Context, s AsyncSink, b *Batch) error {
	ch := make(chan error, 1)
	s.Start(ctx, b, func(err error) { ch <- err })
	return <-ch
}

// A Drainer is a [Sink] that wants to know when its producer begins to close.
// Drain does not block. Until about 70 % of the time to the deadline have passed
// the sink goes on as ever, though it waits less between attempts; then it
// settles what it is handed in some other way, if it has one: an error handler,
// a spool. Send and Close may still be called. A zero deadline means none.
type Drainer interface{ Drain(deadline time.Time) }
