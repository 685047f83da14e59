//go:build unix

package input

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forebay-log/forebay/cmd/internal/intake"
)

// inputWait is a pipe that wakes up a poll.
type inputWait struct {
	fd    int  // of the input
	ready bool // always: a regular file
	r, w  *os.File
	wake  int // the fd of r

	half    bool      // what was read last ends within a line
	rest    int       // bytes that were read since stop
	restDue time.Time // for the rest; zero: it was not asked for
}

// maxRest is how much of a line is read after stop: byte by byte, as nothing behind it may
// be taken. restTime is how long that may take: who writes more than a pipe holds is in the
// middle of a line when the pipe is full, and goes on as soon as there is room.
const (
	maxRest  = 256 << 10
	restTime = 250 * time.Millisecond
)

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

// Close releases the pipe; the input must not be read any more.
func (in *input) Close() {
	in.Stop()
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
	n, err := in.read(p)
	if errors.Is(err, intake.ErrStopped) && in.half {
		n = in.readRest(p)
	}
	if n == 0 {
		return 0, err
	}
	in.half = p[n-1] != '\n'
	return n, nil
}

// readRest reads the rest of the line that was begun, as far as it comes in time.
func (in *input) readRest(p []byte) (n int) {
	if in.restDue.IsZero() {
		in.restDue = time.Now().Add(restTime)
	}
	for n < len(p) && in.rest < maxRest {
		for fds := in.fds(); !in.ready; {
			wait := max(time.Until(in.restDue), 0)
			if got, err := unix.Poll(fds[:1], int(wait.Milliseconds())); got > 0 && err == nil {
				break
			}
			if wait == 0 {
				return n
			}
		}
		got, err := unix.Read(in.fd, p[n:n+1])
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) && time.Now().Before(in.restDue) {
			continue
		}
		if got != 1 || err != nil {
			break
		}
		in.rest++
		if n++; p[n-1] == '\n' {
			break
		}
	}
	return n
}

// read waits for the input or for stop.
func (in *input) read(p []byte) (int, error) {
	for {
		if in.isStopped() {
			return 0, intake.ErrStopped
		}
		if !in.ready {
			fds := in.fds()
			if _, err := unix.Poll(fds[:], -1); err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
				return 0, err
			}
			if fds[1].Revents != 0 {
				return 0, intake.ErrStopped
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
