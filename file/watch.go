package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/forebay-log/forebay/internal/vfs"
)

const (
	// lookEvery is the interval at which the path of a file is checked while it is written to
	// without a pause.
	lookEvery = 100 * time.Millisecond
	// lookAfter is the pause after which the next Write checks the path first.
	lookAfter = 5 * time.Millisecond
)

// watched is the state of the path of a File. The lock of the File guards it.
type watched struct {
	looked time.Time // when the path last named the open file, or was found not to; zero: look now
	wrote  time.Time
	moved  bool // the file was moved away and cannot be reopened; that was reported
}

// Check compares the path with the open file. If the path no longer names the file, because the
// file was moved or deleted, Check opens the path again and reports that once to OnError. Write
// does the same after a pause, after a Check, and every 0.1 s. A moved file stays in use until a
// new one can be opened. If a deleted file cannot be created again, Check and Write return the
// reason.
func (f *File) Check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fmt.Errorf("file: cannot check %q: %w", f.name, os.ErrClosed)
	}
	f.lookLocked(time.Now())
	f.watched.looked = time.Time{}
	if f.h == nil {
		return f.openAgainLocked()
	}
	return nil
}

// glanceLocked calls lookLocked if it is due.
func (f *File) glanceLocked() {
	now := time.Now()
	w := &f.watched
	due := now.Sub(w.looked) >= lookEvery || now.Sub(w.wrote) >= lookAfter
	if w.wrote = now; due {
		f.lookLocked(now)
	}
}

// lookLocked checks whether the path names the open file. If not, the path is opened again, or
// the file closed if it was deleted.
func (f *File) lookLocked(now time.Time) {
	if f.h == nil || !f.regular || f.cut {
		return
	}
	f.watched.looked = now
	ours, err := f.h.Stat()
	if err != nil {
		return
	}
	there, err := os.Stat(f.path)
	switch {
	case err == nil && os.SameFile(ours, there):
		f.watched.moved = false
		return
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
		return // unknown
	case isDeleted(ours):
		f.events.Post(fmt.Errorf("file: %q was deleted; it is made again", f.name))
		unclaim(f.h)
		giveBack := f.giveBackLocked()
		f.h.Close()
		f.h = nil
		giveBack()
		f.rotator.release()
		return
	}
	err = f.reopenLocked()
	switch {
	case err == nil:
		f.watched.moved = false
		f.events.Post(fmt.Errorf("file: %q was moved; it is reopened", f.name))
	case !f.watched.moved:
		f.watched.moved = true
		f.events.Post(fmt.Errorf("file: %q was moved; %w", f.name, err))
	}
}

// openAgainLocked opens the file after it was deleted, or could not be opened.
func (f *File) openAgainLocked() error {
	if err := f.openLocked(); err != nil {
		return fmt.Errorf("file: cannot open %q again: %w", f.name, err)
	}
	return nil
}

// makeDirsLocked creates the directory of the file, if configured.
func (f *File) makeDirsLocked() error {
	if !f.o.MakeDirs {
		return nil
	}
	made, err := vfs.MakeDirs(vfs.OS, filepath.Dir(f.path), 0o700)
	f.durable.dirs = append(f.durable.dirs, made...)
	return cause(err)
}

// relock locks the lock file again if it was moved or deleted, because others would not find it.
func (f *File) relock() error {
	old := f.lock
	if old == nil {
		return nil
	}
	if ours, err := old.Stat(); err == nil {
		if there, err := os.Stat(old.Path()); err == nil && os.SameFile(ours, there) {
			return nil
		}
	}
	if err := f.acquire(); err != nil {
		f.lock = old
		return err
	}
	old.Unlock()
	return nil
}
