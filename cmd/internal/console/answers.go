package console

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/internal/vfs"
)

// Answers is the standard output of commands. It records the first failed write, because not every
// command checks the errors of its writes.
type Answers struct {
	W   io.Writer
	Err error
}

func (a *Answers) Write(p []byte) (int, error) {
	n, err := a.W.Write(p)
	if a.Err == nil {
		a.Err = err
	}
	return n, err
}

// Failure returns the error with which the program exits after a failed write. The error has no
// text if the reader has closed the pipe, as in: forebay … | head.
func (a *Answers) Failure() error {
	if errors.Is(a.Err, syscall.EPIPE) {
		return exit.Runtime(nil)
	}
	return exit.Runtime(fmt.Errorf("cannot write standard output: %w", vfs.Cause(a.Err)))
}
