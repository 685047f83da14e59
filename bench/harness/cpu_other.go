//go:build !unix

package harness

import "time"

// cpuTime returns 0, which means that the processor time is unknown.
func cpuTime() time.Duration { return 0 }
