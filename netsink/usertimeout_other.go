//go:build !linux

package netsink

import "syscall"

func (o *Options) control(string, string, syscall.RawConn) error { return nil }
