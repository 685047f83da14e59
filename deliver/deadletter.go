package deliver

import (
	"fmt"

	"github.com/forebay-log/forebay/batch"
)

// A DeadLetterFile is an [ErrorHandler] that appends what a destination refused
// for good to a file, as [DeadLetters] does. It may serve several outlets. Its methods
// may be called from several goroutines at once.
type DeadLetterFile struct {
	h *jsonLines
	f *appendFile
}

// OpenDeadLetterFile opens the file at path for appending, and makes it (0600)
// if it is not there, also if it is moved or deleted later. If the file ends in a partial line, a
// newline is written first.
func OpenDeadLetterFile(path, destination string) (*DeadLetterFile, error) {
	f, err := openAppendFile(path)
	if err != nil {
		return nil, fmt.Errorf("deliver: cannot open dead-letter file: %w", err)
	}
	h := DeadLetters(f, destination).(*jsonLines)
	h.torn = f.torn()
	return &DeadLetterFile{h: h, f: f}, nil
}

// HandleError appends the records of b. After Close it takes none.
func (d *DeadLetterFile) HandleError(cause error, b *batch.Batch) batch.Outcome {
	return d.h.HandleError(cause, b)
}

// Close puts the file on stable storage, if it is of a kind that can be, which a
// terminal, a pipe and /dev/null are not, and closes it. It may be called twice.
func (d *DeadLetterFile) Close() error {
	if err := d.f.Close(); err != nil {
		return fmt.Errorf("deliver: cannot close dead-letter file: %w", err)
	}
	return nil
}
