package diskqueue

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/forebay-log/forebay/batch"
)

// Replay passes every stored batch to send, oldest first, and acknowledges a batch when all its
// records are settled. It returns nil when no batch is left. It stops with an error at the first
// batch with open or refused records, at the first error of the spool, or when ctx ends. It keeps
// the whole batch at which it stops, which may be sent again. outputhook.Direct returns a function
// that can be passed as send. records is the number of records in the acknowledged batches,
// including gap markers.
//
// Replay rewinds first, and must not run concurrently with Next.
func (s *Spool) Replay(ctx context.Context, send func(context.Context, *batch.Batch) batch.Outcome) (records uint64, err error) {
	s.Rewind()
	for {
		if err := ctx.Err(); err != nil {
			return records, fmt.Errorf("spool: replay stopped: %w", err)
		}
		b, seq, err := s.Next()
		if errors.Is(err, io.EOF) {
			return records, nil
		}
		if err != nil {
			return records, err
		}
		// A batch of which a part is open or refused is kept whole: the spool settles only batches.
		o := send(ctx, b)
		if err = o.Check(b.Len()); err == nil && (!o.Open.Empty() || !o.Refused.Empty()) {
			err = o.Err()
		}
		if err != nil {
			return records, fmt.Errorf("spool: replay stopped at batch %d: %w", seq, err)
		}
		records += uint64(b.Len())
		if err := s.Ack(seq); err != nil {
			return records, err
		}
	}
}
