//go:build !linux

package journal

import "os/exec"

// killWithParent does nothing, because only Linux can kill a child with its parent.
func killWithParent(*exec.Cmd) {}
