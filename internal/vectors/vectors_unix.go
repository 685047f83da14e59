//go:build linux || darwin

// Package vectors writes several buffers to a file in one system call.
package vectors

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Have reports whether this system has writev(2).
const Have = true

// most is how many buffers one call takes: IOV_MAX.
const most = 1024

// Write writes all buffers to f, going on after a short write. It changes bufs, and
// keeps none of them.
func Write(f *os.File, bufs [][]byte) (n int64, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	for len(bufs) > 0 {
		var k int
		var werr error
		err = conn.Write(func(fd uintptr) bool {
			k, werr = unix.Writev(int(fd), bufs[:min(len(bufs), most)])
			return !errors.Is(werr, unix.EAGAIN)
		})
		if errors.Is(werr, unix.EINTR) {
			continue
		}
		if err == nil {
			err = werr
		}
		if err != nil {
			return n, err
		}
		if k == 0 {
			return n, io.ErrNoProgress
		}
		n += int64(k)
		for k > 0 && len(bufs) > 0 {
			if k < len(bufs[0]) {
				bufs[0] = bufs[0][k:]
				break
			}
			k -= len(bufs[0])
			bufs = bufs[1:]
		}
	}
	return n, nil
}
