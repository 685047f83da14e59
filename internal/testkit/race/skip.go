package race

import "testing"

// Skip skips a test under the race detector. It is for computations of a single goroutine, where
// the detector takes several times as long and finds nothing. `make plain`, a part of `make check`,
// runs these tests.
func Skip(t *testing.T) {
	t.Helper()
	if Enabled {
		t.Skip("make plain runs it without the race detector: a single goroutine computes")
	}
}
