// Package bubble runs tests in synctest bubbles and works around a bug of Go 1.26.
//
// If a timer with a channel expires before a goroutine waits for it, the goroutine that reads the
// channel runs the timer. In a bubble, Go 1.26 uses one race detector context for all these timers.
// Two goroutines that read two such timers at the same time crash the race detector
// ("ThreadSanitizer: CHECK failed") and thereby the test. The bug is fixed in Go 1.27.
package bubble

import (
	"testing"
	"testing/synctest"
)

// Test calls synctest.Test. With the race detector of Go 1.26, it makes Go code run on only one
// thread while a bubble is open.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	defer enter()()
	synctest.Test(t, f)
}
