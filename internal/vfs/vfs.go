// Package vfs is the small part of a file system that durable code needs, as a
// seam: [OS] is the real one, [Mem] keeps files in memory and can be cloned as a
// loss of power would leave it, [Faulty] makes chosen operations fail.
//
// Names are paths as package os takes them. All methods of all implementations
// may be called from several goroutines at once.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
)

// ErrLocked is returned by [FS.Lock] when another holder has the lock.
var ErrLocked = errors.New("locked by another process")

// ErrNotRegular is returned, wrapped, by [FS.OpenFile] for what is no plain file: a
// directory, a symbolic link, a named pipe, a device.
var ErrNotRegular = errors.New("not a plain file")

// An FS is a file system.
//
// Errors say what package os says: they match fs.ErrNotExist, fs.ErrExist,
// syscall.ENOSPC and so on under errors.Is.
type FS interface {
	// MkdirAll makes dir and its parents where they do not exist.
	MkdirAll(dir string, perm fs.FileMode) error
	// OpenFile opens a plain file; flag is made of os.O_RDONLY, os.O_RDWR,
	// os.O_CREATE, os.O_EXCL and os.O_TRUNC. It never waits, as opening a named
	// pipe would, and returns ErrNotRegular, wrapped, for anything else.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Remove deletes a file.
	Remove(name string) error
	// Rename gives a file another name, replacing what has it.
	Rename(oldname, newname string) error
	// ReadDir returns the base names of what is in dir, sorted.
	ReadDir(dir string) ([]string, error)
	// Size returns a file's size in bytes. It follows no symbolic link.
	Size(name string) (int64, error)
	// SyncDir puts the names in dir on stable storage: which files exist, not
	// what is in them.
	SyncDir(dir string) error
	// Lock takes an exclusive lock that ends with the returned Closer or with
	// the process, however that ends. name is created if needed and stays. It
	// returns ErrLocked, wrapped, when somebody has the lock.
	Lock(name string) (io.Closer, error)
}

// A System is an FS with files that are appended to.
type System interface {
	FS
	// OpenAppend opens a file of any kind as os.OpenFile does; flag has os.O_APPEND. That
	// of [OS] is an *os.File.
	OpenAppend(name string, flag int, perm fs.FileMode) (Appender, error)
}

// An Appender is an open file that is written to at its end.
type Appender interface {
	io.WriteCloser
	// Sync puts content and size on stable storage.
	Sync() error
	Stat() (fs.FileInfo, error)
}

// A File is an open file without a position.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Truncate sets the size in bytes.
	Truncate(size int64) error
	// Size returns the size in bytes.
	Size() (int64, error)
	// Sync puts content and size on stable storage.
	Sync() error
}

// MakeDirs makes dir and its parents where they do not exist. It returns the directories
// that have a new one in them: until [FS.SyncDir] of each, a loss of power takes dir and all
// that is in it.
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
