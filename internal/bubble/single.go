//go:build race && !go1.27

package bubble

import (
	"runtime"
	"sync"
)

// open counts the open bubbles. Parallel tests may have several. The first bubble limits the
// scheduler to one thread, and the last one restores the setting.
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
