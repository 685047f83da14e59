package deliver

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/internal/written"
)

// An appendFile is a dead-letter file or a fallback file. If the file was moved or deleted, the
// next write creates it again at its path. If a killed process left a partial line at the end,
// opening the file appends a newline.
type appendFile struct {
	path string

	mu     sync.Mutex // held while writing; guards the fields below
	f      *os.File   // nil: not open yet
	closed bool
}

// open opens the file, unless it is already open and still linked at its path. It creates a missing
// file (0600).
func (a *appendFile) open() error {
	if a.f != nil && vfs.LinkOf(a.f, a.path) == vfs.Linked {
		return nil
	}
	// With O_APPEND, several outputs or processes can append to the same file.
	f, err := os.OpenFile(a.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := endLine(f); err != nil {
		return errors.Join(err, f.Close())
	}
	// The old file is closed only now, so that the handle to it is kept if opening the new one
	// fails.
	if a.f != nil {
		_ = a.f.Close()
	}
	a.f = f
	return nil
}

// endLine appends a newline to f, if f is a regular file whose last line is incomplete.
func endLine(f *os.File) error {
	var last [1]byte
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return err
	}
	if _, err := f.ReadAt(last[:], st.Size()-1); err != nil || last[0] == '\n' {
		return nil // f is not readable, for example a pipe, so there is no line to end
	}
	_, err = f.Write([]byte{'\n'})
	return err
}

// Write appends p. After Close it fails.
func (a *appendFile) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return 0, os.ErrClosed
	}
	if err := a.open(); err != nil {
		return 0, err
	}
	return a.f.Write(p)
}

// Close syncs the file to stable storage, unless its kind does not support that (a pipe), and
// closes it. It may be called twice.
func (a *appendFile) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.f == nil {
		a.closed = true
		return nil
	}
	a.closed = true
	err := a.f.Sync()
	if written.CannotSync(err) {
		err = nil
	}
	if err = errors.Join(err, a.f.Close()); err != nil {
		return fmt.Errorf("deliver: cannot close the file: %w", err)
	}
	return nil
}
