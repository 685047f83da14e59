package deliver

import (
	"fmt"
	"os"
	"sync"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/written"
)

// A DeadLetterFile is an [ErrorHandler] that appends what a destination refused
// for good to a file, as [DeadLetters] does. It may serve several outlets. Its methods
// may be called from several goroutines at once.
type DeadLetterFile struct {
	h *jsonLines

	mu     sync.Mutex // guards closed
	f      *os.File
	closed bool
}

// OpenDeadLetterFile opens the file at path for appending, and makes it (0600)
// if it is not there. A line that an earlier process left torn is ended first.
func OpenDeadLetterFile(path, destination string) (*DeadLetterFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("deliver: cannot open dead-letter file: %w", err)
	}
	h := DeadLetters(f, destination).(*jsonLines)
	var last [1]byte
	if st, err := f.Stat(); err == nil && st.Size() > 0 {
		if _, err := f.ReadAt(last[:], st.Size()-1); err == nil {
			h.torn = last[0] != '\n'
		}
	}
	return &DeadLetterFile{h: h, f: f}, nil
}

// HandleError appends the records of b. After Close it takes none.
func (d *DeadLetterFile) HandleError(cause error, b *batch.Batch) batch.Outcome {
	return d.h.HandleError(cause, b)
}

// Close puts the file on stable storage, if it is of a kind that can be, which a
// terminal, a pipe and /dev/null are not, and closes it. It may be called twice.
func (d *DeadLetterFile) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	err := d.f.Sync()
	if written.CannotSync(err) {
		err = nil
	}
	if e := d.f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("deliver: cannot close dead-letter file: %w", err)
	}
	return nil
}
