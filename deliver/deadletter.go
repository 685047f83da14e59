package deliver

import (
	"errors"
	"fmt"
	"sync"

	"github.com/forebay-log/forebay/batch"
)

// A DeadLetterFile is an [ErrorHandler] that appends permanently refused records to a file, in the
// format of [DeadLetters]. It may serve several outlets. Its methods may be called concurrently.
type DeadLetterFile struct {
	path, destination string

	mu     sync.Mutex // guards the rest
	h      *jsonLines // nil: not open yet
	f      *appendFile
	closed bool
}

var errLettersClosed = errors.New("deliver: dead-letter file is closed")

// OpenDeadLetterFile opens the file at path for appending, and creates it (0600) if it does not
// exist. It is created again if it is moved or deleted later. If the file ends in a partial line, a
// newline is written first. destination is the name of the destination in each dead letter.
func OpenDeadLetterFile(path, destination string) (*DeadLetterFile, error) {
	d := &DeadLetterFile{path: path, destination: destination}
	if _, err := d.open(); err != nil {
		return nil, err
	}
	return d, nil
}

// open opens the file unless it is open.
func (d *DeadLetterFile) open() (*jsonLines, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errLettersClosed
	}
	if d.h == nil {
		f, err := openAppendFile(d.path)
		if err != nil {
			return nil, fmt.Errorf("deliver: cannot open dead-letter file: %w", err)
		}
		d.f, d.h = f, DeadLetters(f, d.destination).(*jsonLines)
		d.h.torn = f.torn()
	}
	return d.h, nil
}

// HandleError appends the records of b. After Close it accepts none.
func (d *DeadLetterFile) HandleError(cause error, b *batch.Batch) batch.Outcome {
	h, err := d.open()
	if err != nil {
		return acceptedNothing(err)
	}
	return h.HandleError(cause, b)
}

// Close syncs the file to stable storage, unless its kind does not support that (a terminal, a pipe
// or /dev/null), and closes it. It may be called twice.
func (d *DeadLetterFile) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.f == nil {
		return nil
	}
	if err := d.f.Close(); err != nil {
		return fmt.Errorf("deliver: cannot close dead-letter file: %w", err)
	}
	return nil
}
