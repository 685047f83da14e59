//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package file

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// claim locks the open file itself, so that it is found under every name that it
// has, hard links included: exclusive for one who rotates, shared for others. It
// reports false only if somebody else's lock is in the way; file systems without
// such locks have none.
func claim(h handle, exclusive bool) bool {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	return !errors.Is(flockFile(h, how|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// unclaim releases the lock. Close would too, but for a copy of the descriptor
// that a process just being started may hold for a moment.
func unclaim(h handle) { _ = flockFile(h, unix.LOCK_UN) }

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
