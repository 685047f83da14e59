package batch

import "time"

// Limits are the largest batches that a destination accepts. A zero field means no limit.
type Limits struct {
	Bytes   int           // payload bytes per batch
	Records int           // records per batch
	Age     time.Duration // send a smaller batch when its oldest record reaches this age
}
