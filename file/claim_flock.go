//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package file

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// claim locks the open file, so the lock applies to all names of the file, including hard links.
// The lock is exclusive for a File that rotates, and shared for other Files. claim returns false
// only if another process holds a conflicting lock. It returns true on file systems without such
// locks.
func claim(h handle, exclusive bool) bool {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	return !errors.Is(flockFile(h, how|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// unclaim releases the lock. Close alone might not release it, because a child process that is
// being started briefly has a copy of the descriptor.
func unclaim(h handle) { _ = flockFile(h, unix.LOCK_UN) }

// flockFile calls flock(2) for an open file. It returns nil for a handle without a descriptor, as
// in tests.
func flockFile(h handle, how int) error {
	f, ok := h.(syscall.Conn)
	if !ok {
		return nil
	}
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	cerr := c.Control(func(fd uintptr) {
		for {
			if err = unix.Flock(int(fd), how); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, cerr)
}
