//go:build unix

package tail

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// idOf returns the device and inode in st.
func idOf(_ string, st fs.FileInfo) id {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return id{}
	}
	return id{uint64(s.Dev), uint64(s.Ino)}
}

// isDeleted reports whether the open file described by st was deleted.
func isDeleted(st fs.FileInfo) bool {
	s, ok := st.Sys().(*syscall.Stat_t)
	return ok && s.Nlink == 0
}

// descriptors returns the limit of open files of this process.
func descriptors() int {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil {
		return 256
	}
	return int(min(uint64(r.Cur), 1<<20))
}
