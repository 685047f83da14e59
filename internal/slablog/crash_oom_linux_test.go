package slablog

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forebay-log/forebay/internal/testkit"
)

// memoryGroup creates a control group with a memory limit of n bytes, or skips the test. It returns
// the files through which a process joins the group.
func memoryGroup(t *testing.T, n int) []string {
	t.Helper()
	skip := func(why error) {
		t.Helper()
		t.Skipf("SKIPPED: no memory cgroup can be made here (%v); TestExitPanicThrow/limit and TestKill stand in for it", why)
	}
	root, limits := "/sys/fs/cgroup", []string{"memory.max", "memory.swap.max"}
	if _, err := os.Stat(root + "/cgroup.controllers"); err != nil {
		root, limits = "/sys/fs/cgroup/memory", []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}
	}
	dir := filepath.Join(root, "forebay-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		skip(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	for i, l := range limits {
		limit := n
		if i == 1 && l == "memory.swap.max" {
			limit = 0
		}
		if err := os.WriteFile(filepath.Join(dir, l), []byte(strconv.Itoa(limit)), 0); err != nil && i == 0 {
			skip(err)
		}
	}
	return []string{filepath.Join(dir, "cgroup.procs")}
}

// If the kernel kills the process because its control group exceeds the memory limit, no record is
// lost.
func TestOOMKill(t *testing.T) {
	procs := memoryGroup(t, 96<<20)
	for _, where := range places {
		t.Run(where, func(t *testing.T) {
			dir := place(t, where)
			c := startChild(t, dir, "hang,roomy", 0, testkit.Seed(t), envEnd+"=cgroup", envCgroup+"="+strings.Join(procs, ":"))
			err := c.Wait()
			var ee *exec.ExitError
			if c.Failed() {
				t.Skipf("SKIPPED: %s", &c.Said)
			}
			if !errors.As(err, &ee) || ee.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
				t.Fatalf("child ended with %v: %.500s", err, &c.Said)
			}
			afterEnd(t, dir)
		})
	}
}
