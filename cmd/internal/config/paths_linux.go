package config

import "golang.org/x/sys/unix"

// takesFiles reports whether the file system of dir allows new files, whatever the permissions. It
// returns false for procfs and sysfs, and true for unknown file systems.
func takesFiles(dir string) bool {
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
