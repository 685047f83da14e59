package race

import "testing"

// Skip skips a test in which a single goroutine computes: `make plain`, a part of `make check`,
// runs it without the race detector, which would take several times as long and find nothing.
func Skip(t *testing.T) {
	t.Helper()
	if Enabled {
		t.Skip("make plain runs it without the race detector: a single goroutine computes")
	}
}
