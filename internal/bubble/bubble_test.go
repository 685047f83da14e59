package bubble

import (
	"sync"
	"testing"
	"time"
)

// Several goroutines of a bubble read expired timers at the same time. Without the workaround, this
// crashes the race detector of Go 1.26.
func TestExpiredTimersDoNotCrash(t *testing.T) {
	for range 10 {
		Test(t, func(t *testing.T) {
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for range 5000 {
						timer := time.NewTimer(0)
						select {
						case <-timer.C:
						default:
							t.Error("an expired timer does not fire")
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
