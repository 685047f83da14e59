package spool

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/forebay-log/forebay/batch"
)

// Replayed counts the batches that [Spool.Replay] has settled.
type Replayed struct {
	Batches uint64
	Records uint64      // gap markers included
	Tally   batch.Tally // of Records, those that were not delivered but settled otherwise
}

// Replay sends every batch that is there to sink, oldest first, and acknowledges
// each that was settled. It ends with nil when none is left, and at the first
// error of sink or spool, or the end of ctx: the batch concerned stays whole, and
// the sink may see it again. A sink that retries, halves and gives up by itself
// (package deliver) so decides how patient Replay is.
//
// Replay rewinds first, and must not run beside Next.
func (s *Spool) Replay(ctx context.Context, sink batch.Sink) (done Replayed, err error) {
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
		if err := sink.Send(ctx, b); err != nil {
			return done, fmt.Errorf("spool: replay stopped at batch %d: %w", seq, err)
		}
		done.Batches++
		done.Records += uint64(b.Len())
		done.Tally.Add(b.Tally)
		if err := s.Ack(seq); err != nil {
			return done, err
		}
	}
}
