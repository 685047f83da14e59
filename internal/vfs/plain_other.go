//go:build !unix

package vfs

import (
	"io/fs"
	"syscall"
)

// plainOnly is empty, because opening a file does not block on these systems.
const plainOnly = 0

// withoutWaiting is empty and noReader is never returned, because these systems have no named pipes
// in the file system.
const (
	withoutWaiting = 0
	noReader       = syscall.Errno(0)
)

// isDeleted returns false: these systems do not report the number of names.
func isDeleted(fs.FileInfo) bool { return false }
