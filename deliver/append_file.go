package deliver

import (
	"errors"
	"os"
	"sync"

	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/internal/written"
)

// An appendFile is a file that is appended to: dead letters, or a fallback. If its path no longer
// names it, because it was moved or deleted, it is reopened before the next write.
type appendFile struct {
	path string

	mu     sync.Mutex // guards the rest, held while writing
	f      *os.File
	closed bool
}

func openAppendFile(path string) (*appendFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &appendFile{path: path, f: f}, nil
}

// torn reports whether the file ends within a line.
func (a *appendFile) torn() bool {
	var last [1]byte
	st, err := a.f.Stat()
	if err != nil || st.Size() == 0 {
		return false
	}
	_, err = a.f.ReadAt(last[:], st.Size()-1)
	return err == nil && last[0] != '\n'
}

func (a *appendFile) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return 0, os.ErrClosed
	}
	if vfs.LinkOf(a.f, a.path) != vfs.Linked {
		next, err := openAppendFile(a.path)
		if err != nil {
			return 0, err
		}
		_ = a.f.Close()
		a.f = next.f
	}
	return a.f.Write(p)
}

// Close syncs the file to stable storage, unless its kind does not support that, and closes it. It
// may be called twice.
func (a *appendFile) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	a.closed = true
	err := a.f.Sync()
	if written.CannotSync(err) {
		err = nil
	}
	return errors.Join(err, a.f.Close())
}
