//go:build unix

package deploy

import (
	"os/exec"
	"syscall"
)

// confine has cmd run as user, with root as all that there is.
func confine(cmd *exec.Cmd, root string, user uint32) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}
}
