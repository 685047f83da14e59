//go:build race && !go1.27

package bubble

import (
	"runtime"
	"sync"
)

// One bubble may be open beside others: parallel tests have one each. The first one
// narrows the scheduler, the last one restores it.
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
