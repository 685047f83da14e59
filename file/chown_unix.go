//go:build unix

package file

import (
	"io/fs"
	"os"
	"syscall"
)

// chown gives h the owner and the group of old. Only the superuser can change the owner.
func chown(h *os.File, old fs.FileInfo) error {
	if st, ok := old.Sys().(*syscall.Stat_t); ok {
		return h.Chown(int(st.Uid), int(st.Gid))
	}
	return nil
}
