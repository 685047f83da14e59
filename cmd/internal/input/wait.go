package input

import (
	"os"
	"sync"

	"github.com/forebay-log/forebay/cmd/internal/intake"
)

// An input is standard input that can be stopped. After Stop, Read only reads the rest of a line
// that was partly read. All other data stays in the pipe.
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

// Stop makes Read return intake.ErrStopped, even if Read is in progress.
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
