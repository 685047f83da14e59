// Package vfs abstracts the few file system operations that durable code needs: [OS] is the real
// file system, [Mem] is a file system in memory, [Disk] is a real directory with a simulated loss
// of power, and [Faulty] makes selected operations fail.
//
// Names are paths as in package os. All methods of all implementations are safe for concurrent use.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// ErrLocked is returned by [FS.Lock] when the lock is already held.
var ErrLocked = errors.New("locked")

// ErrNotRegular is wrapped by the error of [FS.OpenFile] for anything except a plain file:
// a directory, a symbolic link, a named pipe, a device.
var ErrNotRegular = errors.New("not a plain file")

// ErrNoReader is wrapped by the error of [OpenAppend] for a named pipe that has no reader.
var ErrNoReader = errors.New("it is a named pipe without a reader; start the reader first")

// Cause returns the cause of an error of package os without its operation and paths, for messages
// that contain them already. It returns any other error unchanged.
func Cause(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	if le := (*os.LinkError)(nil); errors.As(err, &le) {
		return le.Err
	}
	return err
}

// DirError returns the error of a directory that cannot be created. err is the reason.
func DirError(dir string, err error) error {
	return fmt.Errorf("cannot make directory %s: %w; create it for the user of this process, or use another one", dir, err)
}

// An FS is a file system.
//
// Errors match those of package os under errors.Is: fs.ErrNotExist, fs.ErrExist,
// syscall.ENOSPC and so on.
type FS interface {
	// MkdirAll creates dir and any missing parents with mode perm before the umask. If dir exists,
	// it does nothing.
	MkdirAll(dir string, perm fs.FileMode) error
	// OpenFile opens a plain file. flag combines os.O_RDONLY, os.O_RDWR, os.O_CREATE, os.O_EXCL and
	// os.O_TRUNC. perm is the mode of a new file before the umask. OpenFile never blocks, as
	// opening a named pipe would. For anything except a plain file, the error wraps ErrNotRegular.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Remove deletes a file. Open files of that name remain usable.
	Remove(name string) error
	// Rename renames a file. It atomically replaces a file named newname.
	Rename(oldname, newname string) error
	// ReadDir returns the sorted base names of the entries of dir.
	ReadDir(dir string) ([]string, error)
	// Size returns the size of a file in bytes. It follows no symbolic link.
	Size(name string) (int64, error)
	// SyncDir writes the names in dir to stable storage, but not the contents of the files.
	SyncDir(dir string) error
	// Lock acquires an exclusive lock without waiting. The lock is held until the returned Closer
	// is closed or the process ends in any way. name is created if needed and is not removed. If
	// the lock is held already, the error wraps ErrLocked.
	Lock(name string) (io.Closer, error)
}

// A System is an FS with append-only files.
type System interface {
	FS
	// OpenAppend opens a file of any kind; flag includes os.O_APPEND. For [OS] it is the
	// function [OpenAppend], and the Appender is an *os.File.
	OpenAppend(name string, flag int, perm fs.FileMode) (Appender, error)
}

// An Appender is an open file in which each write goes to the current end of the file.
type Appender interface {
	io.WriteCloser
	// Sync writes content and size to stable storage.
	Sync() error
	Stat() (fs.FileInfo, error)
}

// A File is an open file without a current offset: each read and write specifies its own.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Truncate sets the size in bytes. It extends a shorter file with zeros.
	Truncate(size int64) error
	// Size returns the size in bytes.
	Size() (int64, error)
	// Sync writes content and size to stable storage.
	Sync() error
}

// MakeDirs creates dir and any missing parents. It returns the directories that have a new entry.
// Until [FS.SyncDir] is called for each of them, a loss of power can remove dir with its contents.
func MakeDirs(fsys FS, dir string, perm fs.FileMode) (unsynced []string, err error) {
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if _, err := fsys.ReadDir(d); !errors.Is(err, fs.ErrNotExist) || d == filepath.Dir(d) {
			break
		}
		unsynced = append(unsynced, filepath.Dir(d))
	}
	if err := fsys.MkdirAll(dir, perm); err != nil {
		return nil, err
	}
	slices.Reverse(unsynced)
	return unsynced, nil
}
