package race

import "testing"

// Skip skips a test if the race detector is on. It is for computations of a single goroutine, which
// take several times as long with the detector and have no races. `make plain`, a part of `make
// check`, runs these tests.
func Skip(t *testing.T) {
	t.Helper()
	if Enabled {
		t.Skip("make plain runs it without the race detector: a single goroutine computes")
	}
}
