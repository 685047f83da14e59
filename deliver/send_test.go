package deliver

import (
	"context"
	"sync/atomic"

	"github.com/forebay-log/forebay/batch"
)

// Send is Borrow for tests that have a batch and no slabs: it copies b.
func (o *outlet) Send(ctx context.Context, b *batch.Batch) error {
	if o.inline {
		return o.sendInline(ctx, b)
	}
	return o.take(ctx, func(h *holder) *batch.Batch {
		h.mem.set(b)
		return &h.mem.b
	})
}

// sendInline is Send for a destination that answers within Send.
func (o *outlet) sendInline(ctx context.Context, b *batch.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	p := new(parcel)
	p.mem.set(b)
	p.open.Store(int64(countable(b)))
	if err := o.deliver(context.WithoutCancel(ctx), p, &p.mem.b); err != nil {
		return err
	}
	if p.Open() > 0 {
		return context.Cause(ctx)
	}
	return nil
}

// A parcel is a loan of a copy.
type parcel struct {
	mem  copied
	open atomic.Int64
}

func (p *parcel) Keeps() bool             { return false }
func (p *parcel) Pins() (slabs, most int) { return 0, 1 }
func (p *parcel) Open() int               { return int(p.open.Load()) }
func (p *parcel) Settle(n int) bool       { return p.open.Add(-int64(n)) >= 0 }
func (p *parcel) Release()                {}
