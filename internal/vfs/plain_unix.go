//go:build unix

package vfs

import "syscall"

// plainOnly contains the flags that prevent an open from blocking on a named pipe and from
// following a symbolic link.
const plainOnly = syscall.O_NONBLOCK | syscall.O_NOFOLLOW
