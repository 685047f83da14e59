//go:build unix

package vfs

import "syscall"

// plainOnly are the flags that keep an open from waiting for the other end of a
// named pipe, and from following a symbolic link.
const plainOnly = syscall.O_NONBLOCK | syscall.O_NOFOLLOW
