package console

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/forebay-log/forebay/cmd/internal/exit"
)

// Answers is where commands print what they were asked for. It remembers that this
// failed, which not every command looks at.
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

// Failure is how the program ends then. A reader that has seen enough (| head)
// need not be told so.
func (a *Answers) Failure() error {
	if errors.Is(a.Err, syscall.EPIPE) {
		return exit.Runtime(nil)
	}
	return exit.Runtime(fmt.Errorf("cannot write standard output: %w", Unpathed(a.Err)))
}
