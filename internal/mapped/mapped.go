// Package mapped makes files that are mapped into memory and outlive the process:
// a store into the memory is in the page cache at once, and the page cache survives
// SIGKILL. Loss of power it does not survive.
//
// A file belongs to the process that holds its lock. The kernel releases the lock
// when the process dies, so the lock never lies, as a process id can.
package mapped

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

var (
	// ErrNotSupported is returned on a platform that has no such files.
	ErrNotSupported = errors.New("crash-safe memory is not supported on " + runtime.GOOS)
	// ErrNotRegular is wrapped by the error for a link, a FIFO or the like.
	ErrNotRegular = errors.New("no regular file")
	// ErrInUse is wrapped by the error for a file whose process lives.
	ErrInUse = errors.New("in use by a living process")
)

// regular returns f if it is a regular file, else closes it.
func regular(f *os.File) (*os.File, error) {
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is %w", f.Name(), ErrNotRegular)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Adopt opens and locks the file of a dead process. It returns [ErrInUse], wrapped,
// if the process lives, and os.ErrNotExist if another process has removed the file.
func Adopt(path string) (*os.File, error) {
	f, err := OpenRegular(path, os.O_RDWR)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", path, err)
	}
	if err := Lock(f); err != nil {
		f.Close()
		if IsLocked(err) {
			return nil, fmt.Errorf("%s is %w", path, ErrInUse)
		}
		return nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	if !InPlace(f, path) { // removed just before the lock was released
		f.Close()
		return nil, os.ErrNotExist
	}
	return f, nil
}

// InPlace reports whether path still names f.
func InPlace(f *os.File, path string) bool {
	own, err1 := f.Stat()
	now, err2 := os.Lstat(path)
	return err1 == nil && err2 == nil && os.SameFile(own, now)
}

// RemoveUnborn removes the files in dir with names that end in suffix, if they are
// older than a minute and no process holds their locks. A file has such a name until
// it is complete.
func RemoveUnborn(dir, suffix string) {
	for _, path := range Files(dir, suffix) {
		f, err := OpenRegular(path, os.O_RDWR)
		if err != nil {
			continue
		}
		// A minute, because a living process may be about to take the lock.
		if st, err := f.Stat(); err == nil && time.Since(st.ModTime()) > time.Minute && Lock(f) == nil {
			os.Remove(path)
		}
		f.Close()
	}
}

// Files returns the paths of the files in dir with names that end in suffix, in the
// order of their names.
func Files(dir, suffix string) []string {
	entries, _ := os.ReadDir(dir)
	var paths []string
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), suffix) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}
