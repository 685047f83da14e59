package input

import (
	"os"
	"sync"
)

// input is standard input that can be told to end. Nothing is read from it
// after stop has returned to whoever reads, so that what is left in a pipe stays
// there. But a line of which the beginning was read is read to its end, if that
// comes at once: half of it would be taken for a line.
type input struct {
	f       *os.File
	once    sync.Once
	stopped chan struct{}
	inputWait
}

func NewInput(f *os.File) (*input, error) {
	in := &input{f: f, stopped: make(chan struct{})}
	return in, in.inputWait.init(f)
}

// Stop makes the next Read, or the one that waits now, return errStopped.
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
