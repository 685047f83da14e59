//go:build !unix

package vfs

// plainOnly are no flags: an open does not wait here.
const plainOnly = 0
