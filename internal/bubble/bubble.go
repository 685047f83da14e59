// Package bubble runs tests in synctest bubbles and works around a bug in Go 1.26.
//
// A channel timer that expires before any goroutine waits for it is run by the goroutine
// that reads it. In a bubble, Go 1.26 uses a single race detector context for all these
// runs. Two goroutines that read two such timers at the same time crash the detector
// ("ThreadSanitizer: CHECK failed") and the whole test. The bug is fixed in Go 1.27.
package bubble

import (
	"testing"
	"testing/synctest"
)

// Test calls synctest.Test. With the race detector of Go 1.26, only one thread runs Go code while a
// bubble is open.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	defer enter()()
	synctest.Test(t, f)
}
