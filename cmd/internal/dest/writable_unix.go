//go:build unix

package dest

import "golang.org/x/sys/unix"

// CanWrite returns nil if this user may write the file at path or, if path is a directory, create
// files in it. It writes nothing.
func CanWrite(path string, isDir bool) error {
	mode := uint32(unix.W_OK)
	if isDir {
		mode |= unix.X_OK
	}
	return unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS)
}
