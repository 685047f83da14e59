//go:build !race

// Package race reports whether the race detector is on. The detector makes sync.Pool drop
// items at random, so tests of allocations must be skipped.
package race

// Enabled reports whether the race detector is on.
const Enabled = false
