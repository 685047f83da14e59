//go:build !linux

package netsink

import (
	"syscall"
)

func (o *Config) control(string, string, syscall.RawConn) error { return nil }
