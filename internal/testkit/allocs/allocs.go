// Package allocs counts allocations for tests that limit them.
package allocs

import (
	"runtime/debug"
	"testing"
)

// PerRun returns the average number of allocations of a call of f, rounded down. Unlike
// [testing.AllocsPerRun] it excludes unrelated allocations: garbage collection, which empties every
// sync.Pool, is disabled during the call, and the minimum of several measurements is used, because
// the count includes the whole process. The runtime sometimes allocates for its type assertion
// caches, and so may goroutines of earlier tests. Tests that call PerRun must not be parallel.
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
