package input

import (
	"os"
	"sync"

	"github.com/forebay-log/forebay/cmd/internal/intake"
)

// An input is standard input with a method Stop. After Stop, Read reads nothing more, so that
// unread data stays in the pipe. However, if a line was partly read, Read tries to read the rest of
// the line, because otherwise half a line would become a record.
type input struct {
	f       *os.File
	text    intake.Text
	once    sync.Once
	stopped chan struct{}
	inputWait
}

// NewInput returns an input that reads f.
func NewInput(f *os.File, text intake.Text) (*input, error) {
	in := &input{f: f, text: text, stopped: make(chan struct{})}
	return in, in.inputWait.init(f)
}

// Stop makes the current or the next Read return intake.ErrStopped.
func (in *input) Stop() {
	in.once.Do(func() {
		close(in.stopped)
		in.wakeUp()
	})
}

// isStopped reports whether Stop was called.
func (in *input) isStopped() bool {
	select {
	case <-in.stopped:
		return true
	default:
		return false
	}
}
