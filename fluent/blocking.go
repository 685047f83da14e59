package fluent

import (
	"context"

	"github.com/forebay-log/forebay/batch"
)

// Blocking returns s as a sink that is no [batch.AsyncSink], for producers whose
// memory is worth more than that of this process: crash-safe slabs. What is under
// way stays theirs until the server has acknowledged it, whereas a deliver.Engine
// would copy the batches of a window and take them over. It asks for batches of
// Window frames instead, which are under way together all the same.
func (s *Client) Blocking() batch.Sink { return blocking{s} }

type blocking struct{ s *Client }

func (b blocking) Send(ctx context.Context, batch *batch.Batch) error { return b.s.Send(ctx, batch) }
func (b blocking) Limits() batch.Limits {
	return batch.Limits{Bytes: b.s.c.Window * b.s.c.FrameBytes}
}
func (b blocking) Accepts(t string) bool           { return b.s.Accepts(t) }
func (b blocking) Codec() batch.Codec              { return b.s.Codec() }
func (b blocking) Dictionary() batch.Dictionary    { return b.s.Dictionary() }
func (b blocking) Close(ctx context.Context) error { return b.s.Close(ctx) }
