package deliver

import (
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/slab"
)

var _ slab.Borrower = (*front)(nil)

// Wants returns the form in which a slab.Writer passes its batches.
func (o *outlet) Wants() slab.Wants {
	return slab.Wants{Limits: o.traits.Limits, Dictionary: o.traits.Dictionary, Inline: o.inline, Vectors: o.traits.Vectors}
}

// Account calls read with the account of the outlet. It holds a lock, so that no record is settled
// meanwhile.
func (f *front) Account(read func(batch.Account)) { f.led.read(read) }

// Held returns the records that the spill has stored, if it reports them like spool.Spool: see
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
