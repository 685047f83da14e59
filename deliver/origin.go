package deliver

import "github.com/forebay-log/forebay/batch"

// Held implements [batch.Holder]: it says which records the spill has, if that can tell,
// as a spool.Spool can.
func (o *Outlet) Held(origin [16]byte, first, last uint64) (held []batch.Tickets) {
	if h, ok := o.led.spill.(batch.Holder); ok {
		_ = o.inSpool(func() error {
			held = h.Held(origin, first, last)
			return nil
		})
	}
	return held
}
