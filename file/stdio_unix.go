//go:build unix

package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// pollEvery is how often, in milliseconds, a write that cannot go on looks at
// its context.
const pollEvery = 50

// write writes p, waiting as long as the file takes no more and ctx lasts. It
// returns how much was written.
//
// A pipe that polls as writable takes pipeBuf bytes without blocking, so asking
// first keeps the goroutine out of a write(2) that nothing can interrupt, and
// deals with O_NONBLOCK, whoever set it, and when. The mode itself is not
// touched: it belongs to the open file, which other processes share.
func (s *Stdio) write(ctx context.Context, p []byte) (done int, err error) {
	if !s.wait {
		return s.f.Write(p)
	}
	c, err := s.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	// Control keeps the descriptor from being closed and, unlike Fd, leaves its
	// mode alone.
	if cerr := c.Control(func(fd uintptr) { done, err = writeReady(ctx, int(fd), p) }); cerr != nil {
		return 0, cerr
	}
	return done, err
}

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
		case errors.Is(err, unix.EAGAIN): // another writer was faster
		default:
			return done, err
		}
	}
	return done, nil
}

// waitWritable returns nil when fd can be written to, or has an error that a
// write will show, or cannot be polled at all (terminals on macOS).
func waitWritable(ctx context.Context, fd int) error {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("it takes no more: %w", context.Cause(ctx))
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

// readerGone reports whether err means that nobody will ever read again.
func readerGone(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EIO)
}

// checkOpen implements Check.
func checkOpen(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("%w: %w", errNotOpen, cause(err))
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
		return fmt.Errorf("%w: it was closed when the program began", errNotOpen)
	}
	return nil
}
