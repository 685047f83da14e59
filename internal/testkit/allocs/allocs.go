// Package allocs counts allocations for tests that allow so many and no more.
package allocs

import (
	"runtime/debug"
	"testing"
)

// PerRun returns how many allocations one call of f makes on average, rounded down. It is
// [testing.AllocsPerRun] without the allocations of others: garbage collection, which empties
// each sync.Pool, is off meanwhile, and of a few counts the least is taken, because the count
// is that of the whole process. The runtime allocates at random, for its caches of type
// assertions, and so may goroutines of earlier tests. Tests that call PerRun cannot be parallel.
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
