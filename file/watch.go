package file

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/forebay-log/forebay/internal/vfs"
)

// The intervals between checks of the path. A check costs two system calls. With these intervals,
// the cost is small for a busy process, and a deleted file is created again within a second.
const (
	// checkEvery is how often the path is checked during continuous writes.
	checkEvery = 100 * time.Millisecond
	// checkAfterPause is the minimum pause after which the next Write checks the path first.
	checkAfterPause = 5 * time.Millisecond
	// checkIdleEvery is how often the path of an idle file is checked.
	checkIdleEvery = time.Second
)

// watched is the state of the path of a File. The lock of the File guards it.
type watched struct {
	checkedAt time.Time // time of the last check; zero: the next Write checks
	wrote     time.Time // time of the last Write
	pathState pathState
	idle      *time.Timer // calls checkIdle; nil: not a regular file
}

// A pathState is the relation of the path to the open file. A state other than linked has been
// reported to OnError.
//
//	linked ──moved, cannot be reopened──▶ moved ──reopened──▶ linked
//	linked ──closed, cannot be opened while idle──▶ missing ──opened──▶ linked
type pathState uint8

const (
	linked  pathState = iota // the path names the open file
	moved                    // the path names another file or none; the old file remains in use
	missing                  // no file is open
)

// Check compares the path with the open file. If the path no longer names the file, because the
// file was moved or deleted, Check opens the path again and reports this once to OnError. A moved
// file remains in use until a new one can be opened. If a deleted file cannot be created again,
// Check and Write return the reason.
//
// A program need not call Check: the first Write after a pause or after a Check makes the same
// check. Other calls of Write make it at most every 0.1 s. While there are no writes, the File
// makes it once a second.
func (f *File) Check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fmt.Errorf("file: cannot check %q: %w", f.name, os.ErrClosed)
	}
	f.checkPathLocked(time.Now())
	f.watched.checkedAt = time.Time{}
	if f.h == nil {
		return f.openAgainLocked()
	}
	return nil
}

// checkDueLocked is called by each Write. It calls checkPathLocked if a check is due. A check is
// always due after a pause, because most files are moved or deleted during a pause.
func (f *File) checkDueLocked() {
	now := time.Now()
	w := &f.watched
	due := now.Sub(w.checkedAt) >= checkEvery || now.Sub(w.wrote) >= checkAfterPause
	if w.wrote = now; due {
		f.checkPathLocked(now)
	}
}

// watchIdleLocked starts the timer that checks the path of an idle file. A timer needs no goroutine
// while it waits.
func (f *File) watchIdleLocked() {
	if !f.regular {
		return
	}
	// The timer must not fire before the field idle is set, because checkIdle uses it.
	f.watched.idle = time.AfterFunc(time.Hour, f.checkIdle)
	f.watched.idle.Reset(checkIdleEvery)
}

// checkIdle checks the path once, unless another goroutine uses the file, and sets the timer for
// the next check.
func (f *File) checkIdle() {
	if f.mu.TryLock() {
		defer f.mu.Unlock()
		if f.closed {
			return
		}
		f.checkIdleLocked(time.Now())
	}
	f.watched.idle.Reset(checkIdleEvery)
}

// checkIdleLocked checks the path and opens a deleted file again, unless the path was checked
// recently. It reports a failure only once, although it tries again every second.
func (f *File) checkIdleLocked(now time.Time) {
	if now.Sub(f.watched.checkedAt) < checkIdleEvery {
		return
	}
	f.checkPathLocked(now)
	if f.h != nil {
		return
	}
	if err := f.openAgainLocked(); err != nil && f.watched.pathState != missing {
		f.watched.pathState = missing
		f.events.Post(err)
	}
}

// checkPathLocked checks whether the path names the open file. If the file was moved, the path is
// opened again. If the file was deleted, it is closed, and the next Write creates it again.
func (f *File) checkPathLocked(now time.Time) {
	if f.h == nil || !f.regular || f.cut {
		return
	}
	f.watched.checkedAt = now
	switch vfs.LinkOf(f.h, f.path) {
	case vfs.Deleted:
		f.events.Post(fmt.Errorf("file: %q was deleted; creating it again", f.name))
		unclaim(f.h)
		releaseReserved := f.releaseReservedLocked()
		f.h.Close()
		f.h = nil
		releaseReserved()
	case vfs.Moved:
		err := f.reopenLocked()
		switch {
		case err == nil:
			f.events.Post(fmt.Errorf("file: %q was moved; reopening it", f.name))
		case f.watched.pathState != moved:
			f.watched.pathState = moved
			f.events.Post(fmt.Errorf("file: %q was moved; %w", f.name, err))
		}
	default:
		f.watched.pathState = linked
	}
}

// openAgainLocked opens the path after the file was deleted or could not be opened.
func (f *File) openAgainLocked() error {
	if err := f.openLocked(); err != nil {
		return fmt.Errorf("file: cannot open %q again: %w", f.name, err)
	}
	return nil
}

// makeDirsLocked creates the directory of the file if Options.MakeDirs is set. With Options.Sync
// "always", the next sync includes the new directories.
func (f *File) makeDirsLocked() error {
	if !f.o.MakeDirs {
		return nil
	}
	made, err := vfs.MakeDirs(vfs.OS, filepath.Dir(f.path), 0o700)
	f.durable.dirs = append(f.durable.dirs, made...)
	return vfs.Cause(err)
}

// relock creates and locks the lock file again if it was moved or deleted, because other
// processes would not find the old lock file.
func (f *File) relock() error {
	old := f.lock
	if old == nil {
		return nil
	}
	if vfs.LinkOf(old, old.Path()) == vfs.Linked {
		return nil
	}
	if err := f.acquire(); err != nil {
		f.lock = old
		return err
	}
	old.Unlock()
	return nil
}
