//go:build !race

// Package race reports whether the race detector is on. With the detector, sync.Pool drops items at
// random. Therefore tests of allocations must be skipped.
package race

// Enabled reports whether the race detector is on.
const Enabled = false
