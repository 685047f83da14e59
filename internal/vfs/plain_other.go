//go:build !unix

package vfs

import (
	"io/fs"
	"syscall"
)

// plainOnly has no flags: opening a file does not block on these systems.
const plainOnly = 0

const (
	withoutWaiting = 0
	noReader       = syscall.Errno(0)
)

func isDeleted(fs.FileInfo) bool { return false }
