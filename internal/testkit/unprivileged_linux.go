package testkit

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Unprivileged calls the function do on a thread that is subject to file permissions, even if the
// test runs as root.
func Unprivileged(t testing.TB, do func()) {
	t.Helper()
	if os.Geteuid() == 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		const nobody = 65534
		if _, err := unix.SetfsuidRetUid(nobody); err != nil {
			t.Fatal(err)
		}
		defer unix.SetfsuidRetUid(0)
	}
	do()
}
