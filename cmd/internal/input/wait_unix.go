//go:build unix

package input

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forebay-log/forebay/cmd/internal/charset"
	"github.com/forebay-log/forebay/cmd/internal/intake"
)

// inputWait waits for input with the system call poll. Stop closes a pipe to interrupt the wait.
type inputWait struct {
	fd     int      // file descriptor of the input
	ready  bool     // the input is a regular file: reads do not block
	r, w   *os.File // pipe that interrupts poll
	wakeFD int      // file descriptor of r

	charset *charset.Charset
	at      int64     // position of the next read in the input
	last    [2]byte   // the last bytes that were read
	midLine bool      // the last byte that was read is not the end of a line
	rest    int       // number of bytes read after Stop
	restDue time.Time // time limit for readRest; zero before its first call
}

// Limits for the rest of a partly read line, which Read returns after Stop. The rest is read byte
// by byte, so that the data after the line stays in the pipe. If the pipe was full, its writer has
// restTime to write the rest of the line.
const (
	maxRest  = 256 << 10
	restTime = 250 * time.Millisecond
)

// init prepares to read f and creates the wake-up pipe.
func (iw *inputWait) init(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", f.Name(), err)
	}
	// Do not use f.Fd, which would make f blocking for all processes that share it. The descriptor
	// remains valid, because f is not closed while the program runs.
	if err := c.Control(func(fd uintptr) { iw.fd = int(fd) }); err != nil {
		return fmt.Errorf("cannot read %s: %w", f.Name(), err)
	}
	if iw.r, iw.w, err = os.Pipe(); err != nil {
		return fmt.Errorf("cannot make a pipe: %w", err)
	}
	iw.wakeFD = int(iw.r.Fd())
	st, err := f.Stat()
	iw.ready = err == nil && st.Mode().IsRegular()
	return nil
}

// wakeUp interrupts the system call poll.
func (iw *inputWait) wakeUp() { iw.w.Close() }

// begin sets the position of the first Read.
func (in *input) begin(at int64) { in.at, in.charset = at, in.text.Charset }

// Close closes the pipe that interrupts poll. Read must not be called afterwards.
func (in *input) Close() {
	in.Stop()
	in.r.Close()
}

// wait waits until data arrives, Stop is called or d has passed. It reports whether Read would
// return without blocking.
func (in *input) wait(d time.Duration) bool {
	if in.ready || in.isStopped() {
		return true
	}
	fds := in.fds()
	n, err := unix.Poll(fds[:], int((d+time.Millisecond-1)/time.Millisecond))
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN)
}

// fds returns the descriptors for the system call poll: the input and the pipe that interrupts
// poll.
func (iw *inputWait) fds() [2]unix.PollFd {
	return [2]unix.PollFd{{Fd: int32(iw.fd), Events: unix.POLLIN}, {Fd: int32(iw.wakeFD), Events: unix.POLLIN}}
}

// Read reads from the input. After Stop it returns intake.ErrStopped, unless the rest of a line can
// be read. It polls before each read, because another program may have made the input non-blocking.
func (in *input) Read(p []byte) (int, error) {
	n, err := in.read(p)
	if n > 0 {
		in.advance(p[:n])
	} else if errors.Is(err, intake.ErrStopped) && in.midLine {
		n = in.readRest(p)
	}
	if n == 0 {
		return 0, err
	}
	return n, nil
}

// advance updates the position after the bytes p were read.
func (in *input) advance(p []byte) {
	if in.at == 0 {
		in.charset, _ = in.text.Charset.Detect(p)
	}
	in.at += int64(len(p))
	for _, b := range p[max(0, len(p)-len(in.last)):] {
		in.last = [2]byte{in.last[1], b}
	}
	unit := in.charset.Unit()
	in.midLine = in.charset.LineEnd(in.last[len(in.last)-unit:], in.at-int64(unit)) == 0
}

// readRest reads the rest of a partly read line into p. It is called after Stop, and ends at
// restDue at the latest.
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
		in.advance(p[n : n+1])
		if n++; !in.midLine {
			break
		}
	}
	return n
}

// read waits for data or for Stop, and then reads once.
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
