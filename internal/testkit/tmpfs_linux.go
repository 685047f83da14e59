package testkit

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
)

// namespaceEnv is the environment variable that is set if a test runs in a separate mount
// namespace.
const namespaceEnv = "FOREBAY_TEST_NAMESPACE"

// Tmpfs mounts a tmpfs with the given options, such as "size=256k", and returns its path. If the
// process may not mount, it runs the test again in a mount namespace. If that is impossible, it
// skips the test.
func Tmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options)
	switch {
	case err == nil:
		t.Cleanup(func() {
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		return dir
	case os.Getenv(namespaceEnv) == "" && errors.Is(err, syscall.EPERM):
		inNamespace(t)
	}
	t.Skipf("SKIPPED: a tmpfs cannot be mounted here: %v", err)
	return ""
}

// inNamespace runs the test again in a process with a mount namespace, and ends the calling test.
// It returns only if the namespace cannot be created.
func inNamespace(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.v")
	cmd.Env = append(os.Environ(), namespaceEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	switch {
	case err == nil:
		t.Skipf("not here, but in a namespace where mounting is allowed:\n%s", out)
	case errors.As(err, &failed):
		t.Fatalf("in a namespace where mounting is allowed: %v\n%s", err, out)
	}
}
