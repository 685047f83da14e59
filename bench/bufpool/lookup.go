package bufpool

import (
	"runtime"

	"github.com/forebay-log/forebay/bufpool"
)

// classLookup finds the class of sizes in turn.
func classLookup(pool *bufpool.Pool, sizes []int) run {
	mask := len(sizes) - 1
	return func(n int) {
		sum := 0
		for i := range n {
			sum += pool.Class(sizes[i&mask])
		}
		runtime.KeepAlive(sum)
	}
}

// linearLookup is the search the source uses.
func linearLookup(classes, sizes []int) run {
	mask := len(sizes) - 1
	return func(n int) {
		sum := 0
		for i := range n {
			size := sizes[i&mask]
			for _, c := range classes {
				if c >= size {
					sum += c
					break
				}
			}
		}
		runtime.KeepAlive(sum)
	}
}

// mapLookup is the hash map the source uses for sizes that are classes.
func mapLookup(classes, sizes []int) run {
	m := make(map[int]int)
	for _, c := range classes {
		m[c] = c
	}
	mask := len(sizes) - 1
	return func(n int) {
		sum := 0
		for i := range n {
			sum += m[sizes[i&mask]]
		}
		runtime.KeepAlive(sum)
	}
}

// stats reads the counters of a pool that has been used.
func stats(p pattern) run {
	pool := newPool(p, false)
	oursFrom(pool, p)(100)
	return func(n int) {
		sum := 0
		for range n {
			s := pool.Stats()
			sum += int(s.Classes[0].Gets)
		}
		runtime.KeepAlive(sum)
	}
}
