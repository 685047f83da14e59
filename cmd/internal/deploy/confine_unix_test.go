//go:build unix

package deploy

import (
	"os/exec"
	"syscall"
)

// confine makes cmd run as user in the chroot directory root.
func confine(cmd *exec.Cmd, root string, user uint32) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}
}
