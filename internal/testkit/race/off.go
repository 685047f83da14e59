//go:build !race

// Package race tells whether the race detector is on. It makes sync.Pool lose things at
// random, so that tests of allocations have to leave it out.
package race

const Enabled = false
