package journal

import (
	"os/exec"
	"syscall"
)

// killWithParent makes the kernel kill the child when this process ends. Without it, a journalctl
// that has no entries to write would not notice the end of this process.
func killWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
