//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package file

// claim returns true. This system has no lock that permits others to read the file, so hard links
// are not detected.
func claim(handle, bool) bool { return true }

// unclaim does nothing, because claim locks nothing.
func unclaim(handle) {}
