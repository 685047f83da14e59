// Package mapped creates memory-mapped files that outlive the process. A store into the memory is
// immediately in the page cache. It therefore survives SIGKILL, but not a loss of power.
//
// A file belongs to the process that holds its lock. The kernel releases the lock when the process
// ends. Therefore, unlike a process id in a lock file, the lock is never stale.
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
	// ErrNotSupported is returned on platforms without memory-mapped files.
	ErrNotSupported = errors.New("crash-safe memory is not supported on " + runtime.GOOS)
	// ErrNotRegular is wrapped by the error for a file that is not regular, such as a link or a
	// FIFO.
	ErrNotRegular = errors.New("not a regular file")
	// ErrInUse is wrapped by the error for a file that a running process uses.
	ErrInUse = errors.New("in use by a running process")
)

// regular returns f if it is a regular file. Otherwise it closes f and returns an error.
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

// Adopt opens and locks the file of a dead process. The error wraps [ErrInUse] if the process is
// still running, and os.ErrNotExist if another process has removed the file.
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
	if !InPlace(f, path) { // another process removed the file and then released the lock
		f.Close()
		return nil, os.ErrNotExist
	}
	return f, nil
}

// InPlace reports whether path still refers to f.
func InPlace(f *os.File, path string) bool {
	own, err1 := f.Stat()
	now, err2 := os.Lstat(path)
	return err1 == nil && err2 == nil && os.SameFile(own, now)
}

// RemoveIncomplete removes incomplete files: those in dir whose names end in suffix, if they are
// older than a minute and not locked.
func RemoveIncomplete(dir, suffix string) {
	for _, path := range Files(dir, suffix) {
		f, err := OpenRegular(path, os.O_RDWR)
		if err != nil {
			continue
		}
		// A younger file may belong to a process that is about to lock it.
		if st, err := f.Stat(); err == nil && time.Since(st.ModTime()) > time.Minute && Lock(f) == nil {
			os.Remove(path)
		}
		f.Close()
	}
}

// Files returns the sorted paths of the files in dir whose names end in suffix.
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
