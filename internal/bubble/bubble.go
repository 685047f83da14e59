// Package bubble runs tests in synctest bubbles, and goes round a fault of Go 1.26.
//
// A channel timer that expired before anybody waited for it is run by the goroutine
// that looks at it. In a bubble, Go 1.26 gives all these runs one context of the race
// detector. Two goroutines that look at two such timers at once crash the detector
// ("ThreadSanitizer: CHECK failed"), and with it the whole test. Go 1.27 has mended it.
package bubble

import (
	"testing"
	"testing/synctest"
)

// Test is synctest.Test. With the race detector of Go 1.26, one thread runs Go code
// for as long as a bubble is open.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	defer enter()()
	synctest.Test(t, f)
}
