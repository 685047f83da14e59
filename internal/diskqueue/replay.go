package diskqueue

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/forebay-log/forebay/batch"
)

// Replayed counts the batches that [Spool.Replay] has settled.
type Replayed struct {
	Batches uint64 // acknowledged
	Records uint64 // number of records in these batches, including gap markers
	Unnamed uint64 // part of Records: refused by the destination without naming the refused records
}

// Replay passes every stored batch to send, oldest first, and acknowledges a batch when all its
// records are settled. It returns nil when no batch is left. It stops with an error at the first
// batch with open or refused records, at the first error of the spool, or when ctx ends. It keeps
// the whole batch at which it stops, which may be sent again. outputhook.Direct returns a send for a
// destination.
//
// Replay rewinds first, and must not run concurrently with Next.
func (s *Spool) Replay(ctx context.Context, send func(context.Context, *batch.Batch) batch.Outcome) (done Replayed, err error) {
	s.Rewind()
	for {
		if err := ctx.Err(); err != nil {
			return done, fmt.Errorf("spool: replay stopped: %w", err)
		}
		b, seq, err := s.Next()
		if errors.Is(err, io.EOF) {
			return done, nil
		}
		if err != nil {
			return done, err
		}
		// A batch of which a part is open or refused is kept whole: the spool settles only batches.
		o := send(ctx, b)
		if err = o.Check(b.Len()); err == nil && (!o.Open.Empty() || !o.Refused.Empty()) {
			err = o.Err()
		}
		if err != nil {
			return done, fmt.Errorf("spool: replay stopped at batch %d: %w", seq, err)
		}
		done.Batches++
		done.Records += uint64(b.Len())
		done.Unnamed += uint64(o.Unnamed)
		if err := s.Ack(seq); err != nil {
			return done, err
		}
	}
}
