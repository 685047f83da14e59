package race

import "testing"

// Skip skips a test if the race detector is on. It is for tests that count allocations, and for
// long computations in a single goroutine, which have no races. `make plain`, a part of `make
// check`, runs these tests.
func Skip(t *testing.T) {
	t.Helper()
	if Enabled {
		t.Skip("make plain runs it without the race detector")
	}
}

// Fewer returns the number of cases of a test: n, or n/part with the race detector.
func Fewer(n, part int) int {
	if Enabled {
		return n / part
	}
	return n
}
