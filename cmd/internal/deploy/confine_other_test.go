//go:build !unix

package deploy

import "os/exec"

func confine(*exec.Cmd, string, uint32) {}
