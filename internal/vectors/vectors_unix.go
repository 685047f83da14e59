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

// maxBuffers is the maximum number of buffers of one system call, IOV_MAX.
const maxBuffers = 1024

// Write writes all buffers to f. After a short write it continues with the remaining bytes. It
// changes the elements of bufs, and retains none of the buffers.
func Write(f *os.File, bufs [][]byte) (n int64, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	for len(bufs) > 0 {
		var k int
		var werr error
		err = conn.Write(func(fd uintptr) bool {
			k, werr = unix.Writev(int(fd), bufs[:min(len(bufs), maxBuffers)])
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
