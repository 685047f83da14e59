//go:build !unix

package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/forebay-log/forebay/internal/vfs"
)

// write writes p. It ignores the end of the context, because these systems cannot poll such files.
func (s *Stream) write(_ context.Context, p []byte) (int, error) { return s.f.Write(p) }

// readerGone reports whether err means that the file has no reader any more. On Windows, the error
// for a closed pipe is ERROR_BROKEN_PIPE (109) or ERROR_NO_DATA (232).
func readerGone(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.Errno(109)) || errors.Is(err, syscall.Errno(232)) ||
		errors.Is(err, os.ErrClosed) || errors.Is(err, io.ErrClosedPipe)
}

// checkOpen implements Check. It only detects closed files.
func checkOpen(f *os.File) error {
	if _, err := f.SyscallConn(); err != nil {
		return fmt.Errorf("%w: %w", errNotOpen, vfs.Cause(err))
	}
	return nil
}
