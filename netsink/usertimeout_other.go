//go:build !linux

package netsink

import "syscall"

// control does nothing, because there is no portable equivalent of TCP_USER_TIMEOUT.
func (o *Config) control(string, string, syscall.RawConn) error { return nil }
