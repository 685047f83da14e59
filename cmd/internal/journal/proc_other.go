//go:build !linux

package journal

import "os/exec"

func diesWithUs(*exec.Cmd) {}
