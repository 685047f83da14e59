package deliver

import (
	"fmt"

	"github.com/forebay-log/forebay/batch"
)

// A DeadLetterFile is an [ErrorHandler] that appends permanently refused records to a file, in the
// format of [DeadLetters]. It may serve several outlets. Its methods may be called concurrently.
type DeadLetterFile struct {
	file  *appendFile
	lines ErrorHandler
}

// newDeadLetterFile returns a DeadLetterFile that is opened for the first record.
func newDeadLetterFile(path, destination string) *DeadLetterFile {
	f := &appendFile{path: path}
	return &DeadLetterFile{f, DeadLetters(f, destination)}
}

// OpenDeadLetterFile opens the file at path for appending, and creates it (0600) if it does not
// exist. It is created again if it is moved or deleted later. If the file ends in a partial line, a
// newline is written first. destination is the name of the destination in each dead letter.
func OpenDeadLetterFile(path, destination string) (*DeadLetterFile, error) {
	d := newDeadLetterFile(path, destination)
	if err := d.file.open(); err != nil {
		return nil, fmt.Errorf("deliver: cannot open dead-letter file: %w", err)
	}
	return d, nil
}

// HandleError appends the records of b. After Close it accepts none.
func (d *DeadLetterFile) HandleError(cause error, b *batch.Batch) batch.Outcome {
	return d.lines.HandleError(cause, b)
}

// Close syncs the file to stable storage, unless its kind does not support that (a terminal, a pipe
// or /dev/null), and closes it. It may be called twice.
func (d *DeadLetterFile) Close() error {
	if err := d.file.Close(); err != nil {
		return fmt.Errorf("deliver: cannot close dead-letter file: %w", err)
	}
	return nil
}
