//go:build unix

package readahead

import (
	"os"
	"syscall"
)

// inode returns the device and inode number of a file.
func inode(st os.FileInfo) (dev, ino uint64, ok bool) {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return uint64(s.Dev), s.Ino, true
}
