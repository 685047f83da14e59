package batch

import "time"

// Limits are the largest batches that a destination wants to be handed. A zero field
// means no limit of that kind.
type Limits struct {
	Bytes   int           // payload bytes per batch
	Records int           // records per batch
	Age     time.Duration // send a smaller batch when its oldest record is this old
}
