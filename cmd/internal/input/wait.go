package input

import (
	"os"
	"sync"

	"github.com/forebay-log/forebay/cmd/internal/intake"
)

// An input is standard input whose reading can be stopped. After Stop nothing more is read, so that
// the rest stays in a pipe, with one exception: a line that was partly read is read to its end, if
// the end arrives at once, because half a line would become a record.
type input struct {
	f       *os.File
	text    intake.Text
	once    sync.Once
	stopped chan struct{}
	inputWait
}

// NewInput returns the input of f.
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

func (in *input) isStopped() bool {
	select {
	case <-in.stopped:
		return true
	default:
		return false
	}
}
