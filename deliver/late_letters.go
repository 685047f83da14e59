package deliver

import (
	"errors"
	"sync"

	"github.com/forebay-log/forebay/batch"
)

// lateLetters is a [DeadLetterFile] that is opened for the first record.
type lateLetters struct {
	path, name string

	mu     sync.Mutex // guards the rest
	file   *DeadLetterFile
	closed bool
}

var errLettersClosed = errors.New("deliver: dead-letter file is closed")

func (l *lateLetters) open() (*DeadLetterFile, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errLettersClosed
	}
	var err error
	if l.file == nil {
		l.file, err = OpenDeadLetterFile(l.path, l.name)
	}
	return l.file, err
}

// HandleError appends the records of b.
func (l *lateLetters) HandleError(cause error, b *batch.Batch) batch.Outcome {
	f, err := l.open()
	if err != nil {
		return tookNothing(err)
	}
	return f.HandleError(cause, b)
}

func (l *lateLetters) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// refused is a record that the Output did not take, on its way to the dead letters.
type refused struct {
	b     *batch.Batch
	cause error
}

// refusedQueue is how many such records wait at most; older ones are forgotten.
const refusedQueue = 4
