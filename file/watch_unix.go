//go:build unix

package file

import (
	"io/fs"
	"syscall"
)

// withoutWaiting opens a named pipe without waiting for a reader.
const withoutWaiting = syscall.O_NONBLOCK

// noReader is the error of opening a named pipe without a reader.
const noReader = syscall.ENXIO

// isDeleted reports whether an open file has no name any more.
func isDeleted(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && sys.Nlink == 0
}
