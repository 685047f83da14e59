package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"github.com/forebay-log/forebay/internal/vfs"
)

// resolve returns path without symbolic links, even if the target of a link does not exist.
func resolve(path string) string {
	for range 40 { // Linux follows at most 40 links
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return real
		}
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	return path
}

// errClaimed returns the error for a log file that another process has locked. If that process used
// the same name for the file, acquire would have failed earlier.
func errClaimed(rotates bool) error {
	if rotates {
		return errors.New("another process, or another File of this process, writes to it (perhaps through a hard link), so it cannot be rotated: " +
			"stop the other process, or use a separate file")
	}
	return errors.New("another process, or another File of this process, writes to it through a hard link and rotates it: " +
		"stop the other process, or use a separate file")
}

// acquire locks the lock file. A File that rotates locks it exclusively, because two rotating
// processes would move each other's files. Other Files share the lock, if a lock file exists, so
// that they do not write to a file that is then compressed and removed. The lock on the log file
// itself (see claim) detects users of another lock file.
//
// The lock file remains when the process ends. If it were removed, two processes could lock two
// different files with the same name.
func (f *File) acquire() error {
	path := f.path + ".lock"
	if !f.o.rotates() {
		path = resolve(f.path) + ".lock"
		if _, err := os.Stat(path); err != nil {
			return nil
		}
	}
	// This process may not be permitted to open the lock file of another user. A File that does not
	// rotate then works without the lock.
	l := flock.New(path, flock.SetPermissions(0o600))
	try := l.TryLock
	if !f.o.rotates() {
		try = l.TryRLock
	}
	got, err := try()
	switch {
	case err != nil && f.o.rotates():
		return fmt.Errorf("cannot lock the lock file %q: %w", path, vfs.Cause(err))
	case err != nil:
		return nil // the lock file belongs to another user
	case !got && f.o.rotates():
		return errors.New(vfs.Holder(path) + " writes to it, so it cannot be rotated: " +
			"stop the other process, or use a separate file (lock " + path + ")")
	case !got:
		return errors.New(vfs.Holder(path) + " writes to it and rotates it: " +
			"stop the other process, or use a separate file (lock " + path + ")")
	}
	f.lock = l
	if f.o.rotates() {
		vfs.SetHolder(path)
	}
	return nil
}
