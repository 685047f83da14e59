package console

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/internal/vfs"
)

// Answers is the standard output of the program. It stores the error of the first failed write,
// because some commands do not check their writes.
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

// Failure returns the error with which the program exits if a write has failed. If the reader of a
// pipe has exited, as in forebay … | head, the error has no text.
func (a *Answers) Failure() error {
	if errors.Is(a.Err, syscall.EPIPE) {
		return exit.Runtime(nil)
	}
	return exit.Runtime(fmt.Errorf("cannot write standard output: %w", vfs.Cause(a.Err)))
}
