package journal

import (
	"os/exec"
	"syscall"
)

// killWithParent makes the kernel kill the child when this process ends. Otherwise journalctl would
// continue to run until it writes another entry.
func killWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
