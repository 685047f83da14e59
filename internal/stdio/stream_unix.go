//go:build unix

package stdio

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/forebay-log/forebay/internal/vfs"
)

// pollEvery is the interval, in milliseconds, at which a blocked write checks its context.
const pollEvery = 50

// write writes p. It waits until the file accepts all bytes or ctx ends. It returns the number of
// bytes written.
//
// If poll reports that a pipe is writable, the pipe accepts pipeBuf bytes without blocking. Polling
// first therefore avoids a call of write(2) that cannot be interrupted. It also handles O_NONBLOCK,
// which any process may set at any time. write does not change that mode, because other processes
// share the open file.
func (s *Stream) write(ctx context.Context, p []byte) (done int, err error) {
	if !s.wait {
		return s.f.Write(p)
	}
	c, err := s.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	// Control prevents the descriptor from being closed. Unlike Fd, it does not change the mode.
	if cerr := c.Control(func(fd uintptr) { done, err = writeReady(ctx, int(fd), p) }); cerr != nil {
		return 0, cerr
	}
	return done, err
}

// writeReady writes p to fd in parts of at most pipeBuf bytes, each after a poll.
func writeReady(ctx context.Context, fd int, p []byte) (done int, err error) {
	for done < len(p) {
		if err := waitWritable(ctx, fd); err != nil {
			return done, err
		}
		n, err := unix.Write(fd, p[done:min(len(p), done+pipeBuf)])
		switch {
		case err == nil:
			done += n
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN): // another process has filled the pipe
		default:
			return done, err
		}
	}
	return done, nil
}

// waitWritable waits until fd is writable or ctx ends. It also returns nil if fd has an error,
// which the write will return, or if fd cannot be polled, like a terminal on macOS.
func waitWritable(ctx context.Context, fd int) error {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("it accepts no more data: %w", context.Cause(ctx))
		}
		n, err := unix.Poll(fds[:], pollEvery)
		if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return err
		}
		if n > 0 {
			return nil
		}
	}
}

// readerGone reports whether err means that the file has no reader any more. A pipe, a socket, and
// a terminal that was hung up each return one of the three errors.
func readerGone(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EIO)
}

// checkOpen implements Check. If a standard stream is closed when the program starts, the Go
// runtime opens /dev/null for reading and writing; checkOpen detects that.
func checkOpen(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("%w: %w", errNotOpen, vfs.Cause(err))
	}
	var std bool
	var mode int
	var st, null unix.Stat_t
	if cerr := c.Control(func(fd uintptr) {
		std = fd <= 2
		if mode, err = unix.FcntlInt(fd, unix.F_GETFL, 0); err == nil {
			err = unix.Fstat(int(fd), &st)
		}
	}); cerr != nil {
		err = cerr
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errNotOpen, err)
	case mode&unix.O_ACCMODE == unix.O_RDONLY:
		return errNotOpen
	case std && mode&unix.O_ACCMODE == unix.O_RDWR && unix.Stat(os.DevNull, &null) == nil &&
		st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == null.Rdev:
		return fmt.Errorf("%w: it was closed when the program started", errNotOpen)
	}
	return nil
}
