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

// inputWait waits for input with poll. Stop interrupts the wait by closing a pipe.
type inputWait struct {
	fd     int      // file descriptor of the input
	ready  bool     // the input is a regular file, so that reads never block
	r, w   *os.File // wake-up pipe
	wakeFD int      // file descriptor of r

	charset *charset.Charset
	at      int64     // position of the next Read
	last    [2]byte   // the last bytes that were read
	midLine bool      // the last byte that was read is within a line
	rest    int       // bytes read after Stop
	restDue time.Time // deadline of readRest; zero before its first call
}

// After Stop, at most maxRest bytes of a partly read line are read, within restTime. They are read
// one at a time, so that no byte after the line is consumed. A writer whose line does not fit in
// the pipe is blocked in the middle of it; it continues as soon as there is space.
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
	// f.Fd would switch the file to blocking mode, also for other processes that share it. The
	// descriptor stays valid because f is not closed while the program runs.
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

// wakeUp interrupts poll.
func (iw *inputWait) wakeUp() { iw.w.Close() }

// begin sets the position of the first Read.
func (in *input) begin(at int64) { in.at, in.charset = at, in.text.Charset }

// Close releases the wake-up pipe. Read must not be called afterwards.
func (in *input) Close() {
	in.Stop()
	in.r.Close()
}

// wait waits until data arrives, Stop is called or d has passed. It reports whether Read returns
// without blocking.
func (in *input) wait(d time.Duration) bool {
	if in.ready || in.isStopped() {
		return true
	}
	fds := in.fds()
	n, err := unix.Poll(fds[:], int((d+time.Millisecond-1)/time.Millisecond))
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN)
}

// fds returns the descriptors to poll: the input and the wake-up pipe.
func (iw *inputWait) fds() [2]unix.PollFd {
	return [2]unix.PollFd{{Fd: int32(iw.fd), Events: unix.POLLIN}, {Fd: int32(iw.wakeFD), Events: unix.POLLIN}}
}

// Read reads from the input. After Stop it returns intake.ErrStopped, unless the rest of a line can
// be read. Read polls before it reads, because another program may have set the input to
// non-blocking mode.
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

// advance updates the position after p was read.
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

// readRest reads the rest of a partly read line into p after Stop. It gives up at restDue.
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
