package setting

import (
	"fmt"
	"os"
	"runtime"
)

// A SecretFile is a file with a secret. Path is the value of the option Name, "" if it is not set.
type SecretFile struct{ Name, Path string }

// OpenFiles returns a warning for each file that every user of this machine can read or change. The
// names of options follow prefix.
func OpenFiles(prefix string, files ...SecretFile) (warnings []string) {
	for _, f := range files {
		if IsOpen(f.Path) {
			warnings = append(warnings, fmt.Sprintf("%s%s: every user of this machine can read or change %s; run chmod 600 %s", prefix, f.Name, f.Path, f.Path))
		}
	}
	return warnings
}

// IsOpen reports whether the mode of the file at path lets every user read or change it. On Windows,
// where the mode does not contain the permissions, IsOpen returns false.
func IsOpen(path string) bool {
	st, err := os.Stat(path)
	return err == nil && runtime.GOOS != "windows" && st.Mode().IsRegular() && st.Mode().Perm()&0o006 != 0
}
