package journal

import (
	"os/exec"
	"syscall"
)

// diesWithUs ends the child when this process is killed: with no entries to write, it would
// not notice.
func diesWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
