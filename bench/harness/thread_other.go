//go:build !linux

package harness

import "time"

var started = time.Now()

// ThreadTime is the clock here: the processor time of a thread is not known.
func ThreadTime() time.Duration { return time.Since(started) }
