//go:build linux || darwin

package deliver

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

const haveWritev = true

// Writev writes all buffers, going on after a short write.
func (v fileVec) Writev(bufs [][]byte) (n int64, err error) {
	conn, err := v.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	for len(bufs) > 0 {
		var k int
		var werr error
		err = conn.Write(func(fd uintptr) bool {
			k, werr = unix.Writev(int(fd), bufs)
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
