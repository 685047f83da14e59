// Package allocs counts allocations for tests that limit them.
package allocs

import (
	"runtime/debug"
	"testing"
)

// PerRun returns the average number of allocations of a call of f, rounded down. Unlike
// [testing.AllocsPerRun], it excludes unrelated allocations. It disables garbage collection, which
// empties every sync.Pool, and returns the minimum of several measurements, because the runtime and
// goroutines of earlier tests may also allocate. Tests that call PerRun must not be parallel.
func PerRun(runs int, f func()) float64 {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	least := testing.AllocsPerRun(runs, f)
	for range 4 {
		if least == 0 {
			break
		}
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}
