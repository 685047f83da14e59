package config

import "golang.org/x/sys/unix"

// canMake reports whether a directory is of a kind in which files and directories can be made.
// Those of the kernel have their own. Who may do so is another matter.
func canMake(dir string) bool {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return true
	}
	switch uint32(st.Type) {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC:
		return false
	}
	return true
}
