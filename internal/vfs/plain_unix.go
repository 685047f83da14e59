//go:build unix

package vfs

import (
	"io/fs"
	"syscall"
)

// plainOnly contains the flags that prevent an open from blocking on a named pipe and from
// following a symbolic link.
const plainOnly = syscall.O_NONBLOCK | syscall.O_NOFOLLOW

// withoutWaiting opens a named pipe for writing without waiting for a reader. If the pipe has no
// reader, the error is noReader.
const (
	withoutWaiting = syscall.O_NONBLOCK
	noReader       = syscall.ENXIO
)

// isDeleted reports whether an open file with the given FileInfo has no name any more.
func isDeleted(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && sys.Nlink == 0
}
