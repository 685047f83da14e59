//go:build unix

package program

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// inputWait is a pipe that wakes up a poll.
type inputWait struct {
	fd    int  // of the input
	ready bool // always: a regular file
	r, w  *os.File
	wake  int // the fd of r
}

func (iw *inputWait) init(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", f.Name(), err)
	}
	// Not f.Fd(), which would change the mode of a file others share. The file
	// stays open as long as the program runs.
	if err := c.Control(func(fd uintptr) { iw.fd = int(fd) }); err != nil {
		return fmt.Errorf("cannot read %s: %w", f.Name(), err)
	}
	if iw.r, iw.w, err = os.Pipe(); err != nil {
		return fmt.Errorf("cannot make a pipe: %w", err)
	}
	iw.wake = int(iw.r.Fd())
	st, err := f.Stat()
	iw.ready = err == nil && st.Mode().IsRegular()
	return nil
}

func (iw *inputWait) wakeUp() { iw.w.Close() }

// close releases the pipe; the input must not be read any more.
func (in *input) close() {
	in.stop()
	in.r.Close()
}

// wait waits for the input or for stop, but no longer than d. It reports whether Read does
// not wait.
func (in *input) wait(d time.Duration) bool {
	if in.ready || in.isStopped() {
		return true
	}
	fds := in.fds()
	n, err := unix.Poll(fds[:], int((d+time.Millisecond-1)/time.Millisecond))
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN)
}

// fds is what to poll: the input and the wake-up.
func (iw *inputWait) fds() [2]unix.PollFd {
	return [2]unix.PollFd{{Fd: int32(iw.fd), Events: unix.POLLIN}, {Fd: int32(iw.wake), Events: unix.POLLIN}}
}

// Read waits for the input or for stop. It deals with an input that is
// non-blocking, as some programs leave theirs.
func (in *input) Read(p []byte) (int, error) {
	for {
		if in.isStopped() {
			return 0, errStopped
		}
		if !in.ready {
			fds := in.fds()
			if _, err := unix.Poll(fds[:], -1); err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
				return 0, err
			}
			if fds[1].Revents != 0 {
				return 0, errStopped
			}
			if fds[0].Revents == 0 {
				continue
			}
		}
		n, err := unix.Read(in.fd, p)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}
