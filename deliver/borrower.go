package deliver

import (
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/slab"
)

var _ slab.Borrower = (*front)(nil)

// Wants says how a slab.Writer is to hand its batches over.
func (o *outlet) Wants() slab.Wants {
	return slab.Wants{Limits: o.traits.Limits, Dictionary: o.traits.Dictionary, Inline: o.inline, Vectors: o.traits.Vectors}
}

// Account calls read with the account of the outlet, while no record enters it.
func (f *front) Account(read func(batch.Account)) { f.led.read(read) }

// Held says which records the spill has, if that can tell, as a spool.Spool can: see
// [slab.Borrower].
func (o *outlet) Held(origin [16]byte, first, last uint64) (held []batch.Tickets) {
	if h, ok := o.led.spill.(holderOf); ok {
		_ = o.spooling.call(func() error {
			held = h.Held(origin, first, last)
			return nil
		})
	}
	return held
}
