//go:build !linux

package journal

import "os/exec"

// killWithParent does nothing, because only Linux can kill a child when its parent ends.
func killWithParent(*exec.Cmd) {}
