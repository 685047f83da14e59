package journal

import (
	"os/exec"
	"syscall"
)

// killWithParent makes the kernel kill the child when this process is killed. A journalctl without
// entries to write would not notice the end of this process.
func killWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
