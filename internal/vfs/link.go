package vfs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// A Link is the relation of a path to an open file.
type Link uint8

const (
	Linked  Link = iota // the path names the file, or the system cannot tell
	Moved               // the path does not name the file; the file may have another name
	Deleted             // the path does not name the file, and the file has no other name
)

// LinkOf returns the relation of path to f. It follows symbolic links. It returns Linked if f is
// not a regular file or if path cannot be examined. Only Unix systems report Deleted.
func LinkOf(f interface{ Stat() (fs.FileInfo, error) }, path string) Link {
	opened, err := f.Stat()
	if err != nil || !opened.Mode().IsRegular() {
		return Linked
	}
	atPath, err := os.Stat(path)
	switch {
	case err == nil && os.SameFile(opened, atPath):
		return Linked
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
		return Linked
	case isDeleted(opened):
		return Deleted
	}
	return Moved
}
