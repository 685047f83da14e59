//go:build !unix

package vfs

// plainOnly has no flags: opening a file does not block on these systems.
const plainOnly = 0
