// Package allocs counts allocations for tests that limit them.
package allocs

import (
	"runtime/debug"
	"testing"
)

// PerRun returns the average number of allocations of a call of f, rounded down. It is
// [testing.AllocsPerRun] without unrelated allocations. Garbage collection, which empties
// every sync.Pool, is off during the call, and the minimum of several counts is used,
// because the count covers the whole process: the runtime allocates at random for its type
// assertion caches, and so may goroutines of earlier tests. Tests that call PerRun cannot
// be parallel.
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
