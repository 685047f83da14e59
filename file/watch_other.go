//go:build !unix

package file

import (
	"io/fs"
	"syscall"
)

const withoutWaiting = 0

const noReader = syscall.Errno(0)

func isDeleted(fs.FileInfo) bool { return false }
