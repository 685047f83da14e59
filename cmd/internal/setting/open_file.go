package setting

import (
	"fmt"
	"os"
	"runtime"
)

// OpenFileHint returns a warning if every user of this machine can read or change the file at path,
// which contains a secret, or "". name is the option that names the file.
func OpenFileHint(name, path string) string {
	if !IsOpen(path) {
		return ""
	}
	return fmt.Sprintf("%s: every user of this machine can read or change %s; run chmod 600 %s", name, path, path)
}

// IsOpen reports whether the mode of the file at path lets every user read or change it. On Windows,
// where the mode does not contain the permissions, IsOpen returns false.
func IsOpen(path string) bool {
	st, err := os.Stat(path)
	return err == nil && runtime.GOOS != "windows" && st.Mode().IsRegular() && st.Mode().Perm()&0o006 != 0
}
