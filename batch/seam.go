package batch

import "time"

// Limits are the largest batches that a destination wants to be handed. A zero field
// means no limit of that kind.
type Limits struct {
	Bytes   int           // payload bytes per batch
	Records int           // records per batch
	Age     time.Duration // send a smaller batch when its oldest record is this old
}

// Tally counts the records of one batch that were settled otherwise than by delivery.
type Tally struct {
	Handled uint64 // an error handler or fallback took them
	Taken   uint64 // now in the receiver's own custody: its Account has them
	Dropped Drops
}

// Settled returns the number of records the tally accounts for.
func (t *Tally) Settled() uint64 { return t.Handled + t.Taken + t.Dropped.Total() }

// Add adds o to t.
func (t *Tally) Add(o Tally) {
	t.Handled += o.Handled
	t.Taken += o.Taken
	t.Dropped.Add(o.Dropped)
}
