//go:build race && !go1.27

package bubble

import (
	"runtime"
	"sync"
)

// Parallel tests each have a bubble, so several may be open. The first one restricts the
// scheduler and the last one restores it.
var open struct {
	mu    sync.Mutex
	n     int
	procs int
}

func enter() (leave func()) {
	open.mu.Lock()
	defer open.mu.Unlock()
	if open.n++; open.n == 1 {
		open.procs = runtime.GOMAXPROCS(1)
	}
	return func() {
		open.mu.Lock()
		defer open.mu.Unlock()
		if open.n--; open.n == 0 {
			runtime.GOMAXPROCS(open.procs)
		}
	}
}
